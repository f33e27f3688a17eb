"""SWIFT's main results (Tables 2-4, and the methods of Table 10) on this machine: every stream, greedy and sampled.

As their papers have them, drafting in every round: lookahead, parallel, layerskip (a chain from a fixed exit),
self-sd (a set searched before inference, on other texts), uniform (every second layer), swift (paper). By
the clock: swift, the paper's search within a budget of time, and auto, the default's search where there is no copy of
the weights. `--ways` takes some of them.
"""

from __future__ import annotations

from swiftk import DraftSpec

from ..harness import Study
from ..lanes import ABOUT_COLUMNS, AUTO, COLUMNS, GREEDY, SAMPLED, Way, chain, fixed, paper_swift, self_sd, swift
from ..plots import heat
from ..texts import STREAMS
from .offline import SAMPLES, SELF_SD, searched

MODES = {"greedy": GREEDY, "sampled": SAMPLED}
SAMPLED_ON = ("gsm8k", "humaneval", "summarization", "english")
EXIT, CHAIN = 1 / 4, 2  # of the layers, as in LayerSkip's paper; tokens: longer ones lose here (layerskip/sweep.py)
NOTES = (
    "sampled: temperature 0.6, top_p 0.95, on four streams. without search: without the time that the search took.",
    f"layerskip: exit after a quarter of the layers, chains of {CHAIN}. self-sd: one search before all streams, of as "
    f"many steps as --self-sd-steps says, on {SAMPLES} other texts, in turn of the streams; its time is not counted. "
    "tree: the same set with SWIFT's dynamic verification.",
)


def ways(layers: int, best: DraftSpec) -> list[Way]:
    return [
        Way("lookahead", {"drafter": "lookahead", "speculate": "always"}),
        Way("parallel", {"drafter": "parallel", "speculate": "always"}),
        fixed("layerskip", DraftSpec.early_exit(max(1, round(EXIT * layers))), chain(CHAIN)),
        self_sd(best),
        fixed("self-sd, tree", best),
        fixed("uniform", DraftSpec.uniform(layers)),
        paper_swift(),
        swift(),
        AUTO,
    ]


def self_sd_set(study: Study) -> DraftSpec:
    if not {"self-sd", "self-sd, tree"} & set(study.given.ways or ["self-sd"]):
        return DraftSpec.uniform(study.layers)
    others = [study.others(name, SAMPLES) for name in study.streams]
    return searched(study, [text for texts in zip(*others) for text in texts][:SAMPLES]).skip


def main() -> None:
    study = Study("paper/main_table", __doc__, texts=4, tokens=96, streams=STREAMS, options=SELF_SD)
    pairs, best = {mode: [] for mode in MODES}, None
    works = {f"{name}, greedy": (name, "greedy") for name in study.streams}
    works |= {f"{name}, sampled": (name, "sampled") for name in study.streams if name in SAMPLED_ON}
    for part, (name, mode) in study.parts(works):
        best = best or self_sd_set(study)
        found = study.measure(study.texts(name), ways(study.layers, best), **MODES[mode])
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
