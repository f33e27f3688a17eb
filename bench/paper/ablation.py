"""SWIFT's ablation (Table 7): the paper's method whole, and without early stopping, tree, or search."""

from __future__ import annotations

from pathlib import Path

from plots import picture
from runs import NO_TREE, paper_swift, uniform
from study import Kept, Study
from swiftk import DraftRule
from tables import Table
from totals import COLUMNS, Totals, cells, of_way, plain_cells

FULL, LONG, SPINE, START = "swift", "no early stop", "no dynamic verification", "no optimisation"
PAPER = {FULL: 1.560, LONG: 0.896, SPINE: 1.541, START: 1.224}  # LLaMA-2-13B, CNN/DM
NOTES = ("paper: the speed-up in the paper's Table 7, of LLaMA-2-13B on CNN/DM; every way drafts in every round",)


def totals(kept: Kept) -> dict[str, Totals]:
    pairs = [pair for part in kept.values() for pair in part["pairs"]]
    return {way: Totals.of(of_way(pairs, way)) for way in PAPER}


def table(kept: Kept) -> Table:
    found = Table(["way", *COLUMNS, "paper"])
    sums = totals(kept)
    found.add("plain", *plain_cells(sums[FULL]), "1.000")
    for way, t in sums.items():
        found.add(way, *cells(t), f"{PAPER[way]:.3f}")
    return found


def paint(kept: Kept, path: Path) -> None:
    sums = totals(kept)
    with picture(path, panels=3, width=10, height=2.6, sharey=True) as axes:
        shown = (("speed-up", lambda t: t.speedup), ("M", lambda t: t.length), ("alpha", lambda t: t.alpha))
        for axis, (title, of) in zip(axes, shown):
            bars = axis.barh(list(sums), [of(t) for t in sums.values()], 0.6)
            axis.bar_label(bars, fmt="%.2f", padding=2, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5})
            axis.margins(x=0.15)
            axis.set_title(title)
            axis.grid(axis="y", visible=False)
        axes[0].plot(list(PAPER.values()), list(PAPER), "D", markersize=4, color="#d55e00", label="paper, 13B")
        axes[0].legend(loc="lower left", bbox_to_anchor=(0.4, 1))
        axes[0].axvline(1, color="#222222", linewidth=0.8)
        axes[0].invert_yaxis()


def main() -> None:
    study = Study("ablation", __doc__, instances=10, tokens=192, streams=("summarization", "english"))
    ways = [
        paper_swift(FULL),
        paper_swift(LONG, gate=DraftRule(confidence=0.0)),
        paper_swift(SPINE, gate=NO_TREE),
        uniform(study.lm, START),
    ]
    kept = study.run({name: study.pairs(study.stream(name), ways) for name in study.streams}, table, NOTES)
    study.draw(lambda path: paint(kept, path))


if __name__ == "__main__":
    main()
