"""The engine at the papers' M and alpha: acceptance set by construction, so that only the engine's own losses remain.

A copy of the model whose uniformly skipped sublayers add nothing to the residual stream, though they read and multiply
all of their weights: what leaves them out drafts what the target says. Draft length alone then sets M, up to the 4.34
of the papers' LLaMA-2-13B at c .55.
"""

from __future__ import annotations

from swiftk import DraftSpec

from ..decoded import folder_of
from ..harness import Study
from ..lanes import ABOUT_COLUMNS, COLUMNS, chain, fixed
from ..plots import lines
from .altered import silent

LENGTHS = (1, 2, 3, 4, 6)
NOTES = "no siblings: a tree of n drafted tokens has n + 1 rows; alpha below 1 is the ends of texts"


def main() -> None:
    study = Study("paper/constructed", __doc__, texts=2, tokens=128, streams=("gsm8k",))
    skip = DraftSpec.uniform(study.layers)
    study.folder = silent(folder_of(study.folder), skip)
    ways = [fixed(f"{n} drafted", skip, chain(n)) for n in LENGTHS]
    for name, _ in study.parts(dict.fromkeys(study.streams)):
        study.add(name, study.measure(study.texts(name), ways))
    columns = {"stream": "part", "way": "way", **COLUMNS}
    shown = {"speedup": "speed-up", "E": "Equation 6", "of_E_at_v": "speed-up, of Equation 6 at the measured v"}
    panels = [lines(title, key, "way", "part", 1.0) for key, title in shown.items()]
    study.finish(columns, ABOUT_COLUMNS, NOTES, panels=panels, width=11)


if __name__ == "__main__":
    main()
