"""Sets of skipped sublayers moved to other tasks than they were searched for (SWIFT Figure 2b).

The paper searches with Self-SD on LLaMA-2-13B, for CNN/DM, GSM8K, TinyStories and WMT16 DE-EN. Here sets all skip as
much and are searched for matchness over several texts of the task, none of which they are measured on; english stands
in for TinyStories. Matchness has no clock.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from offline import Texts
from plots import heat, picture
from runs import Part, fixed, measure
from study import Kept, Study, Work
from swiftk import SkipSet
from tables import Table
from totals import COLUMNS, Totals, cells, of_way, plain_cells

TASKS = ("summarization", "gsm8k", "english", "translation")
TRAINING, STEPS = 6, 200  # texts to search on, sets that are scored
NOTES = (
    f"for: the task that the set was searched for, by {STEPS} scores over {TRAINING} other texts; matchness: share of "
    "the measured texts' first tokens that it guesses, given the right ones before; every way drafts in every round",
    "paper: best on the task that a set was searched for; 1.47 falls to 1.01 from story telling to reasoning",
)


def table(kept: Kept) -> Table:
    found = Table(["applied to", "set for", *COLUMNS, "matchness"])
    for key, part in kept.items():
        for at, (way, matchness) in enumerate(part["matchness"].items()):
            total = Totals.of(of_way(part["pairs"], way))
            if not at:
                found.add(key, "plain", *plain_cells(total), "")
            found.add(key, way, *cells(total), f"{matchness:.3f}")
    return found


def paint(kept: Kept, path: Path) -> None:
    ways = list(next(iter(kept.values()))["matchness"])
    speed = [[Totals.of(of_way(part["pairs"], way)).speedup for part in kept.values()] for way in ways]
    match = [[part["matchness"][way] for part in kept.values()] for way in ways]
    with picture(path, panels=2, width=9, height=3.4, sharey=True) as (left, right):
        heat(left, speed, ways, list(kept), between=(0.5, 1.5))
        heat(right, match, ways, list(kept), between=(min(map(min, match)), max(map(max, match))), colours="Blues")
        left.set_title("speed-up")
        right.set_title("matchness")
        left.set_ylabel("set searched for")
        for axis in (left, right):
            axis.set_xlabel("applied to")


def main() -> None:
    study = Study("transfer", __doc__, instances=6, tokens=128, streams=TASKS)
    steps = 4 if study.quick else STEPS
    uniform = SkipSet.uniform(study.layers)
    training = {task: study.stream(task, skip=study.instances)[:TRAINING] for task in study.streams}

    @cache
    def best(task: str) -> SkipSet:
        return Texts(study.small, training[task]).best(steps)

    def work(task: str) -> Work:
        instances = study.stream(task)

        def do(part: Part) -> dict[str, Any]:
            ways = [*(fixed(other, best(other)) for other in study.streams), fixed("uniform", uniform)]
            texts = Texts(study.small, instances)
            return {
                "pairs": measure(study.lanes, instances, ways, study.tokens, part=part),
                "matchness": {way.name: round(texts(way.options["skip"]).matchness, 4) for way in ways},
                "sets": {way.name: str(way.options["skip"]) for way in ways},
            }

        names = [fixed(name, SkipSet()) for name in (*study.streams, "uniform")]
        return study.work(instances, names, do, training=training, steps=steps)

    kept = study.run({task: work(task) for task in study.streams}, table, NOTES)
    study.draw(lambda path: paint(kept, path))


if __name__ == "__main__":
    main()
