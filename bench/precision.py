"""How long a draft is worth while, by the weights that it reads: tokens per second over the draft length, for the
model's own weights with every other sublayer skipped and for copies of them in fewer bits, which skip nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).with_name("paper"))]

from modes import FORMS, ModeStudy  # noqa: E402
from plots import break_even, picture  # noqa: E402
from runs import Way, fixed  # noqa: E402
from study import Kept  # noqa: E402
from swiftk import DraftRule, SkipSet  # noqa: E402
from tables import Table  # noqa: E402
from totals import Totals, of_way  # noqa: E402

LENGTHS = (1, 2, 4, 6, 8, 12, 16)
TREE = "by time"
OWN = "uniform skip"
SAMPLINGS = {"greedy": {"temperature": 0.0}, "T 1": {"temperature": 1.0}}
NOTES = (
    "cells: speed-up over the plain lane beside it (share of draft tokens accepted); a draft of so many steps in every "
    "round, a chain; by time: length and tree as the default chooses them; c: a draft step in plain steps",
)


def ways(n_layers: int) -> dict[str, list[Way]]:
    """Ways of each precision: by length, and by time."""
    skips = {OWN: SkipSet.uniform(n_layers), **{form: SkipSet(weights=form) for form in FORMS}}
    return {
        name: [
            *(
                fixed(f"{name}, {n}", skip, DraftRule(confidence=0.0, max_draft=n, width=(1, 1, 1, 1)))
                for n in LENGTHS
            ),
            Way(f"{name}, {TREE}", {"skip": skip, "optimizer": None}),
        ]
        for name, skip in skips.items()
    }


def totals(part: dict[str, object], name: str) -> list[Totals]:
    return [Totals.of(of_way(part["pairs"], f"{name}, {length}")) for length in (*LENGTHS, TREE)]


def table(kept: Kept) -> Table:
    found = Table(["part", "weights", *(f"d = {n}" for n in LENGTHS), TREE, "c", "plain", "output"])
    for key, part in kept.items():
        for name in (OWN, *FORMS):
            every = totals(part, name)
            shown = [f"{t.speedup:.2f} ({t.alpha:.0%})" for t in every]
            same = "same" if all(t.same for t in every) else "DIFFERS"
            found.add(key, name, *shown, f"{every[3].cost:.2f}", f"{every[0].plain_rate:.1f}", same)
    return found


def paint(kept: Kept, path: Path) -> None:
    with picture(path, panels=len(kept), width=4.5 * len(kept), height=3.6, sharey=True) as axes:
        for axis, (key, part) in zip(axes, kept.items()):
            for name in (OWN, *FORMS):
                *chains, tree = totals(part, name)
                (line,) = axis.plot(LENGTHS, [t.rate for t in chains], "o-", label=name)
                axis.axhline(tree.rate, color=line.get_color(), linestyle=":", linewidth=0.9)
            break_even(axis, totals(part, OWN)[0].plain_rate)
            axis.set_title(key)
            axis.set_xlabel("draft length (dotted: by time)")
        axes[0].set_ylabel("tokens/s")
        axes[0].legend()


def main() -> None:
    study = ModeStudy("precision", __doc__, instances=1, tokens=64, streams=("gsm8k", "english"), folder="")
    every = [way for group in ways(study.lm.config["num_layers"]).values() for way in group]
    instances = [one for name in study.streams for one in study.stream(name)]
    works = {mode: study.pairs(instances, every, sampling=options) for mode, options in SAMPLINGS.items()}
    kept = study.run(works, table, NOTES)
    study.draw(lambda path: paint(kept, path))


if __name__ == "__main__":
    main()
