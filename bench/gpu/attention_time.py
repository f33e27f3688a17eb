"""Attention's launches in time: which programs there are, and how many tiles of keys each goes through in turn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from constants import Machine
from images import Image, Pack
from timing import Time, cdiv, makespan, room, round_cycles, sharing, small, straight

SPLITS = ((256, 4096), (2048, None))  # keys of a split, up to which position (kernels/triton/span.py)


@dataclass(frozen=True)
class Attention:
    """Rows behind a context: a chain, or a tree whose longest path is so deep."""

    H: int
    KV: int
    HD: int
    context: int
    rows: int
    depth: int = 0  # 0: a chain

    @property
    def length(self) -> int:
        return self.context + (self.depth or self.rows)

    @property
    def group(self) -> int:
        return self.H // self.KV

    @property
    def cached(self) -> float:
        """Bytes of keys and values of a layer, in 16 bits."""
        return 4 * self.KV * self.HD * self.length


def split_ends(length: int, rule: Iterable[tuple[int, int | None]] = SPLITS) -> list[int]:
    """Position behind each split of so many keys."""
    ends, at = [], 0
    for keys, until in rule:
        while at < length and (until is None or at < until):
            at += keys
            ends.append(min(at, length))
    return ends


def begin(m: Machine, image: Image, blocks: int) -> float:
    """Until a program of attention has its first keys: the count of rows, their positions, then queries and keys."""
    return 2 * m.l2_latency + m.memory_latency + straight(m, image, blocks, *image.loops("HMMA")[:2])


def rounds(m: Machine, image: Image, blocks: int) -> tuple[float, float]:
    """Seconds of a tile that all rows see whole, and of one that needs masks."""
    stage = 4 * image.constants["KEYS"] * image.constants["HD"]
    ahead, at_once = max(image.shared // stage, 1), sharing(m, image, blocks)
    full, masked = image.loops("HMMA")[:2]
    return (max(round_cycles(m, full, image.warps, at_once, ahead).values()) / m.clock,
            max(round_cycles(m, masked, image.warps, at_once).values()) / m.clock)


def read_again(m: Machine, a: Attention, times: int) -> dict[str, float]:
    """Keys that several query tiles read: from L2, as long as that holds a layer's."""
    held = a.cached < m.l2_size
    return {"memory": a.cached * (1 if held else times) / m.reads, "L2": a.cached * times / m.l2}


def launches(m: Machine, kernels: Pack, a: Attention) -> list[Time]:
    """attention_split and attention_merge: of each split, what follows the last whole tile token by token."""
    image, merge = kernels["attention_split"], kernels["attention_merge"]
    keys, query_rows = image.constants["KEYS"], image.constants["QROWS"]
    tiles, ends = cdiv(a.rows * a.group, query_rows), split_ends(a.length)
    blocks = len(ends) * a.KV * tiles
    whole_end, tokens = a.context // keys * keys, min(cdiv(query_rows, a.group), a.rows)
    one, branch = rounds(m, image, blocks)
    first, times = begin(m, image, blocks), []
    for start, end in zip([0, *ends], ends):
        whole = max(min(end, whole_end) - start, 0) // keys
        apart = cdiv(max(end - max(start, whole_end), 0), keys) * tokens
        tail = m.l2_latency + m.memory_latency + apart * branch if apart else 0
        times.append(first + whole * one + tail)
    parts = a.rows * a.H * len(ends) * (a.HD + 2) * 4
    limits = read_again(m, a, tiles)
    limits |= {"chain": makespan(times * (a.KV * tiles), m.multiprocessors * image.resident),
               "L2": limits["L2"] + parts / m.l2}
    padded = 1 << (len(ends) - 1).bit_length()
    (loop,) = merge.loops("LDGSTS")
    return [Time("attention_split", limits, bytes=a.cached, room=room(m, image, blocks), early=image.early),
            small(m, merge, a.rows * a.H, 2, parts, padded, loop)]


def serial(m: Machine, kernels: Pack, a: Attention) -> Time:
    """attention_serial, for a prompt's rows: a program for each query tile goes through all splits."""
    image = kernels["attention_serial"]
    keys, query_rows = image.constants["KEYS"], image.constants["QROWS"]
    tiles = cdiv(a.rows * a.group, query_rows)
    blocks = a.KV * tiles
    one, masked = rounds(m, image, blocks)
    times = []
    for tile in range(tiles):
        seen = a.context + min((tile + 1) * query_rows // a.group, a.rows)
        splits = len(split_ends(seen))
        times += [begin(m, image, blocks) + splits * m.l2_latency + (seen // keys) * one + 2 * masked] * a.KV
    limits = {**read_again(m, a, tiles), "chain": makespan(times, m.multiprocessors * image.resident)}
    return Time("attention_serial", limits, bytes=a.cached, room=room(m, image, blocks), early=image.early)
