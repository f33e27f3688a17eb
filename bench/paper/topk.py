"""Speed-up from the draft's candidates after its best one (SWIFT Figure 2a), over k, every second layer skipped.

The paper has k = 10 beside Self-SD, with LLaMA-2-13B on CNN/DM, GSM8K and TinyStories. Here k grows from 1 to 10, the
last way is the paper's k by confidence (section 4.2), and english stands in for TinyStories.
"""

from __future__ import annotations

import numpy as np

from swiftk import DraftSpec, TreeRule

from ..harness import Study
from ..lanes import ABOUT_COLUMNS, COLUMNS, fixed
from ..plots import lines
from .offline import Written

RULES = {f"k = {k}": TreeRule(width=(k,) * 4) for k in (1, 2, 3, 5, 10)} | {"by conf.": TreeRule()}
WRITTEN = 4  # texts that `within` is of
NOTES = (
    "within k: share of the model's own greedy tokens among the draft's k best, given the right ones before; alpha is "
    "of the tokens that were drafted, which end after one of confidence below .8",
    "paper: with k = 10 over 90% of the draft's tokens are accepted, 30% more than its best alone; speed-up 1.22",
)


def main() -> None:
    study = Study("paper/topk", __doc__, texts=4, tokens=96, streams=("summarization", "gsm8k", "english"))
    skip = DraftSpec.uniform(study.layers)
    every = [fixed(name, skip, rule) for name, rule in RULES.items()]
    for name, _ in study.parts(dict.fromkeys(study.streams)):
        confidence, rank = Written(study, study.texts(name, WRITTEN)).scores(skip)
        for way, row in study.add(name, study.measure(study.texts(name), every)).items():
            k = np.array(RULES[way].width)[np.digitize(confidence, RULES[way].tier)]
            row["within"] = float(np.mean((rank >= 0) & (rank < k)))
    columns = {"stream": "part", "way": "way", **COLUMNS, "within k": "within:.2f"}
    shown = {"speedup": "speed-up", "M": "M, tokens per target pass", "within": "tokens within the draft's k best"}
    panels = [lines(title, key, "way", "part", 1.0 if key == "speedup" else None) for key, title in shown.items()]
    study.finish(columns, ABOUT_COLUMNS, *NOTES, panels=panels, width=13)


if __name__ == "__main__":
    main()
