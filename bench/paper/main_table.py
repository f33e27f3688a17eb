"""SWIFT's main results (Tables 2-4, and the methods of Table 10) on this machine: every stream, greedy and sampled.

As their papers have them, drafting in every round: lookahead, parallel, layerskip (a chain from a fixed exit),
self-sd (a set searched before inference, on other texts of the stream), uniform (every second layer), swift (paper). By
the clock: swift, the paper's search within a budget of time, and auto, the default's search where there is no copy of
the weights. `--ways` takes some of them.
"""

from __future__ import annotations

from swiftk import DraftSpec

from ..harness import Study
from ..lanes import ABOUT_COLUMNS, AUTO, COLUMNS, GREEDY, SAMPLED, Way, chain, fixed, paper_swift, self_sd, swift
from ..plots import heat
from ..texts import STREAMS
from .offline import searched

MODES = {"greedy": GREEDY, "sampled": SAMPLED}
SAMPLED_ON = ("gsm8k", "humaneval", "summarization", "english")
EXIT, CHAIN = 1 / 4, 2  # of the layers, as in LayerSkip's paper; tokens: longer ones lose here (layerskip/sweep.py)
TRAINING, STEPS = 2, 4  # texts and steps of Self-SD's search
NOTES = (
    "sampled: temperature 0.6, top_p 0.95, on four streams. without search: without the time that the search took.",
    f"layerskip: exit after a quarter of the layers, chains of {CHAIN}. self-sd: {STEPS} steps of its search on "
    f"{TRAINING} other texts of the stream, whose time is not counted.",
)


def ways(layers: int, best: DraftSpec) -> list[Way]:
    return [
        Way("lookahead", {"drafter": "lookahead", "speculate": "always"}),
        Way("parallel", {"drafter": "parallel", "speculate": "always"}),
        fixed("layerskip", DraftSpec.early_exit(max(1, round(EXIT * layers))), chain(CHAIN)),
        self_sd(best),
        fixed("uniform", DraftSpec.uniform(layers)),
        paper_swift(),
        swift(),
        AUTO,
    ]


def main() -> None:
    study = Study("paper/main_table", __doc__, tokens=96, streams=STREAMS)
    pairs, sets = {mode: [] for mode in MODES}, {}
    works = {f"{name}, greedy": (name, "greedy") for name in study.streams}
    works |= {f"{name}, sampled": (name, "sampled") for name in study.streams if name in SAMPLED_ON}
    for part, (name, mode) in study.parts(works):
        if name not in sets:
            training = study.texts(name, skip=study.instances, count=TRAINING)
            asked = not study.given.ways or "self-sd" in study.given.ways
            sets[name] = (
                searched(study, training, 2 if study.quick else STEPS, 1 / 3)[-1].skip if asked else DraftSpec()
            )
            study.models.forget()
        found = study.measure(study.texts(name), ways(study.layers, sets[name]), **MODES[mode])
        study.add(part, found, stream=name, sampling=mode)
        pairs[mode] += found
    for mode, found in pairs.items():
        if found:
            study.add(f"all, {mode}", found, stream="all streams", sampling=mode)
    columns = {"stream": "part", "way": "way", **COLUMNS, "without search": "without_search:.3f"}
    panels = [heat(f"{mode}: speed-up", across="stream", sampling=mode) for mode, found in pairs.items() if found]
    study.finish(columns, ABOUT_COLUMNS, *NOTES, panels=panels, width=13, height=3.8, sharey=True)


if __name__ == "__main__":
    main()
