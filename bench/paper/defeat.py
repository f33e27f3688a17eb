"""A stream made to defeat drafting: prompts of random tokens, temperature 1.5. What counts is that nothing is lost.

Cold: nothing was learned before. Behind easy text: what was learned on plain English is wrong here.
"""

from __future__ import annotations

from pathlib import Path

from plots import BY_WAY, break_even, picture
from runs import AUTO, COLUMNS, Part, Totals, cells, measure, of_way, plain_cells, uniform
from streams import noise
from study import Kept, Study
from tables import Table

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
    with picture(path, panels=len(kept), sharey=True) as axes:
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

    works = {
        "cold": study.pairs(hostile, ways, sampling=HOT),
        "behind easy text": study.work([*easy, *hostile], ways, behind, sampling=HOT),
    }
    kept = study.run(works, table, NOTES)
    study.draw(lambda path: paint(kept, path))


if __name__ == "__main__":
    main()
