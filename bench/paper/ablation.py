"""SWIFT's ablations (Tables 7 and 8): the paper's method whole; without early stopping, tree, or search; and with other
windows of context, whose tokens score a candidate.

Searches come first, on other texts of the stream and by the paper's schedule; then every way drafts in every round
with the set that its search found. So a way's speed-up has none of its search in it, which stands beside it.
"""

from __future__ import annotations

from swiftk import DraftSpec, TreeRule

from ..harness import Study
from ..lanes import ABOUT_COLUMNS, COLUMNS, Way, fixed, paper_swift
from ..plots import bars
from .offline import NEW, Found, Written, swift_searched

PAPER = {  # LLaMA-2-13B, CNN/DM
    "swift": 1.560,
    "no early stop": 0.896,
    "no dynamic verification": 1.541,
    "no optimisation": 1.224,
    "window 16": 1.341,
    "window 64": 1.552,
    "window 128": 1.550,
}
WINDOWS = {"swift": 32, "window 16": 16, "window 64": 64, "window 128": 128}
GATES = {
    "no early stop": TreeRule(confidence=0.0),
    "no dynamic verification": TreeRule(width=(1, 1, 1, 1)),
}
SCORES, TRAINING = 200, 10  # candidates of a search, texts that it is on
NOTES = (
    f"search: {SCORES} candidates at most, over {TRAINING} other texts of the stream of {NEW} tokens each, longer than "
    "every window; matchness: of the set found, over the measured texts; no early stop and no dynamic verification "
    "have swift's set",
    "paper: the speed-up in the paper's tables, of LLaMA-2-13B on CNN/DM, with the search, of 0.8 %, in it",
)


def sets(study: Study, stream: str) -> dict[str, Found]:
    """By way."""
    training, scores = study.others(stream, 2 if study.quick else TRAINING), 4 if study.quick else SCORES
    found = {
        name: swift_searched(study, training, paper_swift(name, window=window, max_steps=scores), scores)
        for name, window in WINDOWS.items()
        if name in study.chosen(PAPER) or name == "swift"
    }
    none = Found(0, 0.0, DraftSpec.uniform(study.layers))
    return {**found, **dict.fromkeys(GATES, found["swift"]), "no optimisation": none}


def way(name: str, found: Found) -> Way:
    return fixed(name, found.skip, GATES.get(name, "swift"))


def main() -> None:
    study = Study("paper/ablation", __doc__, texts=4, tokens=128, streams=("summarization", "english"))
    for stream, _ in study.parts(dict.fromkeys(study.streams)):
        found, texts = sets(study, stream), study.texts(stream)
        written = Written(study, texts)
        pairs = study.measure(texts, [way(name, found[name]) for name in study.chosen(PAPER)])
        for name, row in study.add(stream, pairs).items():
            one = found[name]
            row |= {"paper": PAPER[name], "candidates": one.steps, "matchness": written.matchness(one.skip)}
            row |= {"skip": str(one.skip), "step_ms": 1e3 * one.seconds / one.steps if one.steps else None}
    columns = {"stream": "part", "way": "way", **COLUMNS, "candidates": "candidates", "matchness": "matchness:.3f"}
    columns |= {"ms a candidate": "step_ms:.1f", "paper": "paper:.3f"}
    panels = [
        bars(f"{name}: speed-up (diamonds: paper, 13B)", "speedup", mark="paper", part=name) for name in study.streams
    ]
    study.finish(columns, ABOUT_COLUMNS, *NOTES, panels=panels, width=11, sharey=True)


if __name__ == "__main__":
    main()
