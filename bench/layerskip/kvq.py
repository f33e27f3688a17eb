"""LayerSkip's KVQ cache on against off: what verification saves by not running again what drafts ran exactly.

Both ways write the same text in the same rounds, so seconds are compared round for round. Predicted: the rows that
drafts ran leave the passes over the first layers, at what so many rows cost here beyond one (measured, too).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import harness
from plots import picture
from runs import Part, Totals, of_way
from study import Kept, Study, Work
from swiftk import LM, SkipSet
from swiftk.sublayers import SublayerPrices
from tables import Table

SHAPES = {"chain of 4": (4, 1), "chain of 8": (8, 1), "chain of 12": (12, 1), "tree of 16": (5, 3)}
ROWS = (1, 2, 4, 6, 8, 10, 12, 14, 16)  # whose passes are timed
REPEATS = 9
NOTES = (
    "rows x steps: share of verification that did not run again; verify, saved, predicted: a round's, in plain steps "
    "of the lane beside it; rows that no draft ran (the last token, siblings) still read the first layers' weights, so "
    "where memory is the limit there is nothing to save",
)


def pass_prices(lm: LM, prompt: list[int]) -> list[float]:
    """Seconds of a target pass over n rows, in passes over one: medians, sizes in turn."""
    session = lm.session
    session.prefill(prompt)
    taken: dict[int, list[float]] = {n: [] for n in ROWS}
    for _ in range(REPEATS):
        for n in ROWS:
            session.set_tree(prompt[: n - 1], list(range(n - 1)))
            began = perf_counter()
            session.verify()
            taken[n].append(perf_counter() - began)
    return [median(taken[n]) / median(taken[1]) for n in ROWS]


def depth(lm: LM, layer: int) -> float:
    """Share of a plain step that its first layers take, by the weights that they read."""
    prices = SublayerPrices(lm.config)
    return prices.price(SkipSet.early_exit(layer)) - prices.price(SkipSet.early_exit(0))


@dataclass
class Sums:
    """watch() of measure(): rounds that drafted, summed for each way."""

    found: dict[str, dict[str, float]] = field(default_factory=dict)

    def __call__(self, _: Any, one: Any, plain: Any) -> None:
        step = plain.seconds / (len(plain.result.tokens) - 1)
        stats, sums = one.result.stats, self.found.setdefault(one.way.name, {})
        rounds = [turn.round for turn in one.result.trace.rounds if turn.round.draft_steps]
        more = {
            "rounds": len(rounds),
            "rows": sum(r.verify_rows for r in rounds),
            "reused": stats.num_reused_rows,
            "row_shares": stats.reused_step_share * sum(r.verify_rows for r in rounds),
            "saved_bytes": stats.saved_weight_bytes,
            "verify": sum(r.verify_seconds for r in rounds) / step,
            "draft": sum(r.draft_seconds for r in rounds) / step,
        }
        for name, value in more.items():
            sums[name] = sums.get(name, 0) + value


def predicted(part: dict[str, Any]) -> float:
    """Plain steps a round: the first layers' passes with all rows, less those without the rows that drafts ran."""
    on = part["sums"]["on"]
    rows, reused = on["rows"] / on["rounds"], on["reused"] / on["rounds"]
    price = np.interp([rows, max(1.0, rows - reused)], ROWS, part["prices"])
    return part["depth"] * float(price[0] - price[1])


def saved(part: dict[str, Any]) -> float:
    per_round = {way: sums["verify"] / sums["rounds"] for way, sums in part["sums"].items()}
    return per_round["off"] - per_round["on"]


def table(kept: Kept) -> Table:
    found = Table(
        ["drafts", "rows", "reused", "rows x steps", "verify off", "on", "saved", "predicted", "tokens/s off", "on"]
        + ["gain", "output"]
    )
    for name, part in kept.items():
        on, off = part["sums"]["on"], part["sums"]["off"]
        totals = {way: Totals.of(of_way(part["pairs"], way)) for way in ("on", "off")}
        found.add(
            name,
            f"{on['rows'] / on['rounds']:.1f}",
            f"{on['reused'] / on['rounds']:.1f}",
            f"{on['row_shares'] / on['rows']:.0%}",
            f"{off['verify'] / off['rounds']:.3f}",
            f"{on['verify'] / on['rounds']:.3f}",
            f"{saved(part):.3f}",
            f"{predicted(part):.3f}",
            f"{totals['off'].rate:.1f}",
            f"{totals['on'].rate:.1f}",
            f"{totals['on'].speedup / totals['off'].speedup:.3f}",
            "same" if totals["on"].same and totals["off"].same else "DIFFERS",
        )
    return found


def paint(kept: Kept, path: Path) -> None:
    with picture(path, panels=2, width=10, height=3.8, width_ratios=[3, 2]) as (left, right):
        place = np.arange(len(kept))
        left.barh(place - 0.19, [saved(part) for part in kept.values()], 0.36, label="measured")
        left.barh(place + 0.19, [predicted(part) for part in kept.values()], 0.36, label="predicted")
        left.set_yticks(place, list(kept))
        left.invert_yaxis()
        left.axvline(0, color="#222222", linewidth=0.8)
        left.set_title("saved a round, in plain steps")
        left.legend()
        left.grid(axis="y", visible=False)
        for part in kept.values():
            right.plot(ROWS, part["prices"], color="#0072b2", alpha=0.5, linewidth=1)
        right.set_ylim(bottom=0)
        right.set_title("a target pass by its rows, in passes of one")


def work(study: Study, layer: int, shape: tuple[int, int]) -> Work:
    ways = [harness.early_exit(name, layer, harness.rule(*shape), kvq=name == "on") for name in ("on", "off")]
    instances = [one for name in study.streams for one in study.stream(name)]
    sums = Sums()
    pairs = study.pairs(instances, ways, watch=sums)

    def do(part: Part) -> dict[str, Any]:
        prompt = list(instances[0].turns[0])[:64]
        before = pass_prices(study.lm, prompt)
        found = pairs.do(part)
        after = pass_prices(study.lm, prompt)
        prices = [(a + b) / 2 for a, b in zip(before, after)]
        return {**found, "sums": sums.found, "prices": prices, "depth": depth(study.lm, layer)}

    return Work(pairs.runs, pairs.what, do)


def main() -> None:
    study = Study("kvq", __doc__, instances=2, tokens=64, streams=harness.STREAMS, folder=harness.FOLDER)
    layers = study.lm.config["num_layers"]
    exits = [layers // 4, layers // 2, 3 * layers // 4]
    shapes = dict(list(SHAPES.items())[::3]) if study.quick else SHAPES
    works = {
        f"exit {layer}, {name}": work(study, layer, shape)
        for layer in (exits[:2] if study.quick else exits)
        for name, shape in shapes.items()
    }
    kept = study.run(works, table, NOTES)
    study.draw(lambda path: paint(kept, path))


if __name__ == "__main__":
    main()
