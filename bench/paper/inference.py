"""What happens while a stream is decoded (SWIFT Figure 6): speed-up by instance, matchness, and where the time goes.

The paper has 1000 texts of CNN/DM with LLaMA-2-13B. Here there are 20, of more tokens, under the paper's own schedule,
the same search within the engine's budget of time, and auto.
"""

from __future__ import annotations

from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from offline import Texts
from plots import BY_WAY, break_even, picture
from runs import AUTO, Run, paper_swift, swift
from streams import Instance
from study import Kept, Study
from swiftk import SkipSet
from tables import Table
from totals import COLUMNS, Totals, cells, of_way, plain_cells

WAYS = ("swift (paper)", "swift", "auto")
PARTS = {"draft": "#0072b2", "verify": "#56b4e9", "commit": "#009e73", "search": "#d55e00", "other": "#bbbbbb"}
NOTES = (
    "draft .. other: shares of decode time, plain steps being verification; first, last: speed-up over the first and "
    "the last quarter of the texts; matchness: of the set that drafts at last, over the first tokens of all texts",
    "paper: .8% of the time is the search's and 64.4% the draft's; matchness .45 at first, .98 at the end; 1.53 then",
)


class Sets:
    """What drafts at the end of each text, None where nothing does: watch() of measure()."""

    def __init__(self) -> None:
        self.found: dict[str, list[SkipSet | None]] = {way: [] for way in WAYS}

    def __call__(self, _: Instance, one: Run, __: Run) -> None:
        rounds = reversed(one.result.trace.rounds)
        self.found[one.way.name].append(next((r.skip for r in rounds if r.skip is not None), None))

    def matchness(self, texts: Texts) -> dict[str, list[float | None]]:
        """All over the same texts: between windows of one text, it swings more than between sets."""

        @cache
        def of(skip: SkipSet | None) -> float | None:
            return None if skip is None else round(texts(skip).matchness, 4)

        return {way: [of(skip) for skip in sets] for way, sets in self.found.items()}


def shares(pairs: list[dict[str, Any]]) -> dict[str, float]:
    """Shares of decode time, by what it went into."""
    spent = {part: sum(p[f"{part}_seconds"] for p in pairs) for part in ("draft", "verify", "commit", "optimizer")}
    spent["search"] = spent.pop("optimizer")
    seconds = sum(p["seconds"] for p in pairs)
    spent["other"] = max(0.0, seconds - sum(spent.values()))
    return {part: spent[part] / seconds for part in PARTS}


def table(kept: Kept) -> Table:
    found = Table(["stream", "way", *COLUMNS, *PARTS, "first", "last", "matchness"])
    for key, part in kept.items():
        found.add(key, "plain", *plain_cells(Totals.of(of_way(part["pairs"], WAYS[0]))), *[""] * (len(PARTS) + 3))
        for way in WAYS:
            pairs = of_way(part["pairs"], way)
            quarter = -(-len(pairs) // 4)
            ends = [f"{Totals.of(some).speedup:.3f}" for some in (pairs[:quarter], pairs[-quarter:])]
            matches = [m for m in part["matchness"][way] if m is not None]
            spent = [f"{share:.1%}" for share in shares(pairs).values()]
            found.add(key, way, *cells(Totals.of(pairs)), *spent, *ends, f"{matches[-1]:.2f}" if matches else "")
    return found


def paint(kept: Kept, path: Path) -> None:
    part = next(iter(kept.values()))
    with picture(path, panels=3, width=12, height=3.4) as (speeds, matches, times):
        for at, way in enumerate(WAYS):
            pairs = of_way(part["pairs"], way)
            plain, spent = ([p[name] for p in pairs] for name in ("plain_seconds", "seconds"))
            speeds.plot([a / b for a, b in zip(plain, spent)], ".", color=BY_WAY[way])
            speeds.plot([a / b for a, b in zip(accumulate(plain), accumulate(spent))], color=BY_WAY[way], label=way)
            matches.plot([float("nan") if m is None else m for m in part["matchness"][way]], ".-", color=BY_WAY[way])
            left = 0.0
            for name, share in shares(pairs).items():
                times.barh(at, share, 0.6, left=left, color=PARTS[name], label=name if not at else None)
                if share > 0.06:
                    colour = "white" if name in ("draft", "search") else "#222222"
                    times.text(left + share / 2, at, f"{share:.0%}", ha="center", va="center", color=colour, fontsize=8)
                left += share
        break_even(speeds)
        for axis, title in ((speeds, "speed-up: texts, and all so far"), (matches, "matchness of what drafts")):
            axis.set_title(title)
            axis.set_xlabel("instance")
            axis.set_ylim(bottom=0)
            axis.xaxis.get_major_locator().set_params(integer=True)
        speeds.legend()
        times.set_yticks(range(len(WAYS)), WAYS)
        times.invert_yaxis()
        times.set_xticks([])
        times.grid(visible=False)
        times.set_title("share of decode time")
        times.legend(ncols=5, loc="upper center", bbox_to_anchor=(0.5, 0), columnspacing=0.8, handlelength=1)


def main() -> None:
    study = Study("inference", __doc__, instances=20, tokens=192, streams=("summarization",))
    works = {}
    for name in study.streams:
        instances, seen = study.stream(name), Sets()
        works[name] = study.pairs(instances, [paper_swift(), swift(), AUTO], watch=seen).adding(
            lambda instances=instances, seen=seen: {"matchness": seen.matchness(Texts(study.small, instances))}
        )
    kept = study.run(works, table, NOTES)
    study.draw(lambda path: paint(kept, path))


if __name__ == "__main__":
    main()
