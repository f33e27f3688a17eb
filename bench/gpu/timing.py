"""How long a kernel takes: every limit by itself, the largest counts. predict.py adds kernels up to steps.

Of one kernel's blocks on a multiprocessor, a round of a loop takes the longest of
- one warp's cycles (images.py: chains of products, shuffles, barriers), as all warps wait for the slowest,
- what the warps of all blocks there ask of a scheduler or of a unit,
- memory's latency over the rounds that are fetched ahead.
A kernel takes no less than its bytes take memory, and L2 with what blocks read again.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from constants import Machine
from images import Image, Loop

FAR_AHEAD = 1 << 20  # rounds, where nothing is fetched in the loop
LOW_BIT = {3: 208 * 4, 4: 272 * 4, 8: 528 * 4}  # bytes of 16 rows and 128 columns (kernels/triton/low_bit.py)


def cdiv(a: float, b: float) -> int:
    return int(-(-a // b))


@dataclass(frozen=True)
class Time:
    """A kernel's seconds, from when its inputs are ready: before its first bytes, by each limit, behind the last."""

    name: str
    limits: dict[str, float]
    start: float = 0.0
    rest: float = 0.0  # seconds of waves of blocks after the first
    end: float = 0.0
    bytes: float = 0.0  # from memory
    ahead: float = 0.0  # bytes that it fetches before its inputs are ready, where it has room
    room: float = 0.0  # shared memory that its blocks take of a multiprocessor
    early: bool = False  # whether its launch may overlap the kernel before
    facts: dict[str, float] = field(default_factory=dict)

    @property
    def limit(self) -> str:
        return max(self.limits, key=self.limits.__getitem__)

    @property
    def body(self) -> float:
        return self.limits[self.limit] + self.rest

    @property
    def alone(self) -> float:
        return self.start + self.body + self.end


def sharing(m: Machine, image: Image, blocks: int) -> int:
    """Blocks that share a multiprocessor: they are spread as wide as they can be."""
    return max(1, min(image.resident, cdiv(blocks, m.multiprocessors)))


def room(m: Machine, image: Image, blocks: int) -> float:
    return sharing(m, image, blocks) * (image.shared + m.block_shared)


def round_cycles(m: Machine, loop: Loop, warps: int, blocks: int, ahead: float = FAR_AHEAD) -> dict[str, float]:
    """Cycles of a loop's round where `blocks` of a multiprocessor run it with `warps` each."""
    load = dict(loop.load)
    shared = load.pop("shared", 0) * warps * blocks
    units = {unit: cycles * max(warps * blocks / m.schedulers, 1) / m.reached for unit, cycles in load.items()}
    busiest = max(units, key=units.__getitem__)
    return {"chain": loop.cycles, busiest: units[busiest], "shared memory": shared / m.reached,
            "in flight": m.busy_latency * m.clock / ahead}


def straight(m: Machine, image: Image, blocks: int, *loops: Loop) -> float:
    """Seconds to issue once what is in no loop."""
    count = len(image.code) - sum(len(loop.body) for loop in loops)
    return count * max(1, image.warps * sharing(m, image, blocks) / m.schedulers) / m.clock


def makespan(times: Iterable[float], slots: int) -> float:
    """Blocks start in order, each where one has ended."""
    ends = [0.0] * slots
    for taken in times:
        heapq.heapreplace(ends, ends[0] + taken)
    return max(ends)


def small(m: Machine, image: Image, blocks: int, loads: int, size: float = 0, rounds: float = 0,
          loop: Loop | None = None) -> Time:
    """A kernel of little data, `size` bytes of L2: `loads` that wait for each other, then rounds of a loop."""
    at_once, loops = sharing(m, image, blocks), [loop] if loop else []
    chain = loads * m.l2_latency + straight(m, image, blocks, *loops)
    chain += sum(rounds * max(round_cycles(m, found, image.warps, at_once).values()) / m.clock for found in loops)
    waves = cdiv(blocks, m.multiprocessors * image.resident)
    return Time(image.name, {"chain": waves * chain, "L2": size / m.l2}, room=room(m, image, blocks), early=image.early)


