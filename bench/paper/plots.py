"""Pictures beside the tables: one look for all, drawn only where matplotlib is installed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BY_WAY = {  # the same in all
    "auto": "#0072b2",
    "swift": "#d55e00",
    "swift (paper)": "#e69f00",
    "self-sd": "#009e73",
    "uniform": "#999999",
}
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")  # told apart by everyone
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


def available() -> bool:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


@contextmanager
def picture(
    path: Path, panels: int = 1, width: float = 7.5, height: float = 3.4, **shape: Any
) -> Iterator[Sequence[Any]]:
    """Axes to draw on, side by side; the file is written at the end."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context({**_STYLE, "axes.prop_cycle": pyplot.cycler(color=COLOURS)}):
        figure, axes = pyplot.subplots(1, panels, figsize=(width, height), squeeze=False, **shape)
        try:
            yield axes[0]
            figure.savefig(path, dpi=110)
            _shrink(path)
        finally:
            pyplot.close(figure)


def _shrink(path: Path) -> None:
    """64 colours: a third of the bytes, and no difference to see."""
    from PIL import Image

    with Image.open(path) as drawn:
        small = drawn.convert("RGB").quantize(64)
    small.save(path, optimize=True)


def heat(
    axis: Any,
    values: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    between: tuple[float, float] = (0, 2),  # of speed-ups: blue is faster than plain decoding, red slower
    colours: str = "RdBu",
) -> None:
    """A table whose cells are coloured; the best of a column is bold."""
    drawn = axis.imshow(values, aspect="auto", cmap=colours, vmin=between[0], vmax=between[1])
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            colour = "#222222" if sum(drawn.cmap(drawn.norm(value))[:3]) > 1.5 else "white"
            weight = "bold" if value == max(other[x] for other in values) else "normal"
            axis.text(x, y, f"{value:.2f}", ha="center", va="center", color=colour, weight=weight)
    axis.set_xticks(range(len(columns)), columns, rotation=30, ha="right", rotation_mode="anchor")
    axis.set_yticks(range(len(rows)), rows)
    axis.grid(visible=False)


def break_even(axis: Any, at: float = 1.0) -> None:
    """The line below which plain decoding is faster."""
    axis.axhline(at, color="#222222", linewidth=0.8, zorder=1)
