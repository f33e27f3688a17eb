"""Speed-up over the model's size and the share of sublayers that is skipped (SWIFT Figures 8b and 9).

The paper has models of 13, 34 and 70 B parameters, of which the larger ones bear more skipping, and other families.
Here all sizes are one model made wider, and write the same: what a set guesses stays, and what steps cost changes.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from offline import Texts
from plots import BY_WAY, break_even, picture
from runs import AUTO, Part, Way, fixed, measure, sessions, swift
from study import Kept, Study, Work, grown
from swiftk import SkipSet
from tables import Table
from totals import COLUMNS, Totals, cells, of_way, plain_cells

SIZES = (1, 2, 4, 8)
RATIOS = (0.25, 0.35, 0.45, 0.55, 0.65)
TRAINING, STEPS = 6, 200  # texts to search on, sets that are scored
LEARNING = ("uniform", "swift", "auto")
NOTES = (
    f"r: share of the sublayers between the first and the last layer that is skipped; the set of each r is the best of "
    f"{STEPS} by matchness over {TRAINING} other texts, the same for every size",
    "paper: with the size, the best r grows from .45 to .5, and the speed-up with it",
)


def name(ratio: float) -> str:
    return f"r {ratio:.2f}".replace("0.", ".")


def table(kept: Kept) -> Table:
    found = Table(["model", "GB", "way", *COLUMNS])
    for key, part in kept.items():
        size = f"{part['bytes'] / 1e9:.2f}"
        ways = list(dict.fromkeys(pair["way"] for pair in part["pairs"]))
        found.add(key, size, "plain", *plain_cells(Totals.of(of_way(part["pairs"], ways[0]))))
        for way in ways:
            found.add(key, size, way, *cells(Totals.of(of_way(part["pairs"], way))))
    return found


def paint(kept: Kept, path: Path) -> None:
    def speedup(part: dict[str, Any], way: str) -> float:
        return Totals.of(of_way(part["pairs"], way)).speedup

    sizes = [part["bytes"] / 1e6 for part in kept.values()]
    with picture(path, panels=2, width=9) as (left, right):
        for way in LEARNING:
            left.plot(sizes, [speedup(part, way) for part in kept.values()], "o-", color=BY_WAY[way], label=way)
        left.set_xscale("log", base=2)
        left.set_xticks(sizes, [f"{size:.0f}" for size in sizes])
        left.set_title("speed-up over the weights' size")
        left.set_xlabel("MB")
        for key, part in kept.items():
            right.plot(RATIOS, [speedup(part, name(ratio)) for ratio in RATIOS], "o-", label=key)
        right.set_title("speed-up over the share skipped")
        right.set_xlabel("r")
        right.set_xticks(RATIOS)
        for axis in (left, right):
            break_even(axis)
            axis.legend()


def main() -> None:
    study = Study("scaling", __doc__, instances=4, tokens=128, streams=("summarization", "gsm8k"))
    sizes = SIZES[:2] if study.quick else [size for size in SIZES if size <= (study.grow or 0)]
    steps = 4 if study.quick else STEPS
    of_streams = [study.stream(stream) for stream in study.streams]
    instances = [instance for several in zip(*of_streams) for instance in several]
    spare = [study.stream(stream, skip=study.instances) for stream in study.streams]
    training = [instance for several in zip(*spare) for instance in several][:TRAINING]

    @cache
    def sets() -> dict[float, SkipSet]:
        texts = Texts(study.small, training)
        return {ratio: texts.best(steps, ratio) for ratio in RATIOS}

    learning = [fixed("uniform", SkipSet.uniform(study.layers)), swift(), AUTO]

    def work(folder: Path) -> Work:
        def do(part: Part) -> dict[str, Any]:
            lanes = sessions(folder, **study.loading)
            ways: list[Way] = [*learning, *(fixed(name(ratio), one) for ratio, one in sets().items())]
            pairs = measure(lanes, instances, ways, study.tokens, part=part)
            return {"pairs": pairs, "bytes": lanes[0].model.weight_bytes}

        names = [*learning, *(fixed(name(ratio), SkipSet()) for ratio in RATIOS)]
        return study.work(instances, names, do, training=training, steps=steps, model=folder.name)

    folders = [grown(size) for size in sizes] if study.grow else [study.model_dir]
    kept = study.run({folder.name: work(folder) for folder in folders}, table, NOTES)
    study.draw(lambda path: paint(kept, path))


if __name__ == "__main__":
    main()
