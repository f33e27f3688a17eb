"""Sets of skipped sublayers moved to other tasks than they were searched for (SWIFT Figure 2b).

The paper searches with Self-SD on LLaMA-2-13B, for CNN/DM, GSM8K, TinyStories and WMT16 DE-EN. Here sets all skip as
much and are searched for matchness over several texts of the task, none of which they are measured on; english stands
in for TinyStories. Matchness has no clock.
"""

from __future__ import annotations

from swiftk import DraftSpec

from ..harness import Study
from ..lanes import ABOUT_COLUMNS, COLUMNS, fixed
from ..plots import heat
from .offline import Written

TASKS = ("summarization", "gsm8k", "english", "translation")
TRAINING, STEPS, WRITTEN = 6, 200, 4  # texts to search on, sets that are scored, texts that matchness is of
NOTES = (
    f"for: the task that the set was searched for, by {STEPS} scores over {TRAINING} other texts; matchness: share of "
    "the measured texts' first tokens that it gets right, given the right ones before; every way drafts in every round",
    "paper: best on the task that a set was searched for; 1.47 falls to 1.01 from story telling to reasoning",
)


def main() -> None:
    study = Study("paper/transfer", __doc__, tokens=96, streams=TASKS)
    training = {task: study.texts(task, skip=WRITTEN, count=TRAINING) for task in study.streams}
    sets = {task: Written(study.small, some).best(4 if study.quick else STEPS) for task, some in training.items()}
    sets["uniform"] = DraftSpec.uniform(study.layers)
    for task, _ in study.parts(dict.fromkeys(study.streams)):
        written = Written(study.small, study.texts(task, count=WRITTEN))
        pairs = study.measure(study.texts(task), [fixed(name, skip) for name, skip in sets.items()])
        for name, row in study.add(task, pairs).items():
            row |= {"matchness": written.matchness(sets[name]), "skip": str(sets[name])}
    columns = {"applied to": "part", "set for": "way", **COLUMNS, "matchness": "matchness:.3f"}
    panels = [
        heat("speed-up of the set searched for", between=(0.5, 1.5)),
        heat("matchness", "matchness", between=None),
    ]
    study.finish(columns, ABOUT_COLUMNS, *NOTES, panels=panels, sharey=True)


if __name__ == "__main__":
    main()
