"""Speed-up over the model's size and the share of sublayers that is skipped (SWIFT Figures 8b and 9).

The paper has models of 13, 34 and 70 B parameters, of which the larger ones bear more skipping, and other families.
Here all sizes are one model made wider, and write the same: what a set gets right stays, and what steps cost changes.
"""

from __future__ import annotations

from swiftk import DraftSpec

from ..harness import Study
from ..lanes import ABOUT_COLUMNS, AUTO, COLUMNS, fixed, swift
from ..plots import lines
from ..texts import grown
from .offline import Written

SIZES, RATIOS = (1, 2, 4, 8), (0.25, 0.35, 0.45, 0.55, 0.65)
TRAINING, STEPS = 3, 200  # texts of each stream to search on, sets that are scored
NOTES = (
    f"r: share of the sublayers between the first and the last layer that is skipped; the set of each r is the best of "
    f"{STEPS} by matchness over other texts, the same for every size",
    "paper: with the size, the best r grows from .45 to .5, and the speed-up with it",
)


def main() -> None:
    study = Study("paper/scaling", __doc__, texts=4, tokens=96, streams=("summarization", "gsm8k"))
    texts = [text for name in study.streams for text in study.texts(name)]
    spare = [text for name in study.streams for text in study.others(name, TRAINING)]
    written = Written(study, spare)
    sets = {
        f"{ratio:.2f}": written.best(4 if study.quick else STEPS, ratio) for ratio in RATIOS[:: 2 if study.quick else 1]
    }
    ways = [
        fixed("uniform", DraftSpec.uniform(study.layers)),
        swift(),
        AUTO,
        *(fixed(f"r {r}", s) for r, s in sets.items()),
    ]
    sizes = SIZES[:2] if study.quick else [size for size in SIZES if size <= (study.grow or 0)]
    folders = {folder.name: folder for folder in (map(grown, sizes) if study.grow else [study.folder])}
    for name, folder in study.parts(folders):
        models = study.open(folder)
        size = models.plain.model.weight_bytes
        for way, row in study.add(name, study.measure(texts, ways, models), GB=size / 1e9).items():
            row |= {"ratio": way[2:] if way.startswith("r ") else None, "MB": f"{size / 1e6:.0f}"}
    columns = {"model": "part", "GB": "GB:.2f", "way": "way", **COLUMNS}
    learning = lines("speed-up over the weights' size", "speedup", "MB", "way", 1.0, "MB", ratio=None)
    share = lines("speed-up over the share skipped", "speedup", "ratio", "part", 1.0, "r")
    study.finish(columns, ABOUT_COLUMNS, *NOTES, panels=[learning, share])


if __name__ == "__main__":
    main()
