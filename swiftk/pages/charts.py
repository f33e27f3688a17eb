"""The figures of a report: each takes a trace or the sums of a text, and gives SVG with a legend, or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from statistics import median

from ..draft.draft_spec import DraftSpec
from ..running.result import Result
from ..running.stats import Stats
from ..running.trace import Trace, TracedRound
from . import svg

_COLUMNS = 48  # most columns of the layers' grid and of rounds, and dots of sets that were kept
_POINTS = 200  # most rounds that the lines over time go through
_DOTS = 3000  # candidates drawn

KINDS = {  # where a token came from, in the order that they are stacked
    "plan": "drafted by the plan",
    "suffix": "repetition in the text",
    "recycle": "recycled: the model's earlier candidates",
    "source": "another source",
    "bonus": "the model's own, after a draft",
    "plain": "plain",
}
_ENDS = {  # why a round brought no more tokens
    "held": "the whole draft was accepted",
    "refused": "the model wanted another token",
    "source": "sources only, no draft step",
}


def legend(*entries: tuple[str, str]) -> str:
    """(class of the swatch, words) each."""
    items = "".join(f'<span><i class="{css}"></i>{escape(words)}</span>' for css, words in entries)
    return f'<p class="legend">{items}</p>'


def origins(result: Result, trace: Trace) -> Iterator[tuple[int, str]]:
    """(round, kind) of each token; round 0 is the prompt's."""
    yield 0, "plain"
    at = 1
    for i, one in enumerate(trace.rounds):
        for source in result.sources[at : at + one.round.tokens]:
            own = "bonus" if one.round.speculative else "plain"
            yield i + 1, own if source is None else source if source in KINDS else "source"
        at += one.round.tokens


def kinds(result: Result, trace: Trace, *more: tuple[str, str]) -> str:
    """The legend of tokens, with how many there are of each kind."""
    found = Counter(kind for _, kind in origins(result, trace))
    return legend(*((kind, f"{words} ({found[kind]})") for kind, words in KINDS.items() if found[kind]), *more)


def tokens(result: Result, trace: Trace, stats: Stats) -> str | None:
    """Tokens over time, stacked by where they came from: how steep they rise is the speed, beside plain decoding's."""
    ends = [(0.0, 1)]  # (seconds, tokens) after each round; the first token is the prompt's
    for one in trace.rounds:
        ends.append((one.clock, ends[-1][1] + one.round.tokens))
    seconds, total = ends[-1]
    if seconds <= 0:
        return None
    ends = svg.thinned(ends, _POINTS)
    found = [kind for _, kind in origins(result, trace)]
    levels = [Counter(found[:n]) for _, n in ends]
    plain = 1 + seconds * (stats.plain_tokens_per_second or 0)
    axes = svg.Axes((0, seconds), (0, 1.04 * max(total, plain)))
    body = axes.draw("seconds since the first token", "tokens")
    below = [(at, 0) for at, _ in ends]
    for kind in KINDS:
        above = [(at, n + level[kind]) for (at, n), level in zip(below, levels)]
        body += [axes.area(below, above, kind)] if above != below else []
        below = above
    if not stats.plain_tokens_per_second:
        return svg.svg("Tokens over time", axes.height, body) + kinds(result, trace)
    body.append(axes.line([(0, 1), (seconds, plain)], "even"))
    return svg.svg("Tokens over time", axes.height, body) + kinds(result, trace, ("even", "plain decoding"))


