"""A stream that changes its domain (SWIFT Figure 7): ways that go on learning against a set searched for the first one.

Recovered: tokens behind a change until the speed-up over the last 32 tokens is 90 % of the domain's own best, which is
the best that any of the ways has over the second half of the domain.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from offline import searched
from plots import BY_WAY, break_even, picture
from runs import AUTO, Part, Run, measure, self_sd, swift
from streams import Instance
from study import Kept, Study, Work
from swiftk import SkipSet
from tables import Table
from totals import Totals, of_way

DOMAINS = ("gsm8k", "humaneval", "summarization", "translation", "qa", "english")
WAYS = ("auto", "swift", "self-sd")
WINDOW, ENOUGH = 32, 0.9
STEPS = 24  # of the offline search, on the first domain alone
NOTES = (
    "settled: over the second half of the domain; recovered: tokens behind the change until the last "
    f"{WINDOW} tokens reach {ENOUGH:.0%} of the best settled speed-up of any way",
    f"self-sd: the set that {STEPS} steps of its offline search found on other instances of the first domain; chains, "
    "by its own gate",
)


class Clock:
    """Seconds of every token, drafted and plain: watch() of measure()."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, str], list[tuple[np.ndarray, np.ndarray]]] = {}

    def __call__(self, instance: Instance, one: Run, plain: Run) -> None:
        both = (np.diff(one.times), np.diff(plain.times))
        self.seconds.setdefault((one.way.name, instance.stream), []).append(both)

    def curve(self, way: str, domain: str) -> np.ndarray:
        """Speed-up over the last WINDOW tokens, [t] behind the first t + WINDOW tokens of the domain."""
        drafted, plain = (np.cumsum(np.concatenate(all_)) for all_ in zip(*self.seconds[way, domain]))
        width = min(WINDOW, len(drafted) // 2)
        return (plain[width:] - plain[:-width]) / np.maximum(drafted[width:] - drafted[:-width], 1e-9)

    def settled(self, way: str, domain: str) -> float:
        texts = self.seconds[way, domain]
        half = texts[len(texts) // 2 :]
        return sum(p.sum() for _, p in half) / sum(d.sum() for d, _ in half)

    def summary(self, domains: list[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for domain in domains:
            best = max(self.settled(way, domain) for way in WAYS)
            for way in WAYS:
                curve = self.curve(way, domain)
                there = np.flatnonzero(curve >= ENOUGH * best)
                found.setdefault(domain, {})[way] = {
                    "settled": round(self.settled(way, domain), 4),
                    "recovered": int(there[0]) + WINDOW if len(there) else None,
                    "curve": [round(float(x), 3) for x in curve[::8]],
                }
        return found


def table(kept: Kept) -> Table:
    found = Table(["domain", "way", "M", "alpha", "speed-up", "settled", "recovered", "output"])
    for part in kept.values():
        for domain, ways in [*part["domains"].items(), ("all", dict.fromkeys(WAYS))]:
            for way, facts in ways.items():
                t = Totals.of(of_way(part["pairs"], way, None if domain == "all" else domain))
                found.add(
                    domain,
                    way,
                    f"{t.length:.2f}",
                    f"{t.alpha:.2f}",
                    f"{t.speedup:.3f}",
                    f"{facts['settled']:.3f}" if facts else "",
                    "" if facts is None else "never" if facts["recovered"] is None else f"{facts['recovered']}",
                    "same" if t.same else "DIFFERS",
                )
    return found


def paint(kept: Kept, path: Path) -> None:
    part = next(iter(kept.values()))
    with picture(path, panels=2, width=11) as axes:
        shown = (
            ("acceptance", lambda p: p["accepted"] / p["drafted"] if p["drafted"] else np.nan),
            ("speed-up", lambda p: p["plain_seconds"] / p["seconds"]),
        )
        for axis, (title, of) in zip(axes, shown):
            for way in WAYS:
                pairs = of_way(part["pairs"], way)
                axis.plot([of(p) for p in pairs], "o-", markersize=3, color=BY_WAY[way], label=way)
            at = 0
            for number, domain in enumerate(part["domains"]):
                wide = len(of_way(part["pairs"], WAYS[0], domain))
                axis.axvspan(at - 0.5, at + wide - 0.5, color="#f2f2f2" if number % 2 else "white", zorder=0)
                where = axis.get_xaxis_transform()
                axis.text(at + wide / 2 - 0.5, 1.01, domain, transform=where, ha="center", fontsize=7, color="#555555")
                at += wide
            axis.set_title(f"{title} of each instance", pad=14)
            axis.set_xlabel("instance")
            axis.set_ylim(bottom=0)
            axis.grid(axis="x", visible=False)
        break_even(axes[1])
        axes[0].legend(ncols=3, loc="lower left", bbox_to_anchor=(0.4, 1.05))


def work(study: Study) -> Work:
    """The whole stream is one part: what was learned in one domain meets the next."""
    streams = {domain: study.stream(domain) for domain in study.streams}
    names = [AUTO, swift(), self_sd(SkipSet())]

    def do(part: Part) -> dict[str, Any]:
        training = study.stream(study.streams[0], skip=study.instances)
        steps, share = 2 if study.quick else STEPS, part.share(of=1 + len(streams) / 2)
        best = searched(study.lm, training, steps, share)[-1]
        ways = [*names[:2], self_sd(best.skip)]
        study.lanes.forget()
        clock, pairs = Clock(), []
        for at, instances in enumerate(streams.values()):
            share = part.share(len(streams) - at)
            pairs += measure(study.lanes, instances, ways, study.tokens, part=share, watch=clock)
        return {"pairs": pairs, "domains": clock.summary(list(streams)), "search_seconds": best.seconds}

    return study.work([i for s in streams.values() for i in s], names, do, steps=STEPS)


def main() -> None:
    study = Study("mixed", __doc__, instances=8, tokens=128, streams=DOMAINS)
    kept = study.run({" > ".join(study.streams): work(study)}, table, NOTES)
    study.draw(lambda path: paint(kept, path))


if __name__ == "__main__":
    main()
