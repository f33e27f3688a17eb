"""Axes, lines and bars as inline SVG text; classes are coloured by the page's style sheet (page_style.py)."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import floor, isfinite, log10

Point = tuple[float, float]
WIDTH = 400  # every figure's, in its own units: fewer pixels on a phone, more on a desk
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 42  # margins for the axes' words
_POINTS = 600  # most points of a line: more would not be seen


def number(x: float) -> str:
    """A coordinate, short."""
    return f"{x:.1f}".removesuffix(".0")


def thinned(items: Sequence, most: int) -> list:
    """At most that many, evenly, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[i * (len(items) - 1) // (most - 1)] for i in range(most)]


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from low to high."""
    raw = max(high - low, 1e-9) / about
    unit = 10.0 ** floor(log10(raw))
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= raw * 0.999)
    first = -(-low // step)
    return [(first + i) * step for i in range(int((high - first * step) / step + 1e-6) + 1)]


def svg(label: str, height: float, body: Sequence[str]) -> str:
    """A picture as wide as its column."""
    inside = "".join(body)
    return f'<svg viewBox="0 0 {WIDTH} {number(height)}" role="img" aria-label="{escape(label)}">{inside}</svg>'


def text(x: float, y: float, words: str, css: str = "", anchor: str = "middle") -> str:
    style = f' class="{css}"' if css else ""
    return f'<text x="{number(x)}" y="{number(y)}" text-anchor="{anchor}"{style}>{escape(words)}</text>'


def title(words: str) -> str:
    """What hovering shows."""
    return f"<title>{escape(words)}</title>"


class Axes:
    """A plot's area with round ticks, and where values lie in it."""

    def __init__(self, x: Point, y: Point, height: float = 230) -> None:
        self.x, self.y = _spread(x), _spread(y)
        self.height = height
        self.bottom, self.right = height - BOTTOM, WIDTH - RIGHT

    def at(self, x: float, y: float) -> Point:
        """Pixels of a value; what lies outside is put on the border."""
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        across, up = (min(max(v, 0.0), 1.0) if isfinite(v) else 0.0 for v in (across, up))
        return LEFT + across * (self.right - LEFT), self.bottom - up * (self.bottom - TOP)

    def draw(self, x_label: str, y_label: str, whole: str = "") -> list[str]:
        """Grid, ticks and labels. whole: "x" or "xy", what counts something."""
        out = []
        for value in ticks(*self.y):
            if "y" in whole and value != int(value):
                continue
            y = self.at(self.x[0], value)[1]
            out.append(f'<path class="grid" d="M{LEFT} {number(y)}H{self.right}"/>')
            out.append(text(LEFT - 6, y + 4, f"{value:g}", anchor="end"))
        for value in ticks(*self.x, about=6):
            if "x" not in whole or value == int(value):
                out.append(text(self.at(value, 0)[0], self.bottom + 17, f"{value:g}"))
        out.append(f'<path class="axis" d="M{LEFT} {number(self.bottom)}H{self.right}"/>')
        out.append(text((LEFT + self.right) / 2, self.height - 6, x_label, "label"))
        middle = (TOP + self.bottom) / 2
        label = text(0, 0, y_label, "label")
        return [*out, f'<g transform="translate(11 {number(middle)}) rotate(-90)">{label}</g>']

    def line(self, points: Sequence[Point], css: str, steps: bool = False) -> str:
        """A line through values; steps: level until the next one."""
        path = ""
        for i, (x, y) in enumerate(self.at(*p) for p in thinned(points, _POINTS)):
            path += (
                f"M{number(x)} {number(y)}"
                if i == 0
                else f"{f'H{number(x)}V' if steps else f'L{number(x)} '}{number(y)}"
            )
        return f'<path class="line {css}" d="{path}"/>'

    def area(self, below: Sequence[Point], above: Sequence[Point], css: str) -> str:
        """What lies between two lines."""
        path = "L".join(f"{number(x)} {number(y)}" for x, y in (self.at(*p) for p in [*above, *reversed(below)]))
        return f'<path class="{css}" d="M{path}z"/>'

    def bar(self, x: Point, y: Point, css: str) -> str:
        """A rectangle from one value to another, with a gap to the next one where there is room."""
        (left, low), (right, high) = self.at(x[0], y[0]), self.at(x[1], y[1])
        wide = min(right - left - min(2.0, 0.2 * (right - left)), 40.0)
        size = f'width="{number(wide)}" height="{low - high:.2f}"'
        return f'<rect class="{css}" x="{number((left + right - wide) / 2)}" y="{high:.2f}" {size}/>'

    def dots(self, points: Sequence[Point], css: str) -> str:
        """All in one path: zero-length strokes with round ends."""
        path = "".join(f"M{number(x)} {number(y)}h0" for x, y in (self.at(*p) for p in points))
        return f'<path class="dots {css}" d="{path}"/>'

    def rule(self, value: float, css: str) -> str:
        """A level across the plot."""
        return f'<path class="{css}" d="M{LEFT} {number(self.at(self.x[0], value)[1])}H{self.right}"/>'


def _spread(bounds: Point) -> Point:
    """Never empty."""
    low, high = bounds
    return (low, high) if high > low else (low, low + 1)
