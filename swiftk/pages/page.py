"""One HTML page about one text: figures, the text by where its tokens came from, charts. No network, no script."""

from __future__ import annotations

import os
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from ..errors import InvalidArgument, InvalidOption
from ..running.result import Result
from ..running.stats import Stats
from ..running.trace import Trace
from . import charts
from .page_style import CSS

_SHORT = "the text ended with its first token"
_ENDED = {"stop": "ended by a stop token or string", "length": "ended by its length", "cancelled": "cancelled"}


def report(result: Result, path: str | Path) -> Path:
    """Writes what happened as one HTML page that needs nothing else: tokens over time by who proposed them, what rounds
    took, where drafts ended, the text itself, and skipped layers where there are some. Returns its path."""
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidOption(f"[report] path={path!r}, want that of a file that can be written")
    path = Path(path).expanduser()
    page = render(result)
    try:
        path.write_text(page, encoding="utf-8", errors="xmlcharrefreplace", newline="\n")
    except OSError as error:
        raise InvalidArgument(f"[report] {path}: {error.strerror or error}, want a file that can be written") from None
    return path


def check(path: str | Path) -> None:
    """Whether a page may go there, before the text that it is about takes its time."""
    path = Path(path).expanduser()
    if path.is_dir() or not path.parent.is_dir():
        fact = "is a directory" if path.is_dir() else f"is in {path.parent}, which is no directory"
        raise InvalidArgument(f"[report] {path} {fact}, want a file that can be written")


def render(result: Result) -> str:
    """The page."""
    trace = getattr(result, "trace", None)
    if trace is None:
        raise InvalidArgument(f"[report] {type(result).__name__} without a trace, want a Result of generate()")
    stats = result.stats
    name = escape(trace.model)
    when = "Speculation was off:" if stats.speculation == "off" else "Speculation was off in part of the text:"
    off = f'<p class="card off"><b>{when}</b> {escape(stats.reason_off)}</p>' if stats.reason_off else ""
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>swiftk: {name}</title>\n<style>{CSS}</style>\n</head>\n<body>",
            f'<header><h1>{name}</h1>\n<p class="soft">{escape(_summary(result))}</p></header>',
            off,
            f'<div class="tiles">{_tiles(stats)}</div>',
            f'<div class="charts">{"".join(_figures(result, trace, stats))}</div>',
            _card("Text", _text_note(result), _text(result, trace)),
            f'<div class="charts">{"".join(_searches(trace))}</div>',
            _left_out(trace),
            f'<details class="card"><summary>All figures</summary>{_table(stats)}</details>',
            "</body>\n</html>\n",
        ]
    )


def _summary(result: Result) -> str:
    s = result.stats
    plans = [f"{name} ({plan.accepted} of {plan.drafted})" for name, plan in s.plans.items()]
    drafts = f"accepted of what plans drafted: {'; '.join(plans)}" if plans else "no draft plan was used"
    tokens = f"{s.generated_tokens} token" + ("" if s.generated_tokens == 1 else "s")
    read = max((one.round.disk_bytes for one in result.trace.rounds), default=0) / 1e9
    return (
        f"{tokens} after a prompt of {s.prompt_tokens}, {_ENDED[result.finish_reason]}, in {s.total_seconds:.2f} s; "
        f"seed {result.seed}; {drafts}" + (f". A pass read {read:.3g} GB of weights from disk." if read else "")
    )


def _tiles(s: Stats) -> str:
    no_plan, no_plain = _why_no_plan(s), _why_no_plain_step(s)
    whole = "no round that drafted was whole: the text ended inside it" if s.num_spec_steps else no_plan
    return "".join(
        _tile(*one)
        for one in (
            (s.tokens_per_second, ".1f", "tokens/s", ""),
            (s.plain_tokens_per_second, ".1f", "tokens/s in plain steps", no_plain),
            (s.speedup_vs_plain, ".2fx", "speed-up over plain", no_plain),
            (s.mean_generated_length, ".2f", "tokens per pass of the model", ""),
            (s.draft_acceptance_rate if s.num_draft_tokens else None, ".0%", "of drafted tokens accepted", no_plan),
            (s.draft_cost, ".2f", "a draft step, in plain steps", no_plan or no_plain),
            (s.forecast_speedup, ".2fx", "forecast from these three", no_plain or whole),
        )
    )


def _tile(value: float | None, form: str, words: str, why: str) -> str:
    """why: it is empty where it is."""
    if value is None:
        return f'<div class="card"><b>–</b><span>{words}</span><small>{escape(why)}</small></div>'
    shown = f"{value:{form.removesuffix('x')}}" + ("x" if form.endswith("x") else "")
    return f'<div class="card"><b>{shown}</b><span>{words}</span></div>'


