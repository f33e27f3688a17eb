"""Streams made to defeat drafting. What counts is that nothing is lost.

Cold: prompts of random tokens at temperature 1.5, nothing learned before. Behind easy text: what was learned on plain
English is wrong there. Layers reversed: a model whose layers were put in another order drafts hardly anything right.
"""

from __future__ import annotations

from pathlib import Path

from altered import reversed_layers
from plots import BY_WAY, break_even, picture
from runs import AUTO, Part, measure, sessions, uniform
from streams import noise
from study import Kept, Study
from tables import Table
from totals import COLUMNS, Totals, cells, of_way, plain_cells

HOT = {"temperature": 1.5, "top_p": 1.0}
FLOOR = 0.98
WAYS = ("auto", "uniform")
NOTES = (f"holds: speed-up of at least {FLOOR}, asked of auto alone; uniform drafts in every round, for contrast",)


def table(kept: Kept) -> Table:
    found = Table(["stream", "way", *COLUMNS, "worst text", "holds"])
    for key, part in kept.items():
        found.add(key, "plain", *plain_cells(Totals.of(of_way(part["pairs"], "auto"))), "", "")
        for way in WAYS:
            pairs = of_way(part["pairs"], way)
            total, worst = Totals.of(pairs), min(p["plain_seconds"] / p["seconds"] for p in pairs)
            holds = "" if way != "auto" else "yes" if total.speedup >= FLOOR else "NO"
            found.add(key, way, *cells(total), f"{worst:.3f}", holds)
    return found


def paint(kept: Kept, path: Path) -> None:
    with picture(path, panels=len(kept), width=11, sharey=True) as axes:
        for axis, (key, part) in zip(axes, kept.items()):
            for way in WAYS:
                pairs = of_way(part["pairs"], way)
                axis.plot([p["plain_seconds"] / p["seconds"] for p in pairs], "o-", label=way, color=BY_WAY[way])
            break_even(axis, FLOOR)
            axis.set_title(f"{key}: speed-up of each text; line: {FLOOR}")
            axis.set_xlabel("text")
            axis.set_ylim(bottom=0)
            axis.xaxis.get_major_locator().set_params(integer=True)
        axes[0].legend(loc="lower right")


def main() -> None:
    study = Study("defeat", __doc__, instances=8, tokens=192)
    ways = [AUTO, uniform(study.lm)]
    hostile = noise(study.lm.config["vocab_size"], study.instances)
    easy = study.stream("english")[:4]

    def behind(part: Part) -> dict:
        measure(study.lanes, easy, ways, study.tokens, part=part)
        return {"pairs": measure(study.lanes, hostile, ways, study.tokens, sampling=HOT, part=part)}

    def reversed_(part: Part) -> dict:
        folder = reversed_layers(study.model_dir, study.lm.config["num_layers"])
        lanes = sessions(folder, **study.loading)
        return {"pairs": measure(lanes, hostile, ways, study.tokens, sampling={"temperature": 0.0}, part=part)}

    works = {
        "cold": study.pairs(hostile, ways, sampling=HOT),
        "behind easy text": study.work([*easy, *hostile], ways, behind, sampling=HOT),
        "layers reversed, greedy": study.work(hostile, ways, reversed_),
    }
    kept = study.run(works, table, NOTES)
    study.draw(lambda path: paint(kept, path))


if __name__ == "__main__":
    main()
