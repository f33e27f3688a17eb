"""Streams made to defeat drafting. What counts is that nothing is lost.

Cold: prompts of random tokens at temperature 1.5, nothing learned before. After easy text: what was learned on plain
English is wrong there. Layers reversed: a model whose layers were put in another order drafts hardly anything right.
"""

from __future__ import annotations

from swiftk import DraftSpec

from ..decoded import folder_of
from ..harness import Study
from ..lanes import ABOUT_COLUMNS, AUTO, COLUMNS, DEFAULT, GREEDY, Way, fixed, measure
from ..plots import series
from ..texts import noise
from .altered import reversed_layers

HOT = {"temperature": 1.5, "top_p": 1.0}
FLOOR = 0.98
ASKED = (DEFAULT.name, AUTO.name)
NOTES = (
    f"holds: speed-up of at least {FLOOR}, wanted of the default (with a copy) and of auto (without a copy, it "
    "searches layers to skip). uniform drafts in every round, for contrast."
)


def main() -> None:
    study = Study("paper/defeat", __doc__, texts=2, tokens=160)
    ways = [
        Way(DEFAULT.name, loading={"draft_weights": study.copy}),
        AUTO,
        fixed("uniform", DraftSpec.uniform(study.layers)),
    ]
    hostile = noise(study.lm.config["vocab_size"], study.count)
    names = ("cold", "behind easy text", "layers reversed, greedy")
    for part, _ in study.parts(dict.fromkeys(names)):
        models, sampling = study.models, HOT
        if part == names[1]:
            for _ in measure(models, study.texts("english", 2), ways, study.tokens):
                pass
        elif part == names[2]:
            reversed_model = reversed_layers(folder_of(study.folder), study.layers)
            models, sampling = study.open(reversed_model), GREEDY
        pairs = study.measure(hostile, ways, models, ignore_eos=True, **sampling)
        for way, row in study.add(part, pairs).items():
            row["speedups"] = [pair.speedup for pair in pairs if pair.way == way]
            row["holds"] = row["speedup"] >= FLOOR if way in ASKED else None
    columns = {"stream": "part", "way": "way", **COLUMNS, "holds": "holds"}
    panels = [series(f"{name}: speed-up", "speedups", even=FLOOR, part=name) for name in names]
    study.finish(columns, ABOUT_COLUMNS, NOTES, panels=panels, width=11, sharey=True)


if __name__ == "__main__":
    main()
