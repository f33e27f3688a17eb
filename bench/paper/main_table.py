"""SWIFT's main results (Tables 2-4) on this machine: every stream, greedy and sampled, four ways of decoding.

plain; uniform: every second layer skipped, for ever; swift: the paper's method with its search; auto: swiftk's
defaults. Uniform and swift draft in every round, as in the paper; auto goes by the clock.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from plots import BY_WAY, break_even, picture
from runs import AUTO, COLUMNS, SAMPLED, Totals, cells, of_way, plain_cells, swift, uniform
from streams import NAMES
from study import Kept, Study
from tables import Table

MODES = {"greedy": {}, "sampled": SAMPLED}
WAYS = ("uniform", "swift", "auto")
NOTES = (
    "sampled: temperature .6, top_p .95; M: tokens per target pass; alpha: accepted per draft step; c, v: a draft "
    "step and a target pass in plain steps; E(Spd.): Equation 6 of M, alpha and c, where v is 1; at v: with the one "
    "measured",
    "without search: the time that its optimizer took left out",
)


def table(kept: Kept) -> Table:
    found = Table(["stream", "way", *COLUMNS, "without search"])
    for mode in MODES:
        parts = {key.rpartition(", ")[0]: part["pairs"] for key, part in kept.items() if key.endswith(f", {mode}")}
        if len(parts) > 1:
            parts["all streams"] = [pair for pairs in parts.values() for pair in pairs]
        for name, pairs in parts.items():
            found.add(f"{name}, {mode}", "plain", *plain_cells(Totals.of(of_way(pairs, WAYS[0]))), "")
            for way in WAYS:
                t = Totals.of(of_way(pairs, way))
                without = t.plain_seconds / (t.seconds - t.optimizer_seconds)
                found.add(f"{name}, {mode}", way, *cells(t), f"{without:.3f}")
    return found


def paint(kept: Kept, path: Path) -> None:
    with picture(path, panels=2, width=11, sharey=True) as axes:
        for axis, mode in zip(axes, MODES):
            parts = {key.rpartition(", ")[0]: part["pairs"] for key, part in kept.items() if key.endswith(mode)}
            place = np.arange(len(parts))
            sums = [[Totals.of(of_way(pairs, way)) for pairs in parts.values()] for way in WAYS]
            for at, (way, totals) in enumerate(zip(WAYS, sums)):
                axis.bar(place + 0.27 * (at - 1), [t.speedup for t in totals], 0.25, label=way, color=BY_WAY[way])
            for at, (way, totals) in enumerate(zip(WAYS, sums)):
                axis.plot(
                    place + 0.27 * (at - 1),
                    [t.expected for t in totals],
                    "_",
                    color="#222222",
                    markersize=7,
                    label="Equation 6" if way == WAYS[-1] else None,
                )
            break_even(axis)
            axis.set_xticks(place, list(parts), rotation=30, ha="right")
            axis.set_title(f"{mode}: speed-up over plain decoding")
            axis.grid(axis="x", visible=False)
        axes[0].legend(ncols=4, loc="lower left", bbox_to_anchor=(0, 1.08))


def main() -> None:
    study = Study("main_table", __doc__, instances=6, tokens=128, streams=NAMES)

    ways = [uniform(study.lm), swift(), AUTO]
    works = {
        f"{name}, {mode}": study.pairs(study.stream(name), ways, sampling=sampling)
        for name in study.streams
        for mode, sampling in MODES.items()
    }
    kept = study.run(works, table, NOTES)
    study.draw(lambda path: paint(kept, path))


if __name__ == "__main__":
    main()
