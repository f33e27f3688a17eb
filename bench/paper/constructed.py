"""The engine at the papers' M and alpha: acceptance set by construction, so that only the engine's own losses remain.

A copy of the model whose uniformly skipped sublayers add nothing to the residual stream, though they read and multiply
all of their weights: what leaves them out drafts what the target says. Draft length alone then sets M, up to the 4.34
of the papers' LLaMA-2-13B at c .55.
"""

from __future__ import annotations

from pathlib import Path

from altered import silent
from plots import break_even, picture
from runs import fixed
from study import Kept, Study
from swiftk import DraftRule, SkipSet
from tables import Table
from totals import COLUMNS, Totals, cells, of_way, plain_cells

LENGTHS = (1, 2, 3, 4, 6)
NOTES = ("no siblings: a tree of n drafted tokens has n + 1 rows; alpha below 1 is the ends of texts",)


def name(length: int) -> str:
    return f"{length} drafted"


def table(kept: Kept) -> Table:
    found = Table(["way", *COLUMNS])
    pairs = [pair for part in kept.values() for pair in part["pairs"]]
    found.add("plain", *plain_cells(Totals.of(of_way(pairs, name(LENGTHS[0])))))
    for length in LENGTHS:
        found.add(name(length), *cells(Totals.of(of_way(pairs, name(length)))))
    return found


def paint(kept: Kept, path: Path) -> None:
    pairs = [pair for part in kept.values() for pair in part["pairs"]]
    sums = [Totals.of(of_way(pairs, name(length))) for length in LENGTHS]
    with picture(path, panels=1, height=3) as (axis,):
        axis.plot([t.length for t in sums], [t.speedup for t in sums], "o-", label="measured")
        axis.plot([t.length for t in sums], [t.expected for t in sums], "o--", color="#999999", label="Equation 6")
        break_even(axis)
        axis.set_title("speed-up over M, acceptance by construction")
        axis.set_xlabel("tokens per target pass")
        axis.legend()


def main() -> None:
    study = Study("constructed", __doc__, instances=6, tokens=128, streams=("gsm8k",))
    skip = SkipSet.uniform(study.layers)
    study.model_dir = silent(study.model_dir, skip)
    ways = [fixed(name(n), skip, DraftRule(0.0, n, width=(1, 1, 1, 1))) for n in LENGTHS]
    kept = study.run({one: study.pairs(study.stream(one), ways) for one in study.streams}, table, NOTES)
    study.draw(lambda path: paint(kept, path))


if __name__ == "__main__":
    main()
