"""How long a draft is worth while, by the weights that it reads: the model's own with every other sublayer skipped, and
copies of them in fewer bits, which skip nothing.
"""

from __future__ import annotations

from swiftk import DraftSpec

from .harness import Study
from .lanes import ABOUT_COLUMNS, COLUMNS, GREEDY, by_time, chain, fixed
from .modes import FORMS
from .plots import lines

LENGTHS = (1, 2, 4, 8, 16)
SAMPLINGS = {"greedy": GREEDY, "T 1": {"temperature": 1.0}}
NOTES = "steps: of the draft in every round, a chain; by time: length and tree as the default chooses them"


def main() -> None:
    study = Study("precision", __doc__, tokens=48, streams=("gsm8k", "english"), loading={"draft_weights": FORMS})
    skips = {"uniform skip": DraftSpec.uniform(study.layers), **{form: DraftSpec(weights=form) for form in FORMS}}
    known = {f"{name}, {length}": (name, str(length)) for name in skips for length in (*LENGTHS, "by time")}
    every = [
        by_time(way, skips[name]) if length == "by time" else fixed(way, skips[name], chain(int(length)))
        for way, (name, length) in known.items()
    ]
    texts = [text for name in study.streams for text in study.texts(name)]
    for mode, sampling in study.parts(SAMPLINGS):
        for way, row in study.add(mode, study.measure(texts, every, **sampling)).items():
            row["weights"], row["steps"] = known[way]
    columns = {"sampling": "part", "way": "way", "weights": "weights", "steps": "steps", **COLUMNS}
    panels = [
        lines(f"{mode}: speed-up", "speedup", "steps", "weights", 1.0, "draft steps", part=mode) for mode in SAMPLINGS
    ]
    study.finish(columns, ABOUT_COLUMNS, NOTES, panels=panels, sharey=True)


if __name__ == "__main__":
    main()
