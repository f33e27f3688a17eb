"""The figures of a report: each takes a trace or the sums of a text, and gives SVG with a legend, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from . import svg
from .skip import SkipSet
from .stats import Stats
from .trace import Trace

_WINDOW = 64  # tokens of the speed-up "lately"
_COLUMNS = 48  # most columns of the layers' grid, and dots of sets that were kept
_DOTS = 3000  # candidates drawn


def legend(*entries: tuple[str, str]) -> str:
    """(class of the swatch, words) each."""
    items = "".join(f'<span><i class="{css}"></i>{escape(words)}</span>' for css, words in entries)
    return f'<p class="legend">{items}</p>'


def rate(trace: Trace, stats: Stats) -> tuple[str, str] | None:
    """(heading, figure): speed-up by tokens generated, or tokens/s where a plain step's price is unknown."""
    points = [(1, 0.0)]  # (tokens, seconds) behind each round; the first token is the prompt's
    for one in trace.rounds:
        points.append((points[-1][0] + one.round.tokens, one.clock))
    points = [p for i, p in enumerate(points) if i == 0 or p[1] > 0]
    if len(points) < 2:
        return None
    known = stats.plain_tokens_per_second
    unit = known or 1.0
    overall = [(n, (n - 1) / seconds / unit) for n, seconds in points[1:]]
    lately = _lately(points, unit)
    settled = [y for n, y in overall if n >= min(16, points[-1][0])] + [y for _, y in lately]
    settled += [1.0] if known else []
    low = 0.5 if known and min(settled) > 0.55 else 0.0  # a ratio has no zero that its height is measured from
    axes = svg.Axes((0, points[-1][0]), (low, low + 1.08 * (max(settled) - low)))
    y = "speed-up over plain (x)" if known else "tokens/s"
    body = axes.draw("tokens generated", y, whole=True)
    body += [axes.rule(1.0, "even")] if known else []
    body += [axes.line(lately, "lately")] if lately else []
    body += [axes.line(overall, "overall"), axes.dots(overall[-1:], "overall")]
    heading = "Speed-up over the text" if known else "Tokens per second over the text"
    entries = [("k-draft", "overall"), ("k-tried", f"last {_WINDOW} tokens"), ("k-even", "plain decoding")]
    shown = [True, bool(lately), bool(known)]
    return heading, svg.svg(heading, axes.height, body) + legend(*(e for e, on in zip(entries, shown) if on))


def _lately(points: Sequence[tuple[int, float]], unit: float) -> list[svg.Point]:
    """The same over the last tokens alone, from where there are enough."""
    found, begin = [], 0
    for n, seconds in points:
        while n - points[begin + 1][0] >= _WINDOW:  # ends at this round itself
            begin += 1
        first, since = points[begin]
        if n - first >= _WINDOW and seconds > since:
            found.append((n, (n - first) / (seconds - since) / unit))
    return found


def matchness(trace: Trace) -> str | None:
    """What the optimizer tried, and what it kept."""
    found = trace.candidates
    if not found:
        return None
    end = max([c.tokens for c in found] + [0 if trace.earlier else len(trace.texts)])
    kept = [c for c in found if c.kept]
    axes = svg.Axes((0, end), (0, 1))
    where = "tokens generated, earlier texts included" if trace.earlier else "tokens generated"
    body = axes.draw(where, "matchness (share of tokens)", whole=True)
    if 0 < trace.earlier < len(found):
        x = svg.number(axes.at(found[trace.earlier].tokens, 0)[0])
        body.append(f'<path class="even" d="M{x} {svg.TOP}V{svg.number(axes.bottom)}"/>')
        body.append(svg.text(float(x) + 4, svg.TOP + 10, "this text", anchor="start"))
    body.append(axes.dots([(c.tokens, c.matchness) for c in svg.thinned(found, _DOTS)], "tried"))
    if kept:
        points = [(c.tokens, c.matchness) for c in kept]
        body.append(axes.line([*points, (end, points[-1][1])], "overall", steps=True))
        body += [_kept_dot(axes, c) for c in svg.thinned(kept, _COLUMNS)]
    return svg.svg("Matchness of candidates", axes.height, body) + legend(
        ("k-tried", f"candidates ({len(found)})"), ("k-draft", f"kept ({len(kept)})")
    )