def _why_no_plan(s: Stats) -> str:
    """Why there are no figures of a draft plan; "": there are."""
    if s.num_draft_tokens:
        return ""
    if s.num_steps == 0:
        return _SHORT
    if s.proposed_by:
        return f"no draft plan was used: {' and '.join(s.proposed_by)} drafted, without a step"
    return "nothing was drafted"


def _why_no_plain_step(s: Stats) -> str:
    if s.plain_tokens_per_second is not None and s.speedup_vs_plain is not None:
        return ""
    return _SHORT if s.num_steps == 0 else "no plain step was measured: every round drafted"


def _card(heading: str, note: str, body: str) -> str:
    return f'<figure class="card"><h2>{escape(heading)}</h2><figcaption>{note}</figcaption>{body}</figure>'


def _text_note(result: Result) -> str:
    drafted = sum(result.drafted)
    note = f"{drafted} of {len(result.tokens)} tokens were drafted and verified. Hovering over a token says more."
    note += "" if result.text else " There is no text, so these are token ids."
    return note + ("" if result.logprobs is not None else " Logprobs were not asked for (logprobs=0 shows them).")


def _text(result: Result, trace: Trace) -> str:
    spans = []
    for i, (turn, kind) in enumerate(charts.origins(result, trace)):
        token = result.tokens[i]
        words = trace.texts[i] if result.text else f"{token} "
        hover = f"token {token}, " + (f"round {turn}" if turn else "the prompt's pass")
        if result.drafted[i]:
            plan = trace.rounds[turn - 1].skip if turn and result.sources[i] == "plan" else None
            hover += f", by {result.sources[i]}" + ("" if plan is None else f": {escape(trace.words(plan))}")
        if result.logprobs is not None:
            hover += f", logprob {result.logprobs[i].logprob:.3f}"
        css = kind if words else f"{kind} e"
        spans.append(f'<span class="{css}" title="{hover}">{_visible(words)}</span>')
    return f'{charts.kinds(result, trace)}<div class="text">{"".join(spans)}</div>'


def _visible(words: str) -> str:
    """As text of a page: a parser would make line feeds of carriage returns, and drop NUL."""
    return escape(words, quote=False).replace("\r", "&#13;").replace("\0", "\N{SYMBOL FOR NULL}")


def _figures(result: Result, trace: Trace, stats: Stats) -> Iterator[str]:
    for heading, note, found in (  # of a text of one token there is but the last one
        ("Tokens over time", "By where they came from: the steeper, the faster.", charts.tokens(result, trace, stats)),
        ("Time per round", "A round drafts and verifies; hovering says more.", charts.rounds(trace, stats)),
        ("Where drafts ended", "Rounds that drafted, by how much was accepted, and why no more.", charts.ends(trace)),
        ("Where the time went", "Seconds of the whole text, the prompt included.", charts.breakdown(trace, stats)),
    ):
        if found:
            yield _card(heading, note, found)


def _searches(trace: Trace) -> Iterator[str]:
    """Of sublayers to skip, where there were any."""
    for heading, note, found in (
        ("Layers that the draft skips", "Layer 0 reads the tokens. Hovering names the step.", charts.layers(trace)),
        ("Matchness", "Share of the last tokens that a set would have drafted.", charts.matchness(trace)),
    ):
        if found:
            yield _card(heading, note, found)


def _left_out(trace: Trace) -> str:
    """Which charts are not there, and why."""
    drafted = any(one.round.speculative for one in trace.rounds)
    absent = [
        ("Tokens over time, Time per round", _SHORT, trace.rounds),
        (
            "Where drafts ended",
            "no round that drafted was whole" if drafted else "nothing was drafted",
            charts.ends(trace),
        ),
        ("Layers that the draft skips", "no plan that skips layers drafted", charts.layers(trace)),
        ("Matchness", "no search of layers to skip ran", charts.matchness(trace)),
    ]
    said = "".join(f"<li>{heading}: {why}.</li>" for heading, why, found in absent if not found)
    return f'<div class="card soft absent"><h2>Not shown</h2><ul>{said}</ul></div>' if said else ""


def _table(stats: Stats) -> str:
    rows = (f"<tr><td>{name}</td><td>{_value(value)}</td></tr>" for name, value in stats.to_dict().items())
    return f"<table>{''.join(rows)}</table>"


def _value(value: Any) -> str:
    if value is None:
        return "–"
    return escape(f"{value:.6g}" if isinstance(value, float) else str(value))
