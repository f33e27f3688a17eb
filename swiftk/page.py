"""One HTML page about one text: figures, the text by where its tokens came from, charts. No network, no script."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from . import charts
from .errors import InvalidArgument
from .page_style import CSS
from .result import Result
from .stats import Stats
from .trace import Trace

_KINDS = {
    "d": "drafted",
    "s": "guessed: the text repeats itself",
    "r": "guessed: the model listed it here before",
    "g": "guessed otherwise",
    "b": "bonus: the whole model's own token behind a draft",
    "p": "plain",
}
_BY_SOURCE = {"plan": "d", "suffix": "s", "recycle": "r"}


def report(result: Result, path: str | Path) -> Path:
    """Writes what happened as one HTML page that needs nothing else: the text by where each token came from, the layers
    skipped, speed and time. Returns its path."""
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
    trace, stats = result.trace, result.stats
    if trace is None:
        raise InvalidArgument("[report] this result has no trace, want one that generate() returned")
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
            _card("Text", _text_note(result), _text(result, trace)),
            f'<div class="charts">{"".join(_figures(trace, stats))}</div>',
            f'<details class="card"><summary>All figures</summary>{_table(stats)}</details>',
            "</body>\n</html>\n",
        ]
    )


def _summary(result: Result) -> str:
    s = result.stats
    ended = {"stop": "ended by a stop token or string", "length": "ended by its length"}[result.finish_reason]
    drafts = f"skip set: {s.skip}" if s.skip else "no skip set"
    tokens = f"{s.generated_tokens} token" + ("" if s.generated_tokens == 1 else "s")
    return (
        f"{tokens} behind a prompt of {s.prompt_tokens}, {ended}, in {s.total_seconds:.2f} s; "
        f"seed {result.seed}; {drafts}"
    )


def _tiles(s: Stats) -> str:
    times = s.total_seconds or 1.0
    figures = [
        (_figure(s.tokens_per_second, ".1f"), "tokens/s"),
        (_figure(s.plain_tokens_per_second, ".1f"), "tokens/s in plain steps"),
        (_figure(s.speedup_vs_plain, ".2f", "x"), "speed-up over plain"),
        (_figure(s.forecast_speedup, ".2f", "x"), "forecast from M and c"),
        (_figure(s.mean_generated_length, ".2f"), "M: tokens per target pass"),
        (_figure(s.draft_acceptance_rate if s.num_draft_tokens else None, ".0%"), "alpha: draft tokens accepted"),
        (_figure(s.draft_cost, ".2f"), "c: a draft step in plain steps"),
        (_figure(s.draft_seconds / times, ".0%"), "of the time in drafting"),
        (_figure(s.reused_step_share if s.num_spec_steps else None, ".0%"), "of verifying taken over from drafting"),
    ]
    return "".join(f'<div class="card"><b>{value}</b><span>{words}</span></div>' for value, words in figures)


def _figure(value: float | None, form: str, unit: str = "") -> str:
    return "–" if value is None else f"{value:{form}}{unit}"


def _card(heading: str, note: str, body: str) -> str:
    return f'<figure class="card"><h2>{escape(heading)}</h2><figcaption>{note}</figcaption>{body}</figure>'


def _text_note(result: Result) -> str:
    drafted = sum(result.drafted)
    note = f"{drafted} of {len(result.tokens)} tokens were drafted and verified. Hovering over a token says more."
    return note + ("" if result.text else " There is no text, so these are token ids.")


def origins(result: Result, trace: Trace) -> Iterator[tuple[int, str]]:
    """(round, kind) of each token; round 0 is the prompt's."""
    yield 0, "p"
    at = 1
    for i, one in enumerate(trace.rounds):
        for source in result.sources[at : at + one.round.tokens]:
            own = "b" if one.round.speculative else "p"
            yield i + 1, own if source is None else _BY_SOURCE.get(source, "g")
        at += one.round.tokens


def _text(result: Result, trace: Trace) -> str:
    spans = []
    for i, (turn, kind) in enumerate(origins(result, trace)):
        token = result.tokens[i]
        words = trace.texts[i] if result.text else f"{token} "
        hover = f"token {token}, " + (f"round {turn}" if turn else "the prompt's pass")
        if kind in "srg":
            hover += f", by {result.sources[i]}"
        if result.logprobs is not None:
            hover += f", logprob {result.logprobs[i].logprob:.3f}"
        css = kind if words else f"{kind} e"
        spans.append(f'<span class="{css}" title="{hover}">{_visible(words)}</span>')
    shown = {kind for _, kind in origins(result, trace)} | {"d", "b", "p"}
    keys = charts.legend(*((f"k-{kind}", what) for kind, what in _KINDS.items() if kind in shown))
    return f'{keys}<div class="text">{"".join(spans)}</div>'


def _visible(words: str) -> str:
    """As text of a page: a parser would make line feeds of carriage returns, and drop NUL."""
    return escape(words, quote=False).replace("\r", "&#13;").replace("\0", "\N{SYMBOL FOR NULL}")


def _figures(trace: Trace, stats: Stats) -> Iterator[str]:
    rate = charts.rate(trace, stats)
    if rate:
        note = "Tokens behind the first one over the time since, the optimizer's included."
        yield _card(rate[0], note, rate[1])
    found = charts.breakdown(stats)
    if found:
        yield _card("Where the time went", "Seconds of the whole text, the prompt included.", found)
    found = charts.histogram(stats)
    if found:
        yield _card("Accepted draft tokens", "Rounds by how much of their draft held.", found)
    found = charts.layers(trace)
    if found:
        yield _card("Layers that the draft skips", "Layer 0 reads the tokens. Hovering names the step.", found)
    found = charts.matchness(trace)
    if found:
        note = "Share of the last tokens that a set of skipped layers would have drafted."
        yield _card("Matchness", note, found)


def _table(stats: Stats) -> str:
    rows = (f"<tr><td>{name}</td><td>{_value(value)}</td></tr>" for name, value in stats.to_dict().items())
    return f"<table>{''.join(rows)}</table>"


def _value(value: Any) -> str:
    if value is None:
        return "–"
    return escape(f"{value:.6g}" if isinstance(value, float) else str(value))
