"""What drafters with weights of their own bring, beside what needs none: each alone, as a chain, and by time with all
others.
"""

from __future__ import annotations

from pathlib import Path

from .harness import Study
from .lanes import ABOUT_COLUMNS, COLUMNS, GREEDY, Way, by_time, chain
from .plots import heat
from .texts import grown

SAMPLINGS = {"greedy": GREEDY, "T 1": {"temperature": 1.0}}
STREAMS = ("gsm8k", "humaneval", "summarization", "english")
NOTES = (
    "memory: of the drafter or the copy, as a share of the model's own weights; no drafter: the default without one; "
    "auto: all of them by time",
)


def ways(kind: str, reach: int) -> list[Way]:
    return [
        Way("no drafter", {"skip": "int4", "optimizer": None, "drafter": "auto"}),
        by_time("int4", "int4"),
        Way("suffix", {"drafter": "suffix"}),
        Way(kind, {"drafter": kind}),
        Way(f"{kind}, chain", {"skip": "drafter", "drafter": "plan", "gate": chain(reach), "speculate": "always"}),
        Way("auto"),
    ]


def main() -> None:
    folder = {"type": Path, "required": True, "help": "of the drafter, for the model before it is grown"}
    study = Study("drafters", __doc__, tokens=128, streams=STREAMS, options={"--drafter": folder})
    drafter = study.given.drafter if study.grow is None else grown(study.grow, study.given.drafter)
    models = study.open(study.folder, draft_weights="int4", drafter=drafter)
    model = models[0].model
    study.results.name += f"-{study.given.drafter.resolve().name}"
    memory = {form: size / model.weight_bytes for form, size in model.copies.items()}
    memory |= dict.fromkeys((model.drafter, f"{model.drafter}, chain"), model.drafter_bytes / model.weight_bytes)
    works = {f"{name}, {mode}": (name, mode) for name in study.streams for mode in SAMPLINGS}
    for part, (name, mode) in study.parts(works):
        models.forget()
        pairs = study.measure(study.texts(name), ways(model.drafter, 7), models, **SAMPLINGS[mode])
        for way, row in study.add(part, pairs, stream=name, sampling=mode).items():
            row["memory"] = memory.get(way)
    columns = {"stream": "part", "way": "way", **COLUMNS, "memory": "memory:.1%"}
    panels = [heat(f"{mode}: speed-up", across="stream", sampling=mode) for mode in SAMPLINGS]
    study.finish(columns, ABOUT_COLUMNS, *NOTES, panels=panels, width=7.2, height=4.4, sharey=True)


if __name__ == "__main__":
    main()
