"""LayerSkip's two numbers: every exit layer with every draft length, by tokens per second and acceptance.

Drafts are chains of a fixed length in every round, as in the paper; beside them trees by time. `--model` takes any
number of directories.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import harness
from plots import picture
from study import Kept, Study
from tables import Table
from totals import Totals, of_way

LENGTHS = (1, 2, 3, 4, 6, 8)
TREE = "tree"  # the way that chooses length and tree by time; the others are called by their length
NOTES = (
    "cells: speed-up over the plain lane beside it (share of draft tokens accepted); tree: length and tree by time; "
    "M, c and v of the row's best: tokens per target pass, a draft step and a target pass in plain steps",
)
Cells = dict[int, dict[str, Totals]]


def cells(kept: Kept) -> Cells:
    """[exit layer][way]"""
    return {
        part["exit"]: {way: Totals.of(of_way(part["pairs"], way)) for way in part["ways"]} for part in kept.values()
    }


def table(kept: Kept) -> Table:
    every = cells(kept)
    ways = list(next(iter(every.values()), {}))
    names = [way if way == TREE else f"d = {way}" for way in ways]
    found = Table(["exit", *names, "best", "M", "c", "v", "tokens/s", "plain", "output"])
    for layer, row in every.items():
        best = max(row, key=lambda way: row[way].speedup)
        t = row[best]
        shown = [f"{one.speedup:.2f} ({one.alpha:.0%})" for one in row.values()]
        same = "same" if all(one.same for one in row.values()) else "DIFFERS"
        facts = [f"{t.length:.2f}", f"{t.cost:.2f}", f"{t.verify:.2f}", f"{t.rate:.1f}", f"{t.plain_rate:.1f}"]
        found.add(str(layer), *shown, names[ways.index(best)], *facts, same)
    return found


def heat(axis: Any, every: Cells, title: str, values: np.ndarray, form: str, colours: str) -> None:
    layers, ways = list(every), list(next(iter(every.values())))
    axis.imshow(values, aspect="auto", cmap=colours, origin="lower")
    middle = (values.min() + values.max()) / 2
    for (y, x), value in np.ndenumerate(values):
        dark = value > middle
        axis.text(x, y, f"{value:{form}}", ha="center", va="center", fontsize=7, color="white" if dark else "#222222")
    top = np.unravel_index(values.argmax(), values.shape)
    axis.plot(top[1], top[0], "s", markersize=15, markerfacecolor="none", markeredgecolor="#d55e00")
    axis.set_xticks(range(len(ways)), ways)
    axis.set_yticks(range(len(layers)), map(str, layers))
    axis.set_xlabel("draft length")
    axis.set_ylabel("exit layer")
    axis.set_title(title)
    axis.grid(visible=False)


def paint(kept: Kept, path: Path) -> None:
    every = cells(kept)
    speed, held = (
        np.array([[of(t) for t in row.values()] for row in every.values()])
        for of in (lambda t: t.speedup, lambda t: t.alpha)
    )
    with picture(path, panels=2, width=10, height=1.6 + 0.26 * len(every)) as (left, right):
        heat(left, every, "speed-up over plain decoding", speed, ".2f", "Blues")
        heat(right, every, "share of draft tokens accepted", held, ".2f", "Greens")


def sweep(name: str, given: argparse.Namespace, arguments: list[str]) -> None:
    study = Study(
        name, __doc__, instances=1, tokens=48, streams=harness.STREAMS, folder=harness.FOLDER, arguments=arguments
    )
    layers = study.lm.config["num_layers"]
    exits = given.exits or ([layers // 4, layers // 2] if study.quick else range(1, layers))
    lengths = given.lengths or ([2, 5] if study.quick else LENGTHS)
    instances = [one for stream in study.streams for one in study.stream(stream)]
    works = {}
    for layer in exits:
        ways = [harness.early_exit(str(length), layer, harness.rule(length)) for length in lengths]
        ways.append(harness.by_time(TREE, layer))
        told = {"exit": layer, "ways": [way.name for way in ways]}
        works[f"exit {layer}"] = study.pairs(instances, ways).adding(lambda told=told: told)
    kept = study.run(works, table, NOTES)
    study.draw(lambda path: paint(kept, path))


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)  # the rest is the study's
    parser.add_argument("--model", type=Path, nargs="+", default=[])
    parser.add_argument("--exits", type=int, nargs="+", help="default: all")
    parser.add_argument("--lengths", type=int, nargs="+", help=f"default: {' '.join(map(str, LENGTHS))}")
    given, others = parser.parse_known_args()
    if len(given.model) < 2:
        sweep("sweep", given, [*others, *(f"--model={model}" for model in given.model)])
        return
    for model in given.model:
        sweep(f"sweep-{model.resolve().name}", given, [*others, f"--model={model}"])


if __name__ == "__main__":
    main()
