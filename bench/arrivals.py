"""Texts that come and go: how long they wait for their first token, and for the next ones, with drafts and without."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from time import perf_counter, sleep
from typing import Any

sys.path[1:1] = [str(Path(__file__).with_name("paper"))]

import numpy as np  # noqa: E402

from batch import PROMPT, BatchStudy  # noqa: E402
from plots import picture  # noqa: E402
from runs import Part  # noqa: E402
from streams import NAMES, stream  # noqa: E402
from study import Kept, Work  # noqa: E402
from swiftk import _core  # noqa: E402
from tables import Table  # noqa: E402

EVERY = {"one in 2 s": 2.0, "one a second": 1.0, "two a second": 0.5}
NOTES = (
    "texts arrive as a Poisson process does, the same for both ways; first: seconds from a text's arrival to its first "
    "token; next: seconds between two rounds that brought it tokens; plain and default one after the other",
)


def serve(study: BatchStudy, drafting: str, gap: float, part: Part) -> dict[str, Any]:
    """Seconds until first tokens, and between rounds, of texts that arrive every `gap` seconds in the mean."""
    engine = _core.Engine(study.lm.model, context=1024, sequences=16)
    draw = Random(1)
    every = [stream(name, study.model_dir) for name in study.streams]
    count = study.instances * len(every)
    due, at = [], 0.0
    for number in range(count):
        due.append((at, list(every[number % len(every)][number // len(every)].turns[0])[:PROMPT]))
        at += draw.expovariate(1 / gap)
    boxes: dict[int, Any] = {}
    heard: dict[int, float] = {}  # when each text heard of itself last
    first, gaps, tokens, began = [], [], 0, perf_counter()
    new = set()
    while due or not engine.idle():
        now = perf_counter() - began
        while due and due[0][0] <= now:
            arrived, prompt = due.pop(0)
            number = engine.submit(
                boxes, np.int32(prompt), max_new_tokens=study.tokens, drafting=drafting, temperature=0.6, seed=len(due)
            )
            heard[number] = arrived
            new.add(number)
        if engine.idle():
            sleep(max(0.0, due[0][0] - now))
            continue
        engine.step(boxes)
        now = perf_counter() - began
        for number, box in boxes.items():
            while box:
                tokens += len(box.popleft().tokens)
                (first if number in new else gaps).append(now - heard[number])
                new.discard(number)
                heard[number] = now
    part.tick()
    return {"first": first, "gaps": gaps, "tokens": tokens, "seconds": perf_counter() - began}


def table(kept: Kept) -> Table:
    columns = ["first, median", "95 %", "next, median", "95 %", "longest", "tokens/s"]
    found = Table(["arrivals", "way", *columns])
    for key, part in kept.items():
        for way in ("plain", "default"):
            run = part[way]
            first, gaps = np.array(run["first"]), np.array(run["gaps"])
            times = (np.median(first), np.quantile(first, 0.95), np.median(gaps), np.quantile(gaps, 0.95), gaps.max())
            found.add(key, way, *(f"{t:.3f}" for t in times), f"{run['tokens'] / run['seconds']:.1f}")
    return found


def paint(kept: Kept, path: Path) -> None:
    with picture(path, panels=2, width=9) as (left, right):
        for way, style in (("plain", "--"), ("default", "-")):
            for at, (key, part) in enumerate(kept.items()):
                for axis, what in ((left, "first"), (right, "gaps")):
                    values = np.sort(part[way][what])
                    share = np.arange(1, len(values) + 1) / len(values)
                    axis.plot(values, share, style, color=f"C{at}", label=f"{key}, {way}")
        left.set_title("share of texts with their first token by then")
        right.set_title("share of rounds behind the one before by then")
        for axis in (left, right):
            axis.set_xlabel("seconds")
            axis.legend()


def main() -> None:
    study = BatchStudy("arrivals", __doc__, instances=3, tokens=64, streams=NAMES, folder="")

    def work(gap: float) -> Work:
        def do(part: Part) -> dict[str, Any]:
            return {way: serve(study, how, gap, part) for way, how in (("plain", "off"), ("default", "planned"))}

        return study.work([], [], do, gap=gap, count=study.instances)

    rates = dict(list(EVERY.items())[-1:]) if study.quick else EVERY
    kept = study.run({name: work(gap) for name, gap in rates.items()}, table, NOTES)
    study.draw(lambda path: paint(kept, path))


if __name__ == "__main__":
    main()
