"""Sets of skipped sublayers moved to other tasks than they were searched for (SWIFT Figure 2b).

The paper searches with Self-SD on LLaMA-2-13B, for CNN/DM, GSM8K, TinyStories and WMT16 DE-EN. Here sets all skip as
many sublayers (evenly: at equal distances, searched for nothing) and are searched for matchness over several texts of
the task, none of which they are measured on; english stands in for TinyStories. Matchness has no clock.
"""

from __future__ import annotations

from ..harness import Study
from ..lanes import ABOUT_COLUMNS, COLUMNS, fixed
from ..plots import heat
from .offline import Written, evenly

TASKS = ("summarization", "gsm8k", "english", "translation")
TRAINING, STEPS = 6, 200  # texts to search on, sets that are scored
NOTES = (
    f"for: the task that the set was searched for, by {STEPS} scores over {TRAINING} other texts; matchness: share of "
    "the measured texts' first tokens that it gets right, given the right ones before; every way drafts in every round",
    "paper: best on the task that a set was searched for; 1.47 falls to 1.01 from story telling to reasoning",
)


def main() -> None:
    study = Study("paper/transfer", __doc__, texts=4, tokens=96, streams=TASKS)
    training = {task: Written(study, study.others(task, TRAINING)) for task in study.streams}
    sets = {task: written.best(4 if study.quick else STEPS) for task, written in training.items()}
    sets["evenly"] = evenly(study.layers, next(iter(training.values())).skipped())
    for task, _ in study.parts(dict.fromkeys(study.streams)):
        texts = study.texts(task)
        written = Written(study, texts)
        pairs = study.measure(texts, [fixed(name, skip) for name, skip in sets.items()])
        for name, row in study.add(task, pairs).items():
            row |= {"matchness": written.matchness(sets[name]), "skip": str(sets[name])}
            row["skipped"] = len(sets[name].attn) + len(sets[name].mlp)
    columns = {
        "applied to": "part",
        "set for": "way",
        **COLUMNS,
        "matchness": "matchness:.3f",
        "sublayers skipped": "skipped",
    }
    panels = [
        heat("speed-up of the set searched for", between=(0.5, 1.5)),
        heat("matchness", "matchness", between=None),
    ]
    study.finish(columns, ABOUT_COLUMNS, *NOTES, panels=panels, sharey=True)


if __name__ == "__main__":
    main()
