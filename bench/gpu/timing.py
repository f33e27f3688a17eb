"""How long a kernel takes: every limit by itself, the largest counts. predict.py adds kernels up to steps.

Of one kernel's blocks on a multiprocessor, a round of a loop takes the longest of
- one warp's cycles (images.py: chains of products, shuffles, barriers), as all warps wait for the slowest,
- what the warps of all blocks there ask of a scheduler or a unit,
- bytes on their way: a round's bytes are there after memory's latency, and so many rounds are fetched ahead.
A kernel takes no less than its bytes at memory's rate, and at L2's with what blocks read again.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from constants import Machine
from images import Image, Loop


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


@dataclass(frozen=True)
class Time:
    """A kernel's seconds: limits of which the largest counts, and what comes before and after all of them."""

    name: str
    limits: dict[str, float]
    start: float = 0.0  # from when its inputs are ready to its first bytes
    end: float = 0.0  # behind its last bytes
    bytes: float = 0.0  # from memory
    ahead: float = 0.0  # bytes that it fetches before its inputs are ready, where it has room
    room: float = 0.0  # shared memory that its blocks take of a multiprocessor
    note: dict[str, float] = field(default_factory=dict)

    @property
    def limit(self) -> str:
        return max(self.limits, key=self.limits.get)

    @property
    def body(self) -> float:
        return self.limits[self.limit]

    @property
    def alone(self) -> float:
        return self.start + self.body + self.end


def resident(m: Machine, image: Image, blocks: int) -> int:
    """Blocks that share a multiprocessor: they are spread as wide as they can be."""
    return max(1, min(image.resident, cdiv(blocks, m.multiprocessors)))


def round_cycles(m: Machine, loop: Loop, warps: int, blocks: int, ahead: float, latency: float) -> dict[str, float]:
    """Cycles of a loop's round where `blocks` of a multiprocessor run it with `warps` each."""
    load = dict(loop.load)
    shared = load.pop("shared", 0) * warps * blocks
    units = {unit: cycles * max(warps * blocks / m.schedulers, 1) for unit, cycles in load.items()}
    busiest = max(units, key=units.get)
    return {"chain": loop.cycles, busiest: units[busiest], "shared memory": shared,
            "in flight": latency * m.clock / ahead}


def makespan(times: Iterable[float], slots: int) -> float:
    """Blocks start in order, each where one has ended."""
    ends = [0.0] * slots
    for taken in times:
        heapq.heapreplace(ends, ends[0] + taken)
    return max(ends)


def small(m: Machine, image: Image, blocks: int, loads: int, rounds: float = 0, loop: Loop | None = None) -> Time:
    """A kernel of little data, all of it in L2: `loads` that wait for each other, and rounds of a loop."""
    at_once = resident(m, image, blocks)
    taken = rounds * max(round_cycles(m, loop, image.warps, at_once, 1e9, 0).values()) / m.clock if loop else 0
    straight = len(image.code) - (len(loop.body) if loop else 0)
    taken += straight * max(1, image.warps * at_once / m.schedulers) / m.clock
    waves = cdiv(blocks, m.multiprocessors * image.resident)
    return Time(image.name, {"chain": waves * (loads * m.l2_latency + taken)}, room=at_once * (image.shared + m.block_shared))


# Attention --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attention:
    """What attention reads: rows behind a context, a chain or a tree with so deep a path."""

    H: int
    KV: int
    HD: int
    context: int
    rows: int
    tree: bool = False

    @property
    def depth(self) -> int:
        return max(self.rows // 4, 1) if self.tree else self.rows

    @property
    def last(self) -> int:
        return self.context + self.depth - 1


def split_ends(last: int, rule: Iterable[tuple[int, int | None]]) -> list[int]:
    """Position behind each split of 0..last; of `rule`: keys of a split, up to which position."""
    ends, at = [], 0
    for keys, until in rule:
        while at <= last and (until is None or at < until):
            at += keys
            ends.append(min(at, last + 1))
    return ends


TODAY = ((256, 4096), (2048, None))


def before(m: Machine, kernels, a: Attention, rule=TODAY) -> list[Time]:
    """Launches of attention as they are: every split's tail token by token, also of a chain."""
    split, merge = kernels["attention_split"], kernels["attention_merge"]
    full, tail = split.loops("HMMA")
    keys, query_rows = split.constants["KEYS"], split.constants["QROWS"]
    group, bucket = a.H // a.KV, next(b for b in (8, 16, 32, 64) if a.rows <= b)
    tiles, used = cdiv(bucket * group, query_rows), cdiv(a.rows * group, query_rows)
    ends = split_ends(a.last, rule)
    splits = 1 << (len(ends) - 1).bit_length()
    shared_end = a.context // keys * keys
    blocks = len(ends) * a.KV * used
    at_once = resident(m, split, blocks)
    one = max(round_cycles(m, full, split.warps, at_once, 3, m.memory_latency).values()) / m.clock
    branch = max(round_cycles(m, tail, split.warps, at_once, 1, m.l2_latency).values()) / m.clock
    begin = 3 * m.l2_latency + m.memory_latency
    tokens = min(cdiv(query_rows, group), a.rows)
    times = []
    for _ in range(a.KV * used):
        start = 0
        for end in ends:
            apart = cdiv(max(end - max(start, shared_end), 0), keys)
            whole = max(min(end, shared_end) - start, 0) // keys
            times.append(begin + whole * one + (apart > 0) * (m.l2_latency + m.memory_latency) + apart * tokens * branch)
            start = end
    cached = 4 * a.KV * a.HD * (a.last + 1)
    parts = a.rows * a.H * len(ends) * (a.HD * 4 + 8)
    again = used if cached < 40e6 else 1  # what L2 no longer holds is read from memory again
    time = Time("attention_split", {
        "chain": makespan(times, m.multiprocessors * at_once),
        "memory": cached * used / again / m.reads, "L2": (cached * used + parts) / m.l2,
    }, bytes=cached, room=at_once * (split.shared + m.block_shared))
    return [time, merging(m, merge, a, splits)]


def merging(m: Machine, merge: Image, a: Attention, splits: int) -> Time:
    (loop,) = merge.loops("LDGSTS")
    blocks = a.rows * a.H
    found = small(m, merge, blocks, 3, splits, loop)
    return Time("attention_merge", {**found.limits, "L2": blocks * splits * (a.HD * 4 + 8) / m.l2}, room=found.room)
