"""Where searches end up (SWIFT Figures 8a and 11): matchness and speed-up of the sets found, over what finding them
cost.

The paper's schedule after so many scores (S), with Bayesian steps and without; the same search within a budget of time,
after so many tokens; Self-SD's, before inference. SWIFT's searches run on the small model, whose grown copies write
the same texts: which sets are found does not depend on how long a step takes, but for the budget, which is a share of
it.
"""

from __future__ import annotations

from swiftk import DraftSpec

from ..harness import Study
from ..lanes import ABOUT_COLUMNS, COLUMNS, GREEDY, Way, fixed, paper_swift, swift
from ..plots import bars
from ..texts import Text
from .offline import Written, searched

TRAINING = 10  # texts that are searched on; Self-SD's: 2
STEPS = (4, 10)  # of Self-SD's
ON = {"max_score": 1.0, "tolerance": 1 << 20}  # the search goes on
NOTES = (
    f"searched on {TRAINING} other texts of the stream, one after another; matchness: of the set found, over the "
    "measured texts; speed-up: of the set alone, drafting in every round; search: its seconds, self-sd's on the model "
    "measured, the others' on the small one"
)


def paper(scores: int, interval: int | None) -> tuple[Way, int, int]:
    """A way to search with, and when it ends: after so many scores, or tokens."""
    return paper_swift(max_steps=scores, bayes_interval=interval or scores + 1, **ON), scores, 1 << 30


def search(study: Study, texts: list[Text], way: Way, scores: int, tokens: int) -> dict[str, object]:
    found = {"steps": 0, "seconds": 0.0}
    study.small.forget()
    asked = {"max_new_tokens": 256, "ignore_eos": True, **GREEDY, **way.options}
    skip, written, at = DraftSpec.uniform(study.layers), 0, 0
    while found["steps"] < scores and written < tokens:
        result = study.small.generate(texts[at % len(texts)].prompt, **asked)
        new = result.trace.candidates[result.trace.earlier :]
        skip = next((c.skip for c in reversed(new) if c.kept), skip)
        found = {"steps": found["steps"] + len(new), "seconds": found["seconds"] + sum(c.seconds for c in new)}
        written, at = written + len(result.tokens), at + 1
    return {**found, "skip": skip}


def main() -> None:
    study = Study("paper/search", __doc__, tokens=64, streams=("gsm8k", "summarization"))
    every = (5, 20) if study.quick else (50, 200, 400)
    ways = {f"{n} scores": paper(n, 25) for n in every} | {f"{every[-1]}, no Bayesian": paper(every[-1], None)}
    long = 300 if study.quick else 4000
    ways[f"{long} tokens, by time"] = (swift(max_steps=1 << 20, **ON), 1 << 30, long)
    for name, _ in study.parts(dict.fromkeys(study.streams[: 1 if study.quick else None])):
        texts, training = study.texts(name), study.texts(name, skip=study.instances, count=TRAINING)
        found = {"uniform": {"steps": 0, "seconds": 0.0, "skip": DraftSpec.uniform(study.layers)}}
        found |= {way: search(study, training, *how) for way, how in ways.items()}
        steps = searched(study, training[:2], 2 if study.quick else STEPS[-1])
        some = [one for one in steps if one.steps in STEPS] or steps[-1:]
        found |= {
            f"self-sd, {one.steps} steps": {"steps": one.steps, "seconds": one.seconds, "skip": one.skip}
            for one in some
        }
        study.models.forget()
        pairs, written = (
            study.measure(texts, [fixed(way, one["skip"]) for way, one in found.items()]),
            Written(study.small, texts),
        )
        for way, row in study.add(name, pairs).items():
            skip = found[way]["skip"]
            row |= {**found[way], "skip": str(skip), "matchness": written.matchness(skip)}
    columns = {"stream": "part", "search": "way", **COLUMNS, "candidates": "steps", "matchness": "matchness:.3f"}
    panels = [bars(f"{name}: matchness of the set found", "matchness", part=name) for name in study.streams]
    study.finish({**columns, "search, s": "seconds:.2f"}, ABOUT_COLUMNS, NOTES, panels=panels, width=10, sharey=True)


if __name__ == "__main__":
    main()
