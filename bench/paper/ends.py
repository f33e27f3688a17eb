"""Where SWIFT's searches end up: the paper's schedule after so many scores, the search within a budget of time after so
many tokens, by what the sets that they found are worth on other texts of the same kind.

Searches run on the small model, whose grown copies write the same texts: which scores there are, and so which sets are
found, does not depend on how long a step takes, but for the budget, which is a share of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import swiftk
from offline import Texts
from plots import BY_WAY, picture
from runs import Part, Way, fixed, measure, paper_swift, swift
from streams import Instance, stream
from study import Kept, Study, Work
from swiftk import SkipSet
from tables import Table
from totals import COLUMNS, Totals, cells, of_way

TRAINING = 10  # texts that are searched on
SCORES, TOKENS = (50, 200, 1000), (2000, 20000)
ON = {"max_score": 1.0, "tolerance": 1 << 20}  # the search goes on
NOTES = (
    f"searched on {TRAINING} other texts of the stream, one after another, until there were so many scores or tokens; "
    "matchness: of the set found, over the measured texts; speed-up: of the set alone, drafting in every round",
)


def search(folder: Path, texts: Sequence[Instance], way: Way, scores: int, tokens: int) -> tuple[SkipSet, int]:
    """(the set that drafts in the end, candidates)"""
    lm = swiftk.load(folder, device="cpu", draft_weights="own")
    found, candidates, at, written = SkipSet.uniform(lm.config["num_layers"]), 0, 0, 0
    asked = {"max_new_tokens": 256, "ignore_eos": True, "temperature": 0.0, **way.options}
    while candidates < scores and written < tokens:
        r = lm.generate(list(texts[at % len(texts)].turns[0]), **asked)
        new = r.trace.candidates[r.trace.earlier :]
        found = next((c.skip for c in reversed(new) if c.kept), found)
        candidates, written, at = candidates + len(new), written + len(r.tokens), at + 1
    return found, candidates


def table(kept: Kept) -> Table:
    found = Table(["stream", "search", "candidates", "matchness", *COLUMNS])
    for key, part in kept.items():
        for way, facts in part["ways"].items():
            total = Totals.of(of_way(part["pairs"], way))
            found.add(key, way, str(facts["candidates"]), f"{facts['matchness']:.3f}", *cells(total))
    return found


def paint(kept: Kept, path: Path) -> None:
    with picture(path, panels=len(kept), width=5 * len(kept), height=3, sharey=True) as axes:
        for axis, (key, part) in zip(axes if len(kept) > 1 else [axes], kept.items()):
            names = list(part["ways"])
            values = [part["ways"][name]["matchness"] for name in names]
            whose = {"uniform": "uniform", "scores": "swift (paper)", "tokens": "swift"}
            colours = [next(BY_WAY[way] for word, way in whose.items() if word in name) for name in names]
            axis.barh(names, values, color=colours)
            for y, value in enumerate(values):
                axis.text(value, y, f" {value:.3f}", va="center")
            axis.invert_yaxis()
            axis.set_title(f"{key}: matchness of the set found")


def main() -> None:
    study = Study("ends", __doc__, instances=4, tokens=96, streams=("gsm8k", "summarization"))
    every, long = ((5, 20), (300,)) if study.quick else (SCORES, TOKENS)
    ways = {f"{n} scores, the paper's": (paper_swift(max_steps=n, **ON), n, 1 << 30) for n in every}
    ways |= {f"{n} tokens, by time": (swift(max_steps=1 << 20, **ON), 1 << 30, n) for n in long}

    def work(name: str) -> Work:
        instances, training = study.stream(name), stream(name, study.model_dir, TRAINING, study.instances)

        def do(part: Part) -> dict[str, Any]:
            sets = {"uniform": (SkipSet.uniform(study.layers), 0)}
            sets |= {key: search(study.small, training, *how) for key, how in ways.items()}
            texts = Texts(study.small, instances)
            facts = {
                key: {"candidates": n, "matchness": round(texts(skip).matchness, 4), "skip": str(skip)}
                for key, (skip, n) in sets.items()
            }
            every = [fixed(key, skip) for key, (skip, _) in sets.items()]
            return {"pairs": measure(study.lanes, instances, every, study.tokens, part=part), "ways": facts}

        names = [fixed(key, SkipSet()) for key in ("uniform", *ways)]
        return study.work(instances, names, do, training=training, searches=tuple(ways))

    kept = study.run({name: work(name) for name in study.streams}, table, NOTES)
    study.draw(lambda path: paint(kept, path))


if __name__ == "__main__":
    main()
