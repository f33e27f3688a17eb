"""loss.png: the loss of each exit over the steps, and at the end by layer. Only where matplotlib is installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from . import log
from .files import whole


def plot(folder: Path) -> Path | None:
    """Draws the tables of a run beside them; None without matplotlib or without rows."""
    train, valid = log.read(folder / "loss.csv"), log.read(folder / "valid.csv")
    if not train or find_spec("matplotlib") is None:
        return None
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    steps = [int(row[0]) for row in train]
    left.plot(steps, [float(row[2]) for row in train], color="0.8", linewidth=0.8, label="training, all exits weighted")
    exits = len(valid[0]) - 1 if valid else 0
    for exit in range(1, exits + 1):
        values = [float(row[exit]) for row in valid]
        shade = 0.15 + 0.7 * exit / exits
        left.plot(
            [int(row[0]) for row in valid], values, color=(0.1, 0.3, shade), linewidth=1, label=_label(exit, exits)
        )
    left.set(xlabel="step", ylabel="cross entropy", title="Loss")
    left.legend(fontsize="small")
    if valid:
        right.plot(range(1, exits + 1), [float(v) for v in valid[-1][1:]], "o-", color="tab:blue")
        right.set(xlabel="layers run", ylabel="cross entropy", title=f"Held-out loss by exit, step {valid[-1][0]}")
    path = folder / "loss.png"
    with whole(path) as partial:
        figure.savefig(partial, format="png", dpi=110)
    return path


def _label(exit: int, exits: int) -> str | None:
    """Few enough to read."""
    shown = {1, exits, *(round(exits * part / 4) for part in (1, 2, 3))}
    return f"held out, exit {exit}" if exit in shown else None
