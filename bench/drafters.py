"""What draft models bring, beside what needs none: each alone, by time, as a chain and as EAGLE-2's tree, and by time
with all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from swiftk import TreeRule, demo_drafter

from .harness import Study
from .lanes import ABOUT_COLUMNS, COLUMNS, GREEDY, Models, Pair, Way, by_time, chain
from .plots import heat
from .texts import grown

SAMPLINGS = {"greedy": GREEDY, "T 1": {"temperature": 1.0}}
STREAMS = ("gsm8k", "humaneval", "summarization", "english")
REACH = 7  # tokens of a chain
TREE = TreeRule(beam=8, max_draft=6, max_nodes=63)  # Mixture of Attentions' (8, 6, 62): 62 nodes and the root
ALL = Way("auto with all")
DRAFTERS = {
    "--drafters": {
        "type": Path,
        "nargs": "+",
        "default": [],
        "metavar": "FOLDER",
        "help": "heads (of the model before it grows) and small models; default: the bundled head, of the toy",
    }
}
NOTES = (
    "Memory is that of the drafter or the copy, as a share of the model's own weights. The way `no drafter` is the "
    "default without one, `auto` chooses among all by time, and `by the clock` among the drafters of one kind. Places "
    "say how often each token of a chain is accepted if all before it are. The way `tree` drafts EAGLE-2's tree in "
    "every round, 8 wide and 6 deep, and verifies the best 62 nodes. Table 2 of Mixture of Attentions does so, too: "
    "its tau is 25 % above EAGLE-2's there.",
)


def without(copy: str) -> list[Way]:
    return [
        Way("no drafter", {"skip": copy, "optimizer": None, "drafter": "auto"}),
        by_time(copy, copy),
        Way("suffix", {"drafter": "suffix"}),
    ]


def drafters(study: Study) -> list[Path]:
    """Those that are given; the bundled one is for the bundled model alone."""
    return study.given.drafters or ([] if study.given.model else [demo_drafter()])


def ways(name: str, kind: str) -> list[Way]:
    """Of a loaded drafter. A chain is always drafted: what it says is measured, not whether it pays."""
    always = {"skip": "drafter", "drafter": "plan", "speculate": "always"}
    rules = {"chain": chain(REACH), "tree": TREE}
    ruled = [Way(f"{name}, {which}", {**always, "gate": rule}) for which, rule in rules.items()]
    return [Way(name, {"drafter": kind}), *ruled, Way(f"auto with {name}")]


def opened(study: Study) -> Iterator[tuple[Models, list[Way], dict[str, float]]]:
    """A model without a drafter, one with each, and one with all: its ways, and the memory that they take, of the
    model's."""
    for folders in groups(drafters(study)):
        models = study.open(study.folder, draft_weights=study.copy, drafter=[wide(study, folder) for folder in folders])
        model = models.plain.model
        if not folders:
            its, memory = without(study.copy), {form: size / model.weight_bytes for form, size in model.copies.items()}
        elif len(folders) == 1:
            its = ways(folders[0].resolve().name, model.drafters[0])
            memory = {way.name: model.drafter_bytes / model.weight_bytes for way in its[:-1]}
        else:
            several = [kind for kind, count in Counter(model.drafters).items() if count > 1]
            its, memory = [*(Way(f"{kind}, by the clock", {"drafter": kind}) for kind in several), ALL], {}
        yield models, its, memory
        models.close()


def groups(drafters: Sequence[Path]) -> list[list[Path]]:
    """Of drafters that are loaded together."""
    return [[], *([folder] for folder in drafters), *([[*drafters]] if len(drafters) > 1 else [])]


def wide(study: Study, folder: Path) -> Path:
    """A head grows with its model; a model by itself is as large as it is."""
    whole = (folder / "tokenizer.json").exists()
    return folder if study.grow is None or whole else grown(study.grow, folder)


def by_place(pairs: Sequence[Pair]) -> str:
    """How often each place of a chain is accepted where all before it are."""
    steps = [0] * (REACH + 1)
    for pair in pairs:
        for accepted, count in enumerate(pair.result.stats.acceptance_histogram):
            steps[min(accepted, REACH)] += count
    reached = [sum(steps[place:]) for place in range(REACH + 1)]
    return " ".join(f"{after / before:.2f}" for before, after in pairwise(reached) if before)


def main() -> None:
    study = Study("drafters", __doc__, texts=2, tokens=128, streams=STREAMS, options=DRAFTERS)
    asked = [(name, mode) for name in study.streams for mode in SAMPLINGS]
    works: dict[str, Any] = {
        f"{name}, {mode}, {number}": (number, name, mode)
        for number in range(len(groups(drafters(study))))
        for name, mode in asked
    }
    every = opened(study)
    for _, parts in groupby(study.parts(works), key=lambda part: part[1][0]):
        models, its, memory = next(every)
        for _, (_, name, mode) in parts:
            models.forget()
            pairs = study.measure(study.texts(name), its, models, **SAMPLINGS[mode])
            for way, row in study.add(f"{name}, {mode}", pairs, stream=name, sampling=mode).items():
                row["memory"] = memory.get(way)
                row["places"] = by_place([p for p in pairs if p.way == way]) if way.endswith("chain") else None
    columns = {"stream": "part", "way": "way", **COLUMNS, "memory": "memory:.1%", "places": "places"}
    height = 2.2 + 0.6 * len(groups(drafters(study)))
    panels = [heat(f"{mode}: speed-up", across="stream", sampling=mode) for mode in SAMPLINGS]
    study.finish(columns, ABOUT_COLUMNS, *NOTES, panels=panels, width=7.2, height=height, sharey=True)


if __name__ == "__main__":
    main()
