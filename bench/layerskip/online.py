"""The exit chosen while texts are written: by time from one pass for all exits (DEL), and by the default optimizer.

Beside them exits that are given. Every stream starts cold; all choose length and tree by time.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import harness
from plots import break_even, picture
from runs import AUTO, Part, Way
from study import Kept, Study, Work
from tables import Table
from totals import COLUMNS, Totals, cells, of_way, plain_cells

CHOSEN = Way("exit by time", {"assistant_early_exit": "auto"})
NOTES = (
    "M: tokens per target pass; alpha: accepted per draft step; c, v: a draft step and a target pass in plain steps; "
    "choosing: share of time; exits: those that drafted longest, with their share of drafted rounds",
)


class Exits:
    """watch() of measure(): rounds that each exit drafted, by way. 0: a set that also thins."""

    def __init__(self) -> None:
        self.rounds: dict[str, Counter[int]] = {}

    def __call__(self, _: Any, one: Any, __: Any) -> None:
        sets = [turn.skip for turn in one.result.trace.rounds if turn.skip is not None]
        exits = [0 if skip.attn or skip.mlp else skip.exit_layer or 0 for skip in sets]
        self.rounds.setdefault(one.way.name, Counter()).update(exits)

    def shares(self) -> dict[str, dict[int, float]]:
        return {
            way: {layer: round(n / counts.total(), 3) for layer, n in counts.most_common(3)}
            for way, counts in self.rounds.items()
        }


def table(kept: Kept) -> Table:
    found = Table(["stream", "way", *COLUMNS, "choosing", "exits"])
    parts = {key: part["pairs"] for key, part in kept.items()}
    if len(parts) > 1:
        parts["all streams"] = [pair for pairs in parts.values() for pair in pairs]
    for name, pairs in parts.items():
        ways = list(dict.fromkeys(pair["way"] for pair in pairs))
        found.add(name, "plain", *plain_cells(Totals.of(of_way(pairs, ways[0]))), "", "")
        for way in ways:
            t = Totals.of(of_way(pairs, way))
            shares = kept.get(name, {}).get("exits", {}).get(way, {})
            told = ", ".join(f"{'thinned' if int(layer) == 0 else layer} {n:.0%}" for layer, n in shares.items())
            found.add(name, way, *cells(t), f"{t.optimizer_share:.1%}", told)
    return found


def paint(kept: Kept, path: Path) -> None:
    with picture(path, width=9, height=3.4) as (axis,):
        ways = list(dict.fromkeys(pair["way"] for part in kept.values() for pair in part["pairs"]))
        place, width = np.arange(len(kept)), 0.8 / len(ways)
        for at, way in enumerate(ways):
            speed = [Totals.of(of_way(part["pairs"], way)).speedup for part in kept.values()]
            axis.bar(place + width * (at - (len(ways) - 1) / 2), speed, 0.9 * width, label=way)
        break_even(axis)
        axis.set_xticks(place, list(kept))
        axis.set_title("speed-up over plain decoding")
        axis.legend(ncols=3, fontsize=8)
        axis.grid(axis="x", visible=False)


def work(study: Study, stream: str, ways: list[Way]) -> Work:
    exits = Exits()
    pairs = study.pairs(study.stream(stream), ways, watch=exits)

    def do(part: Part) -> dict[str, Any]:
        return {**pairs.do(part), "exits": exits.shares()}

    return Work(pairs.runs, pairs.what, do)


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)  # the rest is the study's
    parser.add_argument("--exits", type=int, nargs="*", help="given ones beside those that are chosen")
    given, others = parser.parse_known_args()
    study = Study(
        "online", __doc__, instances=2, tokens=128, streams=harness.STREAMS, folder=harness.FOLDER, arguments=others
    )
    layers = study.lm.config["num_layers"]
    exits = given.exits if given.exits is not None else [layers // 8, layers // 4]
    ways = [CHOSEN, AUTO, *(harness.by_time(f"exit {layer}", layer) for layer in exits)]
    kept = study.run({name: work(study, name, ways) for name in study.streams}, table, NOTES)
    study.draw(lambda path: paint(kept, path))


if __name__ == "__main__":
    main()