def rounds(trace: Trace, stats: Stats) -> str | None:
    """What a round takes: waiting for the disk, drafting, verifying and the rest, beside a plain step."""
    each = -(-len(trace.rounds) // _COLUMNS) or 1
    groups = [trace.rounds[i : i + each] for i in range(0, len(trace.rounds), each)]
    if not groups:
        return None
    means = [_means(group) for group in groups]
    totals = [1e3 * mean["seconds"] for mean in means]
    plain = 1e3 / stats.plain_tokens_per_second if stats.plain_tokens_per_second else 0.0
    top = max(plain, min(max(totals), 2.5 * median(totals)))  # of a round that the machine held up, what fits
    axes = svg.Axes((0.5, each * len(groups) + 0.5), (0, 1.08 * top))
    body = axes.draw("round", "milliseconds", whole="x")
    for i, (group, mean, total) in enumerate(zip(groups, means, totals)):
        x, bars, low = (0.5 + i * each, 0.5 + (i + 1) * each), "", 0.0
        for kind, seconds in zip(("disk", "verify", "draft"), _apart(mean)):
            high = low + 1e3 * seconds
            bars += axes.bar(x, (low, high), kind) if high > low else ""
            low = high
        bars += axes.bar(x, (low, max(total, low)), "other")
        body.append(f"<g>{svg.title(_words(i * each + 1, group, mean))}{bars}</g>")
    entries = [("draft", "drafting"), ("verify", "verifying, or a plain step"), ("other", "the rest")]
    if any(mean["disk_bytes"] for mean in means):
        entries.insert(0, ("disk", "reading weights from disk"))
    if plain:
        body.append(axes.rule(plain, "even"))
        entries.append(("even", "a plain step"))
    return svg.svg("Time per round", axes.height, body) + legend(*entries)


def _means(group: Sequence[TracedRound]) -> dict[str, float]:
    """Of what a round was, by name."""
    counted = ("seconds", "draft_seconds", "verify_seconds", "draft_steps", "verify_rows", "tokens")
    counted += ("disk_seconds", "disk_bytes")
    return {name: sum(getattr(one.round, name) for one in group) / len(group) for name in counted}


def _apart(its: Mapping[str, float]) -> tuple[float, float, float]:
    """Seconds of (waiting for the disk, verifying, drafting), where each of the latter has the waiting in it. Drafts by
    a copy of the weights wait for nothing, so that verifying has what it can of it."""
    verify, draft = its["verify_seconds"], its["draft_seconds"]
    disk = min(its["disk_seconds"], verify + draft)
    return disk, max(0.0, verify - disk), draft - max(0.0, disk - verify)


def _words(first: int, group: Sequence[TracedRound], mean: dict[str, float]) -> str:
    where = f"round {first}" if len(group) == 1 else f"rounds {first} to {first + len(group) - 1}, in the mean"
    gigabytes = mean["disk_bytes"] / 1e9
    read = (
        f", of which {1e3 * mean['disk_seconds']:.3g} ms waiting for {gigabytes:.3g} GB from disk "
        f"({gigabytes / mean['seconds']:.3g} GB/s)"
        if gigabytes
        else ""
    )
    figures = (
        f"{where}: tokens {mean['tokens']:.3g}, draft steps {mean['draft_steps']:.3g} in "
        f"{1e3 * mean['draft_seconds']:.3g} ms, verified rows {mean['verify_rows']:.3g} in "
        f"{1e3 * mean['verify_seconds']:.3g} ms, in all {1e3 * mean['seconds']:.3g} ms{read}"
    )
    return "\n".join([figures, *(one.why for one in group if one.why and len(group) == 1)])


def ends(trace: Trace) -> str | None:
    """Where drafts ended: rounds by how many tokens were accepted, and why it were no more."""
    drafts = [one.round for one in trace.rounds if one.round.speculative and not one.round.cut]
    if not drafts:
        return None
    found = Counter((r.accepted, _end(r.drafted, r.accepted - r.proposed)) for r in drafts)
    most = max(r.accepted for r in drafts)
    highest = max(Counter(r.accepted for r in drafts).values())
    axes = svg.Axes((-0.5, most + 0.5), (0, 1.05 * highest))
    body = axes.draw("tokens accepted in a round", "rounds", whole="xy")
    for accepted in range(most + 1):
        y = 0
        for why, words in _ENDS.items():
            n = found[accepted, why]
            if n:
                bar = axes.bar((accepted - 0.5, accepted + 0.5), (y, y + n), why)
                body.append(f"<g>{svg.title(f'{n} of {len(drafts)} rounds: {accepted} accepted, {words}')}{bar}</g>")
            y += n
    shown = {why for _, why in found}
    return svg.svg("Where drafts ended", axes.height, body) + legend(*(e for e in _ENDS.items() if e[0] in shown))


def _end(drafted: int, accepted: int) -> str:
    """Of places that the plan drafted, and tokens of its that were accepted."""
    return "source" if drafted == 0 else "held" if accepted >= drafted else "refused"


def matchness(trace: Trace) -> str | None:
    """What the optimizer tried, and what it kept."""
    found = trace.candidates
    if not found:
        return None
    end = max([c.tokens for c in found] + [0 if trace.earlier else len(trace.texts)])
    kept = [c for c in found if c.kept]
    axes = svg.Axes((0, end), (0, 1))
    where = "tokens generated, earlier texts included" if trace.earlier else "tokens generated"
    body = axes.draw(where, "matchness (share of tokens)", whole="x")
    if 0 < trace.earlier < len(found):
        x = svg.number(axes.at(found[trace.earlier].tokens, 0)[0])
        body.append(f'<path class="even" d="M{x} {svg.TOP}V{svg.number(axes.bottom)}"/>')
        body.append(svg.text(float(x) + 4, svg.TOP + 10, "this text", anchor="start"))
    body.append(axes.dots([(c.tokens, c.matchness) for c in svg.thinned(found, _DOTS)], "tried"))
    if kept:
        points = [(c.tokens, c.matchness) for c in kept]
        body.append(axes.line([*points, (end, points[-1][1])], "kept", steps=True))
        body += [_kept_dot(axes, c) for c in svg.thinned(kept, _COLUMNS)]
    return svg.svg("Matchness of candidates", axes.height, body) + legend(
        ("tried", f"candidates ({len(found)})"), ("kept", f"kept ({len(kept)})")
    )


def _kept_dot(axes: svg.Axes, c) -> str:
    worth = "" if c.rate is None else f", {c.rate:.2f} tokens per plain step"
    words = f"token {c.tokens}: {c.kind}, matchness {c.matchness:.2f}{worth}; skips {c.skip}"
    return f"<g>{svg.title(words)}{axes.dots([(c.tokens, c.matchness)], 'kept')}</g>"


def kept_sets(trace: Trace) -> list[tuple[str, DraftSpec]]:
    """What drafted, change by change, with words for each: the optimizer's kept sets; without any, the rounds'. Empty
    where nothing was ever skipped."""
    found: list[tuple[str, DraftSpec]] = []
    for step, c in enumerate(trace.candidates):
        if c.kept and (not found or found[-1][1] != c.skip):
            found.append((f"step {step + 1} ({c.kind}), token {c.tokens}, matchness {c.matchness:.2f}", c.skip))
    at = 1
    for one in trace.rounds if not found else ():
        if one.skip is not None and (not found or found[-1][1] != one.skip):
            found.append((f"from token {at}", one.skip))
        at += one.round.tokens
    return found if any(skip.skipped(trace.layers) for _, skip in found) else []


def layers(trace: Trace) -> str | None:
    """SWIFT's figures of skipped layers: a column per change of the set, a row per sublayer, filled where skipped."""
    sets = kept_sets(trace)
    found = svg.thinned(list(enumerate(sets, 1)), _COLUMNS)
    n = trace.layers
    if not found or n == 0:
        return None
    row = min(10.0, max(3.0, 240 / n))
    column = min(24.0, (svg.WIDTH - svg.LEFT - svg.RIGHT) / len(found))
    width, gap = column * len(found), 14
    tops = {"attn": 20.0, "mlp": 20 + n * row + gap + 12}
    height = tops["mlp"] + n * row + 36
    body = []
    for block, words in (("attn", "attention"), ("mlp", "MLP")):
        top = tops[block]
        body.append(svg.text(svg.LEFT, top - 6, words, "label", "start"))
        size = f'width="{svg.number(width)}" height="{svg.number(n * row)}"'
        body.append(f'<rect class="runs" x="{svg.LEFT}" y="{svg.number(top)}" {size}/>')
        marked = range(0, n, max(1, round(n / 8)))
        body += [svg.text(svg.LEFT - 6, top + (i + 0.5) * row + 4, str(i), anchor="end") for i in marked]
    for i, (_, (words, skip)) in enumerate(found):
        body.append(_column(svg.LEFT + i * column, column, row, n, tops, words, skip))
    marked = range(0, len(found), -(-len(found) // 12))
    body += [svg.text(svg.LEFT + (i + 0.5) * column, height - 22, str(found[i][0])) for i in marked]
    shown = "" if len(found) == len(sets) else f" ({len(found)} of {len(sets)} shown)"
    body.append(svg.text(svg.LEFT, height - 4, "changes of the set, in order" + shown, "label", "start"))
    entries = [("skip", "skipped"), ("runs", "runs")]
    if any(skip.exit_layer is not None for _, skip in sets):
        entries.insert(1, ("exit", "after the exit layer"))
    return svg.svg("Skipped layers", height, body) + legend(*entries)


def _column(x: float, wide: float, row: float, n: int, tops: dict[str, float], words: str, skip: DraftSpec) -> str:
    """One set: a path for what is skipped, one for what lies after the exit. A cell is a closed square from M."""
    end = n if skip.exit_layer is None else min(skip.exit_layer, n)
    cells = {"skip": "", "exit": ""}
    w, h = svg.number(max(wide - 1, wide * 0.8)), svg.number(max(row - 1, row * 0.8))
    for block, top in tops.items():
        for layer in range(n):
            kind = "exit" if layer >= end else "skip" if layer in getattr(skip, block) else ""
            if kind:
                cells[kind] += f"M{x:.2f} {top + layer * row:.2f}h{w}v{h}h-{w}z"
    paths = "".join(f'<path class="{kind}" d="{path}"/>' for kind, path in cells.items() if path)
    return f'<g class="set">{svg.title(f"{words}: {skip.skipped(n)} of {2 * n} sublayers")}{paths}</g>'


def parts(trace: Trace, stats: Stats) -> list[tuple[str, float, str]]:
    """(name, seconds, what it is) of a text's time, together its total. `other` is what the rest leaves of it:
    other_seconds would count the optimizer once more."""
    waited = sum(one.round.disk_seconds for one in trace.rounds)
    rounds = {"verify_seconds": stats.verify_seconds, "draft_seconds": stats.draft_seconds, "disk_seconds": waited}
    disk, verify, draft = _apart(rounds)
    prompt = min(max(0.0, stats.disk_seconds - waited), stats.prefill_seconds)
    named = [
        ("prefill", stats.prefill_seconds - prompt, "the prompt's pass and the first token"),
        ("disk", prompt + disk, "passes that waited for weights from disk"),
        ("draft", draft, "draft steps"),
        ("verify", verify, "passes of the whole model, plain steps included"),
        ("commit", stats.commit_seconds, "moving accepted siblings"),
        ("optimizer", stats.optimizer_seconds, "choosing what to skip"),
    ]
    left = stats.total_seconds - sum(seconds for _, seconds, _ in named)
    return [*named, ("other", max(0.0, left), "text, stop conditions, Python")]


def breakdown(trace: Trace, stats: Stats) -> str | None:
    """One bar, and a table of the same."""
    found = [one for one in parts(trace, stats) if one[1] > 0]
    total = sum(seconds for _, seconds, _ in found)
    if not found:
        return None
    bar = "".join(f'<i class="{name}" style="width: {seconds / total:.2%}"></i>' for name, seconds, _ in found)
    rows = "".join(
        f'<tr><td><i class="{name}"></i>{name}<small>{what}</small></td><td>{seconds:.4f} s</td>'
        f"<td>{seconds / total:.1%}</td></tr>"
        for name, seconds, what in found
    )
    sums = f"<tr><td>total</td><td>{total:.4f} s</td><td>100%</td></tr>"
    return f'<div class="bar">{bar}</div><table class="phases">{rows}{sums}</table>'
