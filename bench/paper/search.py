"""Where searches end up (SWIFT Figures 8a and 11): matchness and speed-up of the sets found, over what finding them
cost.

The paper's schedule after so many scores (S) at beta 25, and at other intervals of its Bayesian steps (beta); the same
search within a budget of time, after so many tokens; Self-SD's, before inference, on 8 texts of 32 tokens, and with
one of 8 (Self-SD^c in the paper's Table 12). SWIFT's searches run on the small model, whose grown copies write the
same texts.
"""

from __future__ import annotations

from swiftk import DraftSpec

from ..harness import Study
from ..lanes import ABOUT_COLUMNS, COLUMNS, Way, fixed, paper_swift, self_sd, swift
from ..plots import bars
from .offline import SAMPLES, SELF_SD, Found, Written, searched, swift_searched

TRAINING = 10  # texts that are searched on
SCORES, BETA, BETAS = (50, 200, 400), 25, (10, 50)
LONG = 4000  # tokens of the search by time
ON = {"max_score": 1.0, "tolerance": 1 << 20}  # the search goes on
NOTES = (
    f"searched on {TRAINING} other texts of the stream, one after another, Self-SD's on {SAMPLES} of them; matchness: "
    "of the set found, over the measured texts; speed-up: of the set alone, drafting in every round; self-sd drafts "
    "chains by its own gate, self-sd, tree with SWIFT's dynamic verification; search: its seconds, self-sd's on the "
    "model measured, the others' on the small one",
    "paper (LLaMA-2-13B): Self-SD's search takes 7.5 h, SWIFT's 116 s",
)


def schedules(quick: bool) -> dict[str, tuple[int, int]]:
    """S and beta by name; beyond S: no Bayesian steps."""
    scores = (4, 8) if quick else SCORES
    found = {f"{n} scores": (n, BETA) for n in scores}
    found |= {f"{scores[1]}, beta {beta}": (scores[1], beta) for beta in BETAS}
    return found | {f"{scores[1]}, no Bayesian": (scores[1], scores[1] + 1)}


def sets(study: Study, stream: str) -> dict[str, tuple[Found, Way]]:
    """What each search finds, and how it is measured."""
    training, long = study.others(stream, TRAINING), 300 if study.quick else LONG
    found = {"uniform": Found(0, 0.0, DraftSpec.uniform(study.layers))}
    for name, (scores, beta) in schedules(study.quick).items():
        way = paper_swift(name, max_steps=scores, bayes_interval=beta, **ON)
        found[name] = swift_searched(study, training, way, scores)
    name = f"{long} tokens, by time"
    found[name] = swift_searched(study, training, swift(name, max_steps=1 << 20, **ON), 1 << 30, long)
    drawn, alone = searched(study, training[:SAMPLES]), searched(study, training[:1], 8)
    ways = {name: (one, fixed(name, one.skip)) for name, one in found.items()}
    ways |= {"self-sd": (drawn, self_sd(drawn.skip)), "self-sd, tree": (drawn, fixed("self-sd, tree", drawn.skip))}
    return ways | {"self-sd^c": (alone, self_sd(alone.skip, "self-sd^c"))}


def main() -> None:
    streams = ("gsm8k", "summarization")
    study = Study("paper/search", __doc__, texts=4, tokens=64, streams=streams, options=SELF_SD)
    for name, _ in study.parts(dict.fromkeys(study.streams[: 1 if study.quick else None])):
        texts, found = study.texts(name), sets(study, name)
        pairs, written = study.measure(texts, [way for _, way in found.values()]), Written(study, texts)
        for way, row in study.add(name, pairs).items():
            one, _ = found[way]
            row |= {"steps": one.steps, "search_seconds": one.seconds, "skip": str(one.skip)}
            row["matchness"] = written.matchness(one.skip)
    columns = {"stream": "part", "search": "way", **COLUMNS, "candidates": "steps", "matchness": "matchness:.3f"}
    panels = [bars(f"{name}: matchness of the set found", "matchness", part=name) for name in study.streams]
    columns["search, s"] = "search_seconds:.2f"
    study.finish(columns, ABOUT_COLUMNS, *NOTES, panels=panels, width=10, sharey=True)


if __name__ == "__main__":
    main()
