"""SWIFT's context window (Table 8): how many of the last tokens score a candidate, against what that costs."""

from __future__ import annotations

from pathlib import Path

from plots import picture
from runs import Steps, paper_swift
from study import Kept, Study
from tables import Table
from totals import COLUMNS, Totals, cells, of_way, plain_cells

WINDOWS = (16, 32, 64, 128)
PAPER = {16: 1.341, 32: 1.560, 64: 1.552, 128: 1.550}  # LLaMA-2-13B, CNN/DM
NOTES = (
    "optimisation: seconds of the search over all tokens, its share of decode time, and one step's; paper: speed-up "
    "in the paper's Table 8, of LLaMA-2-13B on CNN/DM",
)


def name(window: int) -> str:
    return f"gamma {window}"


def totals(kept: Kept) -> dict[int, tuple[Totals, int]]:
    """By window: sums over the streams, and optimisation steps."""
    pairs = [pair for part in kept.values() for pair in part["pairs"]]
    steps = {w: sum(part["steps"].get(name(w), 0) for part in kept.values()) for w in WINDOWS}
    return {w: (Totals.of(of_way(pairs, name(w))), steps[w]) for w in WINDOWS}


def table(kept: Kept) -> Table:
    found = Table(["way", *COLUMNS, "ms/token", "share", "steps", "ms/step", "paper"])
    sums = totals(kept)
    found.add("plain", *plain_cells(sums[WINDOWS[0]][0]), *[""] * 4, "1.000")
    for window, (t, steps) in sums.items():
        spent = 1e3 * t.optimizer_seconds
        found.add(
            name(window),
            *cells(t),
            f"{spent / t.tokens:.3f}",
            f"{t.optimizer_share:.2%}",
            f"{steps}",
            f"{spent / steps:.1f}" if steps else "",
            f"{PAPER[window]:.3f}",
        )
    return found


def paint(kept: Kept, path: Path) -> None:
    sums = totals(kept)
    with picture(path, panels=2, height=3) as (left, right):
        left.plot(WINDOWS, [t.speedup for t, _ in sums.values()], "o-", label="here")
        left.plot(WINDOWS, list(PAPER.values()), "o--", color="#999999", label="paper, 13B")
        left.set_title("speed-up")
        left.legend()
        right.plot(WINDOWS, [1e3 * t.optimizer_seconds / t.tokens for t, _ in sums.values()], "o-")
        right.set_title("optimisation, ms per token")
        right.set_ylim(bottom=0)
        for axis in (left, right):
            axis.set_xscale("log", base=2)
            axis.set_xticks(WINDOWS, map(str, WINDOWS))
            axis.set_xlabel("context window")


def main() -> None:
    study = Study("gamma", __doc__, instances=10, tokens=192, streams=("summarization", "english"))
    ways = [paper_swift(name(window), window=window) for window in WINDOWS]
    works = {}
    for stream in study.streams:
        steps = Steps()
        works[stream] = study.pairs(study.stream(stream), ways, watch=steps).adding(
            lambda steps=steps: {"steps": {way: len(found) for way, found in steps.found.items()}}
        )
    kept = study.run(works, table, NOTES)
    study.draw(lambda path: paint(kept, path))


if __name__ == "__main__":
    main()