def _kept_dot(axes: svg.Axes, c) -> str:
    worth = "" if c.rate is None else f", {c.rate:.2f} tokens per plain step"
    words = f"token {c.tokens}: {c.kind}, matchness {c.matchness:.2f}{worth}; skips {c.skip}"
    return f"<g>{svg.title(words)}{axes.dots([(c.tokens, c.matchness)], 'overall')}</g>"


def kept_sets(trace: Trace) -> list[tuple[str, SkipSet]]:
    """What drafted, change by change, with words for each: the optimizer's kept sets; without any, the rounds'."""
    found: list[tuple[str, SkipSet]] = []
    for step, c in enumerate(trace.candidates):
        if c.kept and (not found or found[-1][1] != c.skip):
            found.append((f"step {step + 1} ({c.kind}), token {c.tokens}, matchness {c.matchness:.2f}", c.skip))
    if found:
        return found
    at = 1
    for one in trace.rounds:
        if one.skip is not None and (not found or found[-1][1] != one.skip):
            found.append((f"from token {at}", one.skip))
        at += one.round.tokens
    return found


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
    entries = [("k-skip", "skipped"), ("k-runs", "runs")]
    if any(skip.exit_layer is not None for _, skip in sets):
        entries.insert(1, ("k-exit", "behind the exit layer"))
    return svg.svg("Skipped layers", height, body) + legend(*entries)


def _column(x: float, wide: float, row: float, n: int, tops: dict[str, float], words: str, skip: SkipSet) -> str:
    """One set: a path for what is skipped, one for what lies behind the exit. A cell is a closed square from M."""
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


def parts(stats: Stats) -> list[tuple[str, float, str]]:
    """(name, seconds, what it is) of a text's time, together its total. `other` is what the rest leaves of it:
    other_seconds would count the optimizer once more."""
    named = [
        ("prefill", stats.prefill_seconds, "the prompt's pass and the first token"),
        ("draft", stats.draft_seconds, "steps of the thinned model"),
        ("verify", stats.verify_seconds, "passes of the whole model"),
        ("commit", stats.commit_seconds, "moving accepted siblings"),
        ("optimizer", stats.optimizer_seconds, "choosing what to skip"),
    ]
    left = stats.total_seconds - sum(seconds for _, seconds, _ in named)
    return [*named, ("other", max(0.0, left), "text, stop conditions, Python")]


def breakdown(stats: Stats) -> str | None:
    """One bar, and a table of the same."""
    found = parts(stats)
    total = sum(seconds for _, seconds, _ in found)
    if total <= 0:
        return None
    x, bars, rows = 0.0, "", ""
    for name, seconds, what in found:
        wide = seconds / total * svg.WIDTH
        share = f"{seconds / total:.1%}"
        if wide > 0.2:
            size = f'width="{max(wide - 1.5, 0.2):.2f}" height="34"'
            hover = svg.title(f"{name}: {seconds:.4g} s, {share}")
            bars += f'<rect class="k-{name}" x="{x:.2f}" y="2" {size}>{hover}</rect>'
        if wide > 80:
            bars += svg.text(x + wide / 2, 24, f"{name} {seconds / total:.0%}", "on")
        x += wide
        rows += (
            f'<tr><td><i class="k-{name}"></i>{name}<small>{what}</small></td>'
            f"<td>{seconds:.4f} s</td><td>{share}</td></tr>"
        )
    picture = svg.svg("Seconds by phase", 38, [bars])
    return f'{picture}<table class="phases">{rows}<tr><td>total</td><td>{total:.4f} s</td><td>100%</td></tr></table>'


def histogram(stats: Stats) -> str | None:
    """How many draft tokens held, by rounds that drafted."""
    counts = stats.acceptance_histogram
    if not counts:
        return None
    axes = svg.Axes((-0.5, len(counts) - 0.5), (0, 1.05 * max(counts)))
    body = axes.draw("draft tokens accepted in a round", "rounds", whole=True)
    for i, count in enumerate(counts):
        left, right = axes.at(i - 0.5, 0)[0], axes.at(i + 0.5, 0)[0]
        top = axes.at(0, count)[1]
        wide = min(right - left - 2, 40.0)
        size = f'width="{svg.number(max(wide, 1))}" height="{svg.number(axes.bottom - top)}"'
        at = f'x="{svg.number((left + right - wide) / 2)}" y="{svg.number(top)}"'
        if count:
            body.append(f'<rect class="k-draft" {at} {size}>{svg.title(f"{i} accepted: {count} rounds")}</rect>')
    return svg.svg("Acceptance histogram", axes.height, body)
