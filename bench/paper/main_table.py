"""SWIFT's main results (Tables 2-4, and the methods of Table 10) on this machine: every stream, greedy and sampled.

As their papers have them, drafting in every round: lookahead, parallel, layerskip (a chain behind a fixed exit),
self-sd (a set searched before inference, on other texts of the stream), uniform (every second layer), swift (paper). By
the clock: swift, the paper's search within a budget of time, and auto, swiftk's defaults. `--ways` takes some of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from offline import searched
from plots import heat, picture
from runs import AUTO, SAMPLED, Part, Way, fixed, measure, paper_swift, self_sd, swift, uniform
from streams import NAMES
from study import Kept, Study, Work
from swiftk import DraftRule, SkipSet
from tables import Table
from totals import COLUMNS, Totals, cells, of_way, plain_cells

MODES = {"greedy": {}, "sampled": SAMPLED}
WAYS = ("lookahead", "parallel", "layerskip", "self-sd", "uniform", "swift (paper)", "swift", "auto")
EXIT, CHAIN = 1 / 4, 2  # of the layers, as in LayerSkip's paper; tokens: longer ones lose here (layerskip/sweep.py)
TRAINING, STEPS = 2, 8  # texts and steps of Self-SD's search
NOTES = (
    "sampled: temperature .6, top_p .95; M: tokens per target pass; alpha: accepted per draft step; c, v: a draft "
    "step and a target pass in plain steps; E(Spd.): Equation 6 of M, alpha and c, where v is 1; at v: with the one "
    "measured",
    "without search: the time that its optimizer took left out",
    f"layerskip: exit behind a quarter of the layers, chains of {CHAIN}; self-sd: {STEPS} steps of its search on "
    f"{TRAINING} other texts of the stream, for which no time is counted",
)


def ways(study: Study, best: SkipSet) -> list[Way]:
    """Those that were asked for; `best` is Self-SD's set."""
    early = SkipSet.early_exit(max(1, round(EXIT * study.layers)))
    every = [
        Way("lookahead", {"drafter": "lookahead", "speculate": "always"}),
        Way("parallel", {"drafter": "parallel", "speculate": "always"}),
        fixed("layerskip", early, DraftRule(0.0, CHAIN, width=(1,) * 4)),
        self_sd(best),
        uniform(study.lm),
        paper_swift(),
        swift(),
        AUTO,
    ]
    return [way for way in every if way.name in study.ways]


def sums(pairs: list[dict[str, Any]]) -> dict[str, Totals]:
    return {way: Totals.of(of_way(pairs, way)) for way in WAYS if of_way(pairs, way)}


def by_stream(kept: Kept, mode: str) -> dict[str, list[dict[str, Any]]]:
    """Pairs of a mode, and of all streams together behind them."""
    parts = {key.rpartition(", ")[0]: part["pairs"] for key, part in kept.items() if key.endswith(f", {mode}")}
    return parts | ({"all streams": [pair for pairs in parts.values() for pair in pairs]} if len(parts) > 1 else {})


def table(kept: Kept) -> Table:
    found = Table(["stream", "way", *COLUMNS, "without search"])
    for mode in MODES:
        for name, pairs in by_stream(kept, mode).items():
            totals = sums(pairs)
            found.add(f"{name}, {mode}", "plain", *plain_cells(next(iter(totals.values()))), "")
            for way, t in totals.items():
                without = t.plain_seconds / (t.seconds - t.optimizer_seconds)
                found.add(f"{name}, {mode}", way, *cells(t), f"{without:.3f}")
    return found


def paint(kept: Kept, path: Path) -> None:
    with picture(path, panels=2, width=13, height=3.8, sharey=True) as axes:
        for axis, mode in zip(axes, MODES):
            columns = {name: sums(pairs) for name, pairs in by_stream(kept, mode).items()}
            names = list(next(iter(columns.values())))
            heat(axis, [[t[way].speedup for t in columns.values()] for way in names], names, list(columns))
            axis.set_title(f"{mode}: speed-up over plain decoding")


def main() -> None:
    study = Study("main_table", __doc__, instances=6, tokens=128, streams=NAMES, ways=WAYS)

    sets: dict[str, SkipSet] = {}

    def best(name: str, part: Part) -> SkipSet:
        """Self-SD's, searched once for both modes."""
        if "self-sd" in study.ways and name not in sets:
            training = study.stream(name, skip=study.instances)[:TRAINING]
            sets[name] = searched(study.lm, training, 2 if study.quick else STEPS, part)[-1].skip
        return sets.get(name, SkipSet())

    def work(name: str, sampling: dict[str, Any]) -> Work:
        instances = study.stream(name)

        def do(part: Part) -> dict[str, Any]:
            every = ways(study, best(name, part.share(of=3)))
            study.lanes.forget()
            return {"pairs": measure(study.lanes, instances, every, study.tokens, sampling=sampling, part=part)}

        return study.work(instances, ways(study, SkipSet()), do, sampling=sampling, search=(TRAINING, STEPS))

    works = {f"{name}, {mode}": work(name, sampling) for name in study.streams for mode, sampling in MODES.items()}
    kept = study.run(works, table, NOTES)
    study.draw(lambda path: paint(kept, path))


if __name__ == "__main__":
    main()
