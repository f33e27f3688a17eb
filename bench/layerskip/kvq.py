"""LayerSkip's KVQ cache on against off: what verification saves by not running again what drafts ran exactly.

Both ways write the same text in the same rounds, side by side. What a pass saves is measured on the same tree, on and
off in turn; predicted: the rows that drafts ran leave the first layers, at what so many rows cost beyond the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import harness
from plots import picture
from runs import Part
from study import Kept, Study, Work
from swiftk import LM, SkipSet
from swiftk.sublayers import SublayerPrices
from tables import Table
from totals import Totals, of_way

SHAPES = {"chain of 4": (4, 1), "chain of 8": (8, 1), "chain of 12": (12, 1), "tree of 16": (5, 3)}
REPEATS = 15
PROMPT = 256  # tokens at most behind which passes are timed
NOTES = (
    "verify, saved, predicted: medians over repeats on the same tree, in plain steps of the same repeat; rows x steps: "
    "share of a text's verification that did not run again; rows that no draft ran (the last token, siblings) still "
    "read the first layers' weights, so where memory is the limit there is little to save",
)


def depth(lm: LM, layer: int) -> float:
    """Share of a plain step that its first layers take, by the weights that they read."""
    prices = SublayerPrices(lm.config)
    return prices.price(SkipSet.early_exit(layer)) - prices.price(SkipSet.early_exit(0))


def passes(lm: LM, prompts: Sequence[Sequence[int]], layer: int, shape: tuple[int, int]) -> dict[str, float]:
    """Price of verifying a round's tree, in plain steps: KVQ on, off, and what row prices say of the difference."""
    session, share = lm.session, depth(lm, layer)
    session.set_sampling()
    found: dict[str, list[float]] = {"on": [], "off": [], "saved": [], "predicted": [], "rows": [], "reused": []}
    for prompt in prompts:
        session.prefill(list(prompt)[:PROMPT])
        session.set_skip([], [], layer)
        for turn in range(REPEATS):
            one = _turn(session, shape, ("on", "off") if turn % 2 else ("off", "on"))
            step = one["step"]
            for way in ("on", "off"):
                found[way].append(one[way] / step)
            found["saved"].append((one["off"] - one["on"]) / step)
            found["predicted"].append(share * (one["all"] - one["others"]) / step)
            found["rows"].append(one["rows"])
            found["reused"].append(one["reused"])
    session.set_kvq(True)
    return {name: median(values) for name, values in found.items()}


def _turn(session: Any, shape: tuple[int, int], order: Sequence[str]) -> dict[str, float]:
    """Seconds of passes within a few tenths of a second: the same tree on and off, then all its rows and those that no
    draft ran as rows of a given tree, and one row."""
    found: dict[str, float] = {}
    for way in order:
        session.set_kvq(way == "on")
        session.draft(**harness.rule(*shape).arguments())
        tokens, parents = session.tree_tokens[1:], session.tree_parents[1:]
        session.verify()
        found[way] = session.last["verify"]
        if way == "on":
            found["rows"], found["reused"] = session.last["verify_rows"], session.last["reused_rows"]
    others = max(1, round(found["rows"] - found["reused"]))
    for name, rows in (("all", len(tokens) + 1), ("others", others), ("step", 1)):
        session.set_tree(tokens[: rows - 1], parents[: rows - 1])
        session.verify()
        found[name] = session.last["verify"]
    return found


@dataclass
class Sums:
    """watch() of measure(): rounds that drafted, summed for each way."""

    found: dict[str, dict[str, float]] = field(default_factory=dict)

    def __call__(self, _: Any, one: Any, __: Any) -> None:
        stats, sums = one.result.stats, self.found.setdefault(one.way.name, {})
        rounds = [turn.round for turn in one.result.trace.rounds if turn.round.draft_steps]
        more = {
            "rounds": len(rounds),
            "rows": sum(r.verify_rows for r in rounds),
            "reused": stats.num_reused_rows,
            "row_shares": stats.reused_step_share * sum(r.verify_rows for r in rounds),
            "saved_bytes": stats.saved_weight_bytes,
        }
        for name, value in more.items():
            sums[name] = sums.get(name, 0) + value


def table(kept: Kept) -> Table:
    found = Table(
        ["drafts", "rows", "reused", "rows x steps", "verify off", "on", "saved", "predicted", "tokens/s off", "on"]
        + ["gain", "output"]
    )
    for name, part in kept.items():
        on, passes = part["sums"]["on"], part["passes"]
        totals = {way: Totals.of(of_way(part["pairs"], way)) for way in ("on", "off")}
        found.add(
            name,
            f"{passes['rows']:.0f}",
            f"{passes['reused']:.0f}",
            f"{on['row_shares'] / on['rows']:.0%}",
            f"{passes['off']:.3f}",
            f"{passes['on']:.3f}",
            f"{passes['saved']:.3f}",
            f"{passes['predicted']:.3f}",
            f"{totals['off'].rate:.1f}",
            f"{totals['on'].rate:.1f}",
            f"{totals['on'].speedup / totals['off'].speedup:.3f}",
            "same" if totals["on"].same and totals["off"].same else "DIFFERS",
        )
    return found


def paint(kept: Kept, path: Path) -> None:
    with picture(path, panels=2, width=10, height=3.8, width_ratios=[3, 2], sharey=True) as (left, right):
        place = np.arange(len(kept))
        for at, name in ((-0.19, "saved"), (0.19, "predicted")):
            left.barh(place + at, [part["passes"][name] for part in kept.values()], 0.36, label=name)
        left.set_yticks(place, list(kept))
        left.invert_yaxis()
        left.axvline(0, color="#222222", linewidth=0.8)
        left.set_title("saved a round, in plain steps")
        left.legend()
        totals = [[Totals.of(of_way(part["pairs"], way)).speedup for way in ("on", "off")] for part in kept.values()]
        right.plot([on / off for on, off in totals], place, "o", markersize=5)
        right.axvline(1, color="#222222", linewidth=0.8)
        right.set_title("tokens per second, on over off")
        for axis in (left, right):
            axis.grid(axis="y", visible=False)


def work(study: Study, layer: int, shape: tuple[int, int]) -> Work:
    ways = [harness.early_exit(name, layer, harness.rule(*shape), kvq=name == "on") for name in ("on", "off")]
    instances = [one for name in study.streams for one in study.stream(name)]
    sums = Sums()
    pairs = study.pairs(instances, ways, watch=sums)

    def do(part: Part) -> dict[str, Any]:
        prompts = [one.turns[0] for one in instances]
        return {
            "passes": passes(study.lm, prompts, layer, shape),
            **pairs.do(part),
            "sums": sums.found,
            "depth": depth(study.lm, layer),
        }

    return Work(pairs.runs, pairs.what, do)


def main() -> None:
    study = Study("kvq", __doc__, instances=1, tokens=64, streams=harness.STREAMS, folder=harness.FOLDER)
    layers = study.lm.config["num_layers"]
    shapes = dict(list(SHAPES.items())[::3]) if study.quick else SHAPES
    works = {
        f"exit {layer}, {name}": work(study, layer, shape)
        for layer in (layers // 4, layers // 2)
        for name, shape in shapes.items()
    }
    kept = study.run(works, table, NOTES)
    study.draw(lambda path: paint(kept, path))


if __name__ == "__main__":
    main()
