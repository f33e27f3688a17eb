"""LayerSkip's two numbers: every exit layer with every draft length, by tokens per second and acceptance.

Drafts are chains of a fixed length in every round, as in the paper; `--model` takes any number of directories.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import harness
from plots import picture
from runs import Totals, of_way
from study import Kept, Study
from tables import Table

LENGTHS = range(1, 9)
LANES = 4  # ways beside a plain lane, each with a copy of the model
NOTES = (
    "cells: speed-up over the plain lane beside it (share of draft tokens accepted); each row's best in the columns "
    "behind, with its tokens per target pass",
)
Cells = dict[int, dict[int, Totals]]


def cells(kept: Kept) -> Cells:
    """[exit layer][draft length]"""
    found: Cells = {}
    for part in kept.values():
        for length in part["lengths"]:
            pairs = of_way(part["pairs"], str(length))
            found.setdefault(part["exit"], {})[length] = Totals.of(pairs)
    return found


def table(kept: Kept) -> Table:
    every = cells(kept)
    lengths = sorted({length for row in every.values() for length in row})
    found = Table(["exit", *(f"d = {length}" for length in lengths), "best d", "M", "tokens/s", "plain", "output"])
    for layer, row in every.items():
        best = max(row, key=lambda length: row[length].speedup)
        t = row[best]
        shown = [f"{row[d].speedup:.2f} ({row[d].alpha:.0%})" if d in row else "" for d in lengths]
        same = "same" if all(one.same for one in row.values()) else "DIFFERS"
        found.add(str(layer), *shown, str(best), f"{t.length:.2f}", f"{t.rate:.1f}", f"{t.plain_rate:.1f}", same)
    return found


def heat(axis: Any, every: Cells, title: str, values: np.ndarray, form: str, colours: str) -> None:
    layers, lengths = list(every), sorted(next(iter(every.values())))
    axis.imshow(values, aspect="auto", cmap=colours, origin="lower")
    middle = (values.min() + values.max()) / 2
    for (y, x), value in np.ndenumerate(values):
        dark = value > middle
        axis.text(x, y, f"{value:{form}}", ha="center", va="center", fontsize=7, color="white" if dark else "#222222")
    top = np.unravel_index(values.argmax(), values.shape)
    axis.plot(top[1], top[0], "s", markersize=15, markerfacecolor="none", markeredgecolor="#d55e00")
    axis.set_xticks(range(len(lengths)), map(str, lengths))
    axis.set_yticks(range(len(layers)), map(str, layers))
    axis.set_xlabel("draft length")
    axis.set_ylabel("exit layer")
    axis.set_title(title)
    axis.grid(visible=False)


def paint(kept: Kept, path: Path) -> None:
    every = cells(kept)
    speed, held = (
        np.array([[of(t) for _, t in sorted(row.items())] for row in every.values()])
        for of in (lambda t: t.speedup, lambda t: t.alpha)
    )
    with picture(path, panels=2, width=10, height=1.6 + 0.26 * len(every)) as (left, right):
        heat(left, every, "speed-up over plain decoding", speed, ".2f", "Blues")
        heat(right, every, "share of draft tokens accepted", held, ".2f", "Greens")


def sweep(name: str, arguments: list[str]) -> None:
    study = Study(
        name, __doc__, instances=1, tokens=48, streams=harness.STREAMS, folder=harness.FOLDER, arguments=arguments
    )
    layers = study.lm.config["num_layers"]
    exits = [layers // 4, layers // 2] if study.quick else range(1, layers)
    lengths = [2, 5] if study.quick else list(LENGTHS)
    instances = [one for stream in study.streams for one in study.stream(stream)]
    works = {}
    for layer in exits:
        for at in range(0, len(lengths), LANES):
            some = lengths[at : at + LANES]
            ways = [harness.early_exit(str(length), layer, harness.rule(length)) for length in some]
            work = study.pairs(instances, ways)
            told = {"exit": layer, "lengths": some}
            works[f"exit {layer}, d {some[0]}..{some[-1]}"] = work.adding(lambda told=told: told)
    kept = study.run(works, table, NOTES)
    study.draw(lambda path: paint(kept, path))


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)  # the rest is the study's
    parser.add_argument("--model", type=Path, nargs="+", default=[])
    given, others = parser.parse_known_args()
    if len(given.model) < 2:
        sweep("sweep", [*others, *(f"--model={model}" for model in given.model)])
        return
    for model in given.model:
        sweep(f"sweep-{model.resolve().name}", [*others, f"--model={model}"])


if __name__ == "__main__":
    main()
