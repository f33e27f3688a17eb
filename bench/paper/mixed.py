"""A stream that changes its domain (SWIFT Figure 7): ways that go on learning against a set searched for the first
one."""

from __future__ import annotations

from ..harness import Study
from ..lanes import ABOUT_COLUMNS, AUTO, COLUMNS, self_sd, summary, swift
from ..plots import heat, series
from .offline import searched

DOMAINS = ("gsm8k", "humaneval", "summarization", "english")
ENOUGH = 0.9
STEPS = 8  # of the offline search, on the first domain alone
NOTES = (
    "settled: over the second half of the domain's texts; recovered: texts after the change until one has "
    f"{ENOUGH:.0%} of the best settled speed-up of any way",
    f"self-sd: the set that {STEPS} steps of its offline search found on other texts of the first domain; chains, by "
    "its own gate",
)


def main() -> None:
    study = Study("paper/mixed", __doc__, instances=3, tokens=96, streams=DOMAINS)
    pairs, ways = [], []
    for domain, _ in study.parts(dict.fromkeys(study.streams), forget=False):
        if not ways:
            training = study.texts(domain, skip=study.instances, count=2)
            ways = [AUTO, swift(), self_sd(searched(study, training, 2 if study.quick else STEPS)[-1].skip)]
            study.models.forget()
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
