"""Streams made to defeat drafting. What counts is that nothing is lost.

Cold: prompts of random tokens at temperature 1.5, nothing learned before. After easy text: what was learned on plain
English is wrong there. Layers reversed: a model whose layers were put in another order drafts hardly anything right.
"""

from __future__ import annotations

from swiftk import DraftSpec

from ..harness import Study
from ..lanes import ABOUT_COLUMNS, AUTO, COLUMNS, DEFAULT, GREEDY, fixed, measure
from ..plots import series
from ..texts import noise
from .altered import reversed_layers

HOT = {"temperature": 1.5, "top_p": 1.0}
FLOOR = 0.98
ASKED = (DEFAULT.name, AUTO.name)
NOTES = (
    f"holds: speed-up of at least {FLOOR}, wanted of the default (with an int4 copy) and of auto (without a copy, it "
    "searches layers to skip). uniform drafts in every round, for contrast."
)


def main() -> None:
    study = Study("paper/defeat", __doc__, instances=2, tokens=160)
    ways = [AUTO, fixed("uniform", DraftSpec.uniform(study.layers))]
    copied, folder = {"draft_weights": "int4"}, study.folder
    hostile = noise(study.lm.config["vocab_size"], study.instances)
    names = ("cold", "behind easy text", "layers reversed, greedy")
    for part, _ in study.parts(dict.fromkeys(names)):
        models, with_copy, sampling = study.models, study.open(folder, **copied), HOT
        if part == names[1]:
            for _ in measure(models, study.texts("english", count=2), ways, study.tokens):
                pass
            for _ in measure(with_copy, study.texts("english", count=2), [DEFAULT], study.tokens):
                pass
        elif part == names[2]:
            folder, sampling = reversed_layers(study.folder, study.layers), GREEDY
            models, with_copy = study.open(folder), study.open(folder, **copied)
        pairs = study.measure(hostile, ways, models, **sampling)
        pairs += study.measure(hostile, [DEFAULT], with_copy, **sampling)
        for way, row in study.add(part, pairs).items():
            row["speedups"] = [pair.speedup for pair in pairs if pair.way == way]
            row["worst"], row["holds"] = min(row["speedups"]), row["speedup"] >= FLOOR if way in ASKED else None
    columns = {"stream": "part", "way": "way", **COLUMNS, "worst text": "worst:.3f", "holds": "holds"}
    panels = [series(f"{name}: speed-up", "speedups", even=FLOOR, part=name) for name in names]
    study.finish(columns, ABOUT_COLUMNS, NOTES, panels=panels, width=11, sharey=True)


if __name__ == "__main__":
    main()
