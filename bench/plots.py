"""Pictures of rows, one look for all. A panel is a function that draws rows on an axis."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Rows = Sequence[Mapping[str, Any]]
Panel = Callable[[Any, Rows], None]
_BY_WAY = {  # the same in all
    "auto": "#0072b2",
    "swift": "#d55e00",
    "swift (paper)": "#e69f00",
    "self-sd": "#009e73",
    "uniform": "#999999",
}
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")  # told apart by everyone
_STYLE = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}


def draw(
    path: Path, rows: Rows, panels: Sequence[Panel], width: float = 9.0, height: float = 3.4, **shape: Any
) -> None:
    """The panels side by side, where matplotlib is installed."""
    try:
        import matplotlib
    except ImportError:
        print("no picture: matplotlib is not installed (pip install '.[bench]')", file=sys.stderr)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot
    from PIL import Image

    with pyplot.rc_context({**_STYLE, "axes.prop_cycle": pyplot.cycler(color=_COLOURS)}):
        figure, axes = pyplot.subplots(1, len(panels), figsize=(width, height), squeeze=False, **shape)
        for axis, panel in zip(axes[0], panels):
            panel(axis, rows)
        figure.savefig(path, dpi=110)
        pyplot.close(figure)
    with Image.open(path) as drawn:  # 64 colours, rare ones among them: a third of the bytes, and no difference to see
        small = drawn.convert("RGB").quantize(64, Image.Quantize.MAXCOVERAGE)
    small.save(path, optimize=True)


def _names(rows: Rows, key: str) -> list[Any]:
    return list(dict.fromkeys(row[key] for row in rows))


def _with(rows: Rows, *keys: str, plain: bool = False, **of: Any) -> list[Mapping[str, Any]]:
    """Rows that have the keys, and of them what `of` says; those of plain decoding if asked for."""
    chosen = [row for row in rows if None not in map(row.get, keys) and all(row.get(k) == v for k, v in of.items())]
    return [row for row in chosen if plain or row.get("way") != "plain"]


def _break_even(axis: Any, at: float = 1.0) -> None:
    """The line below which plain decoding is faster."""
    axis.axhline(at, color="#222222", linewidth=0.8, zorder=1)


def heat(
    title: str,
    key: str = "speedup",
    across: str = "part",
    down: str = "way",
    between: tuple[float, float] | None = (0, 2),  # of speed-ups: blue is faster than plain decoding, red slower
    **of: Any,
) -> Panel:
    """A table whose cells are coloured; the best of a column is bold."""

    def panel(axis: Any, rows: Rows) -> None:
        rows = _with(rows, key, down, across, **of)
        columns, lines = _names(rows, across), _names(rows, down)
        found = {(row[down], row[across]): row[key] for row in rows}
        values = [[found.get((line, column), float("nan")) for column in columns] for line in lines]
        low, high = between or (min(found.values()), max(found.values()))
        drawn = axis.imshow(values, aspect="auto", cmap="RdBu" if between else "Blues", vmin=low, vmax=high)
        for y, row in enumerate(values):
            for x, value in enumerate(row):
                colour = "#222222" if sum(drawn.cmap(drawn.norm(value))[:3]) > 1.5 else "white"
                best = value == max(v for (_, column), v in found.items() if column == columns[x])
                weight = "bold" if best else "normal"
                axis.text(x, y, f"{value:.2f}", ha="center", va="center", color=colour, weight=weight, fontsize=8)
        axis.set_xticks(range(len(columns)), columns, rotation=30, ha="right", rotation_mode="anchor")
        axis.set_yticks(range(len(lines)), lines)
        axis.grid(visible=False)
        axis.set_title(title)

    return panel


def lines(
    title: str,
    key: str,
    over: str,
    by: str,
    even: float | None = None,
    label: str = "",
    within: tuple[str, str] | None = None,
    **of: Any,
) -> Panel:
    """A value over a key whose values stand at equal distances, a line for each value of another key; within: the keys
    of the ends of a bar through each point."""

    def panel(axis: Any, rows: Rows) -> None:
        rows = _with(rows, key, over, by, **of)
        places = _names(rows, over)
        for name in _names(rows, by):
            some = [row for row in rows if row[by] == name]
            at = [places.index(row[over]) for row in some]
            values, look = [row[key] for row in some], {"color": _BY_WAY.get(name), "label": name}
            (drawn,) = axis.plot(at, values, "o-", markersize=4, **look)
            if within:
                low, high = ([row[end] for row in some] for end in within)
                axis.vlines(at, low, high, color=drawn.get_color(), linewidth=1)
        axis.set_xticks(range(len(places)), places)
        axis.set_title(title)
        axis.set_xlabel(label)
        axis.legend(fontsize=8)
        if even is not None:
            _break_even(axis, even)

    return panel


def bars(title: str, key: str, label: str = "way", mark: str | None = None, **of: Any) -> Panel:
    """A bar for each row; mark: the key of a value to lay a diamond on."""

    def panel(axis: Any, rows: Rows) -> None:
        rows = _with(rows, key, label, **of)
        names = [row[label] for row in rows]
        drawn = axis.barh(names, [row[key] for row in rows], 0.6, color=[_BY_WAY.get(n, _COLOURS[0]) for n in names])
        axis.bar_label(drawn, fmt="%.3g", padding=2, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5})
        axis.margins(x=0.15)
        if mark:
            axis.plot([row.get(mark) for row in rows], names, "D", markersize=4, color="#222222")
        axis.locator_params(axis="x", nbins=3)
        axis.set_title(title)
        axis.set_ylim(len(rows) - 0.5, -0.5)
        axis.grid(axis="y", visible=False)

    return panel


def series(title: str, key: str, by: str = "way", even: float | None = None, label: str = "text", **of: Any) -> Panel:
    """Rows' lists over their index."""

    def panel(axis: Any, rows: Rows) -> None:
        for row in _with(rows, key, by, **of):
            values = [float("nan") if value is None else value for value in row[key]]
            axis.plot(values, "o-", markersize=3, color=_BY_WAY.get(row[by]), label=row[by])
        axis.set_title(title)
        axis.set_xlabel(label)
        axis.axhline(0, alpha=0)  # in sight, and so is what axes that share the scale have on top
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.legend(fontsize=8)
        if even is not None:
            _break_even(axis, even)

    return panel
