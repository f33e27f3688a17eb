"""A published model as it is used, in the 13 categories of Spec-Bench: by default, by its own text's repetitions alone,
by SWIFT's search within a budget of time, without copies of the weights, with a copy in 3 bits, which no file of 4
bits flatters, and with heads. Each text begins with nothing learned.

Run it with --model smollm2, say, --drafters FOLDER for heads that were trained for it, and --isa for other instruction
sets. `python -m bench.published` fetches models.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from .harness import Study
from .lanes import ABOUT_COLUMNS, COLUMNS, DEFAULT, GREEDY, INT3, WITHOUT_COPIES, Way, swift
from .plots import heat
from .texts import CATEGORIES

MODES = {"greedy": GREEDY, "T .7": {"temperature": 0.7}}
WANTED = {"greedy": 2.2, "T .7": 1.8}  # of the default, over all categories,
WITH_HEAD = {"greedy": 3.0, "T .7": 2.2}  # and of the best head
SHOWN = ("M", "alpha", "speed-up", "±", "worst text", "tokens/s", "copy", "output equal")
LEAST = 0.97  # of any way in any category
SWIFT = swift("swift")
WAYS = [
    DEFAULT,
    Way("suffix", {"drafter": "suffix"}),
    Way(SWIFT.name, SWIFT.options, {"draft_weights": "own"}),
    WITHOUT_COPIES,
    INT3,
]
OPTIONS = {
    "--drafters": {"type": Path, "nargs": "+", "default": [], "metavar": "FOLDER", "help": "heads, and small models"}
}


def held(rows: list[dict[str, Any]], heads: Sequence[str] = ()) -> list[str]:
    """What is wanted of a published model, and whether it was reached. heads: names of their ways."""
    drafted = [row for row in rows if row["way"] != "plain"]
    told = []
    for mode in MODES:
        whole = {r["way"]: r["speedup"] for r in drafted if (r["stream"], r["sampling"]) == ("all", mode)}
        best = max((name for name in heads if name in whole), key=whole.__getitem__, default=None)
        for name, wanted in ((DEFAULT.name, WANTED[mode]), (best, WITH_HEAD[mode])):
            if name in whole:
                verdict = "reached" if whole[name] >= wanted else "MISSED"
                told.append(f"{name}, {mode}: {whole[name]:.2f} of {wanted} wanted: {verdict}")
    least = min(drafted, key=lambda row: row["speedup"])
    verdict = "reached" if least["speedup"] >= LEAST else "MISSED"
    told.append(f"slowest: {least['way']}, {least['part']}: {least['speedup']:.3f} of {LEAST} wanted: {verdict}")
    unequal = sum(not row["same"] for row in drafted)
    told.append(f"texts that differ from plain decoding's: in {unequal} of {len(drafted)} rows")
    return told


def main() -> None:
    study = Study("published_model", __doc__, texts=5, tokens=256, streams=CATEGORIES, loading={}, options=OPTIONS)
    heads = [Way(folder.resolve().name, loading={"drafter": folder}) for folder in study.given.drafters]
    ways = [*WAYS, *heads]
    works = {f"{name}, {mode}": (name, mode) for mode in MODES for name in study.streams}
    every = {mode: [] for mode in MODES}
    for part, (name, mode) in study.parts(works):
        pairs = study.measure(study.texts(name), ways, cold=True, **MODES[mode])
        study.add(part, pairs, stream=name, sampling=mode)
        every[mode] += pairs
    for mode, pairs in every.items():
        means = {
            way.name: fmean(row["speedup"] for row in study.rows if (row["way"], row["sampling"]) == (way.name, mode))
            for way in ways
        }
        for way, row in study.add(f"all, {mode}", pairs, stream="all", sampling=mode).items():
            row["mean"] = means[way]
    columns = {"category": "part", "way": "way", **{title: COLUMNS[title] for title in SHOWN}}
    columns["mean of categories"] = "mean:.3f"
    panels = [heat(f"{mode}: speed-up", across="stream", sampling=mode) for mode in MODES]
    verdicts = held(study.rows, [way.name for way in heads])
    study.finish(columns, ABOUT_COLUMNS, *verdicts, panels=panels, width=15, height=3.6, sharey=True)


if __name__ == "__main__":
    main()
