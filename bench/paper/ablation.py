"""SWIFT's ablations (Tables 7 and 8): the paper's method whole; without early stopping, tree, or search; and with other
windows of context, whose tokens score a candidate.
"""

from __future__ import annotations

from swiftk import DraftSpec, TreeRule

from ..harness import Study
from ..lanes import ABOUT_COLUMNS, COLUMNS, fixed, paper_swift
from ..plots import bars

PAPER = {  # LLaMA-2-13B, CNN/DM
    "swift": 1.560,
    "no early stop": 0.896,
    "no dynamic verification": 1.541,
    "no optimisation": 1.224,
    "window 16": 1.341,
    "window 64": 1.552,
    "window 128": 1.550,
}
NOTES = (
    "paper: the speed-up in the paper's tables, of LLaMA-2-13B on CNN/DM; every way drafts in every round; swift's "
    "window is 32; search: its share of decode time, and milliseconds of a step of it"
)


def main() -> None:
    study = Study("paper/ablation", __doc__, tokens=128, streams=("summarization", "english"))
    names = list(PAPER)
    ways = [
        paper_swift(names[0]),
        paper_swift(names[1], gate=TreeRule(confidence=0.0)),
        paper_swift(names[2], gate=TreeRule(width=(1, 1, 1, 1))),
        fixed(names[3], DraftSpec.uniform(study.layers)),
        *(paper_swift(name, window=int(name.split()[1])) for name in names[4:]),
    ]
    pairs = []
    for name, _ in study.parts(dict.fromkeys(study.streams)):
        pairs += study.measure(study.texts(name), ways)
    for way, row in study.add("both streams", pairs).items():
        results = [pair.result for pair in pairs if pair.way == way]
        steps = sum(len(result.trace.candidates) - result.trace.earlier for result in results)
        spent = sum(result.stats.optimizer_seconds for result in results)
        row |= {"paper": PAPER[way], "step_ms": 1e3 * spent / steps if steps else None}
    columns = {"way": "way", **COLUMNS, "search": "search:.1%", "ms a step": "step_ms:.1f", "paper": "paper:.3f"}
    panels = [bars("speed-up (diamonds: paper, 13B)", "speedup", mark="paper"), bars("M", "M"), bars("alpha", "alpha")]
    study.finish(columns, ABOUT_COLUMNS, NOTES, panels=panels, width=11, sharey=True)


if __name__ == "__main__":
    main()
