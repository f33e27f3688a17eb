"""A stream that changes its domain (SWIFT Figure 7): ways that go on learning against a set searched for the first
one."""

from __future__ import annotations

from ..harness import Study
from ..lanes import ABOUT_COLUMNS, AUTO, COLUMNS, self_sd, summary, swift
from ..plots import heat, series
from .offline import SAMPLES, SELF_SD, searched

DOMAINS = ("gsm8k", "humaneval", "summarization", "english")
ENOUGH = 0.9
NOTES = (
    "settled: over the second half of the domain's texts; recovered: texts after the change until one has "
    f"{ENOUGH:.0%} of the best settled speed-up of any way",
    f"self-sd: the set that its offline search, of as many steps as --self-sd-steps says, found on {SAMPLES} other "
    "texts of the first domain; chains, by its own gate",
)


def main() -> None:
    study = Study("paper/mixed", __doc__, texts=6, tokens=96, streams=DOMAINS, options=SELF_SD)
    pairs, ways = [], []
    for domain, _ in study.parts(dict.fromkeys(study.streams), forget=False):
        if not ways:
            ways = [AUTO, swift(), self_sd(searched(study, study.others(domain, SAMPLES)).skip)]
        found = study.measure(study.texts(domain), ways)
        rows = study.add(domain, found)
        for way, row in rows.items():
            of_way = [pair for pair in found if pair.way == way]
            row["settled"] = summary(of_way[len(of_way) // 2 :])["speedup"]
            row["speedups"] = [pair.speedup for pair in of_way]
        best = ENOUGH * max(row["settled"] for row in rows.values())
        for row in rows.values():
            row["recovered"] = next((str(n) for n, found in enumerate(row["speedups"]) if found >= best), "never")
        pairs += found
    for way, row in study.add("all", pairs).items():
        row["texts_in_turn"] = [pair.speedup for pair in pairs if pair.way == way]
    columns = {"domain": "part", "way": "way", **COLUMNS, "settled": "settled:.3f", "recovered": "recovered"}
    panels = [heat("speed-up", between=(0.5, 1.5)), series("speed-up of each text in turn", "texts_in_turn", even=1.0)]
    study.finish(columns, ABOUT_COLUMNS, *NOTES, panels=panels, width=11)


if __name__ == "__main__":
    main()
