"""Everything that can draft, on the same texts: sublayers skipped, an early exit, copies of the weights in fewer bits,
tokens that cost no draft step, and the default, which chooses among all of them by time.
"""

from __future__ import annotations

from swiftk import DraftSpec
from swiftk.draft.sources import DRAFTERS

from .harness import Study
from .lanes import ABOUT_COLUMNS, COLUMNS, GREEDY, WITHOUT_COPIES, Way, by_time, swift
from .plots import heat

FORMS = ("int8", "int4", "int3")
SAMPLINGS = {"greedy": GREEDY, "T 1": {"temperature": 1.0}}
STREAMS = ("gsm8k", "humaneval", "summarization", "english")
EXIT = 3 / 16  # of the layers
NOTES = (
    "memory: copies of the weights, as a share of the model's own. The default has int4; auto chooses among all.",
    "lookup, lookahead, parallel and template (Token Recycling's tree) verify all tokens that they propose, as in "
    "their papers, up to as many rows as they may lose. plain again: the same decoding, for the machine's drift.",
)


def ways(layers: int) -> list[Way]:
    return [
        Way("plain again", {"speculate": False}),
        by_time("uniform skip", DraftSpec.uniform(layers)),
        swift(),
        by_time("early exit", DraftSpec.early_exit(max(1, round(EXIT * layers)))),
        *(by_time(form, form) for form in FORMS),
        *(Way(name, {"drafter": name}) for name, one in DRAFTERS.items() if not one.plan and name != "corpus"),
        Way("default", {"skip": "int4", "optimizer": None, "drafter": "auto"}),
        Way("default, int3", {"skip": "int3", "optimizer": None, "drafter": "auto"}),
        WITHOUT_COPIES,
        Way("auto, all copies"),
    ]


def main() -> None:
    study = Study("modes", __doc__, texts=2, tokens=96, streams=STREAMS, loading={"draft_weights": FORMS})
    model, every = study.lm.model, ways(study.layers)
    memory = {form: size / model.weight_bytes for form, size in model.copies.items()}
    memory |= {"default": memory["int4"], "default, int3": memory["int3"], "auto, all copies": sum(memory.values())}
    works = {f"{name}, {mode}": (name, mode) for name in study.streams for mode in SAMPLINGS}
    for part, (name, mode) in study.parts(works):
        pairs = study.measure(study.texts(name), every, **SAMPLINGS[mode])
        for way, row in study.add(part, pairs, stream=name, sampling=mode).items():
            row["memory"] = memory.get(way)
    columns = {"stream": "part", "way": "way", **COLUMNS, "memory": "memory:.1%"}
    panels = [heat(f"{mode}: speed-up", across="stream", sampling=mode) for mode in SAMPLINGS]
    study.finish(columns, ABOUT_COLUMNS, *NOTES, panels=panels, width=7.2, height=4.4, sharey=True)


if __name__ == "__main__":
    main()
