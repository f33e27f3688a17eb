"""What learning costs: seconds of the optimizer over seconds of decoding, in the first text and over all.

auto and swift go by a budget of time; swift (paper) scores after every round until its search ends.
"""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

from plots import picture
from runs import AUTO, paper_swift, swift
from study import Kept, Study
from tables import Table
from totals import COLUMNS, Totals, cells, of_way, plain_cells

FIRST, LASTING = 0.05, 0.01  # shares that are allowed in the first 200 tokens, and over 1000 or more
WAYS = ("auto", "swift", "swift (paper)")
NOTES = (
    f"first: share in the first text, which with 200 tokens should be at most {FIRST:.0%}; share: over all, which "
    f"behind 1000 tokens should be at most {LASTING:.0%}; holds: of auto alone",
)


def table(kept: Kept) -> Table:
    found = Table(["stream", "way", *COLUMNS, "tokens", "first", "share", "holds"])
    for key, part in kept.items():
        found.add(key, "plain", *plain_cells(Totals.of(of_way(part["pairs"], "auto"))), *[""] * 4)
        for way in WAYS:
            pairs = of_way(part["pairs"], way)
            first, whole = Totals.of(pairs[:1]), Totals.of(pairs)
            good = first.optimizer_share <= FIRST and (whole.tokens < 1000 or whole.optimizer_share <= LASTING)
            found.add(
                key,
                way,
                *cells(whole),
                f"{whole.tokens}",
                f"{first.optimizer_share:.2%}",
                f"{whole.optimizer_share:.2%}",
                "" if way != "auto" else "yes" if good else "NO",
            )
    return found


def paint(kept: Kept, path: Path) -> None:
    with picture(path, panels=len(WAYS), width=11, sharex=True) as axes:
        for axis, way in zip(axes, WAYS):
            for key, part in kept.items():
                pairs = of_way(part["pairs"], way)
                spent = accumulate(p["optimizer_seconds"] for p in pairs)
                seconds = accumulate(p["seconds"] for p in pairs)
                tokens = list(accumulate(p["tokens"] for p in pairs))
                axis.plot(tokens, [100 * a / b for a, b in zip(spent, seconds)], "o-", markersize=3, label=key)
            axis.axhline(100 * LASTING, color="#222222", linewidth=0.8)
            axis.set_title(f"{way}: search, % of time so far")
            axis.set_xlabel("tokens")
            axis.set_ylim(bottom=0)
        axes[0].legend()


def main() -> None:
    study = Study("overhead", __doc__, instances=8, tokens=200, streams=("gsm8k", "humaneval", "english"))
    ways = [AUTO, swift(), paper_swift()]
    kept = study.run({name: study.pairs(study.stream(name), ways) for name in study.streams}, table, NOTES)
    study.draw(lambda path: paint(kept, path))


if __name__ == "__main__":
    main()