def cpp_matmul(m: Machine, image: Image, rows: int) -> Time:
    """kernels/cuda: blocks that stay, each with a warp that fetches weights, one for y, the others multiply."""
    c, tokens = image.constants, min(rows, image.constants["TOKENS"])
    columns = cdiv(c["K"], 256) * 256
    token_tiles = cdiv(rows, c["TOKENS"])
    tiles = c["BYTES"] // (2 * columns * c["ROWS"])
    slices = c["K_WARPS"] * c["CLUSTER"]
    rounds = columns // 256 * (4 if slices == 1 else 1)
    turns = cdiv(tiles * token_tiles, c["GRID"] // c["CLUSTER"])
    weights, y = c["ROWS"] * 128 * c["K_WARPS"], tokens * 128 * c["K_WARPS"]

    multiply, products = image.loops("HMMA")[0], c["TILES"] * c["TOKENS"] // 8 * 4
    at_once, consumers = sharing(m, image, c["GRID"]), image.warps - 2
    cycles = {name: value * products / multiply.count("HMMA")  # one round of those that are unrolled
              for name, value in round_cycles(m, multiply, consumers, at_once).items()}
    # The loop of a stage: of y, around one that copies four pieces of each lane; of weights, around one for each copy.
    pieces, copies = cdiv(tokens * c["K_WARPS"] * 8, 32), c["TILES"] * c["ROW_WARPS"] // c["UNIT"]
    four, stage = image.loops("LDGSTS")[0], image.around("LDGSTS", "ARRIVES.LDGSTS")
    copy, bulk = image.loops("UBLKCP")[0], image.around("UBLKCP", "SYNCS.ARRIVE")
    cycles["warp that fetches y"] = stage + pieces // 4 * four.cycles
    cycles["warp that fetches weights"] = bulk + copies * (copy.cycles + m.bulk_copy)
    cycles["in flight"] = m.busy_latency * m.clock / c["STAGES"]
    cycles["shared memory"] += at_once * (weights + y) / m.shared_port / m.reached
    items = tiles * token_tiles * c["CLUSTER"]
    moved = items * rounds * (weights + y)
    busy = min(c["GRID"], m.multiprocessors)
    limits = {name: turns * rounds * value / m.clock for name, value in cycles.items()}
    limits |= {"memory": c["BYTES"] / m.reads, "L2": moved / m.l2, "port": moved / (busy * m.l2_port * m.clock)}
    ends = m.tile_end + (m.cluster_barrier if c["CLUSTER"] > 1 else 0)
    return Time(image.name, limits, start=m.memory_latency, end=ends, bytes=c["BYTES"],
                ahead=min(c["GRID"] * c["STAGES"] * weights, c["BYTES"]), room=room(m, image, c["GRID"]),
                early=image.early,
                facts={"round": max(cycles.values()), "bytes a round": weights + y, "rounds": turns * rounds})


def triton_matmul(m: Machine, image: Image, rows: int) -> Time:
    """kernels/triton: a block for each tile, which first waits for its inputs; those beyond a wave come later."""
    c, tokens = image.constants, min(rows, image.constants["TOKENS"])
    kind = image.name.split(".")[0]
    parts, columns = (2 if kind in ("qkv", "gate_up") else 1), c.get("K", c.get("D", 0))
    tiles = {"qkv": lambda: (c["H"] + 2 * c["KV"]) * cdiv(c["HD"] // 2, c["ROWS"]),
             "gate_up": lambda: cdiv(c["F"], c["ROWS"]), "lm_head": lambda: cdiv(c["V"], c["ROWS"])}
    outputs = tiles.get(kind, lambda: cdiv(c["N"], c["ROWS"]))()
    token_tiles = cdiv(rows, c["TOKENS"])
    loops = image.loops("HMMA")
    wide = c["BLOCK_K"] * (4 if c["BITS"] else 1)
    rounds = cdiv(columns, wide)
    per_tile = LOW_BIT[c["BITS"]] * wide // 128 if c["BITS"] else 16 * wide * 2
    weights, y = parts * c["ROWS"] // 16 * per_tile, tokens * wide * 2
    stage = weights + c["TOKENS"] * wide * 2
    ahead = max(image.shared // stage, 1)
    products = parts * c["ROWS"] * c["TOKENS"] * wide / (16 * 8 * 16) / image.warps  # in a warp's round
    loop = loops[0] if loops else Loop(image.code)  # short ones are unrolled
    unrolled = loop.count("HMMA") / products

    def wave(blocks: int) -> dict[str, float]:
        cycles = round_cycles(m, loop, image.warps, sharing(m, image, blocks), ahead / unrolled)
        moved = blocks * rounds * (weights + y)
        limits = {name: rounds / unrolled * value / m.clock for name, value in cycles.items()}
        memory = blocks * rounds * weights / token_tiles / m.reads
        return {**limits, "memory": memory, "L2": moved / m.l2,
                "port": moved / (min(blocks, m.multiprocessors) * m.l2_port * m.clock)}

    blocks, slots = outputs * token_tiles, m.multiprocessors * image.resident
    first, last = wave(min(blocks, slots)), wave(blocks % slots) if blocks > slots and blocks % slots else {}
    whole = max(blocks // slots - 1, 0) * max(first.values())
    return Time(image.name, first, start=m.l2_latency + m.memory_latency + straight(m, image, blocks, loop) / 2,
                rest=whole + max(last.values(), default=0.0), end=m.tile_end, bytes=outputs * rounds * weights,
                room=room(m, image, blocks), early=image.early,
                facts={"round": max(first.values()) * m.clock / rounds, "bytes a round": weights + y, "rounds": rounds})


def matmul(m: Machine, image: Image, rows: int) -> Time:
    return (cpp_matmul if "GRID" in image.constants else triton_matmul)(m, image, rows)
