"""Attention's launches in time: which programs there are, and how many tiles of keys each goes through in turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from constants import Machine
from images import Image
from timing import Time, cdiv, makespan, room, round_cycles, sharing, small, straight

from swiftk import pack

split_ends = pack.manifest().split_ends


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

    def parts(self, splits: int) -> float:
        """Bytes of what is known of the rows' splits before they are joined."""
        return self.rows * self.H * splits * (self.HD + 2) * 4


def begin(m: Machine, image: Image, blocks: int) -> float:
    """Until a program of attention has its first keys: the count of rows, their positions, then queries and keys."""
    return 2 * m.l2_latency + m.memory_latency + straight(m, image, blocks, *image.loops("HMMA")[:2])


def tile_rounds(m: Machine, image: Image, blocks: int) -> tuple[float, float]:
    """Seconds of a tile of keys that all rows see whole, and of one that needs masks."""
    c, at_once = image.constants, sharing(m, image, blocks)
    ahead = max(image.shared // (4 * c["KEYS"] * c["HD"]), 1)
    full, masked = image.loops("HMMA")[:2]
    return (max(round_cycles(m, full, image.warps, at_once, ahead).values()) / m.clock,
            max(round_cycles(m, masked, image.warps, at_once).values()) / m.clock)


def query_tiles(a: Attention, query_rows: int, keys: int) -> list[tuple[int, int]]:
    """For each query tile: where the whole tiles end that all its rows see, and where its last row's keys end."""
    if a.depth:
        return [(a.context // keys * keys,) * 2] * cdiv(a.rows * a.group, query_rows)
    tokens = ((row // a.group, min((row + query_rows - 1) // a.group, a.rows - 1))
              for row in range(0, a.rows * a.group, query_rows))
    return [((a.context + first + 1) // keys * keys, a.context + last + 1) for first, last in tokens]


def split(m: Machine, image: Image, a: Attention) -> Time:
    """attention_split: a program for each query tile, KV head and split, of a tree as far as its rows share keys."""
    keys, ends = image.constants["KEYS"], split_ends(a.length)
    tiles = query_tiles(a, image.constants["QROWS"], keys)
    blocks = len(ends) * a.KV * len(tiles)
    (one, masked), first, times = tile_rounds(m, image, blocks), begin(m, image, blocks), []
    for start, end in zip([0, *ends], ends):
        for whole, last in tiles:
            rest = cdiv(max(min(end, last) - max(start, whole), 0), keys)
            again = m.memory_latency if rest else 0  # the second loop fetches its first tile anew
            times += [first + max(min(end, whole) - start, 0) // keys * one + again + rest * masked] * a.KV
    limits = {"chain": makespan(times, m.multiprocessors * image.resident), "memory": a.cached / m.reads,
              "L2": (a.cached * len(tiles) + a.parts(len(ends))) / m.l2}
    return Time(image.name, limits, bytes=a.cached, room=room(m, image, blocks), early=image.early)


def merge(m: Machine, image: Image, a: Attention) -> Time:
    """attention_merge: a warp for each row and head joins the splits that its row has."""
    splits = len(split_ends(a.length))
    return small(m, image, a.rows * a.H, 2, a.parts(splits), splits, image.loops("LDGSTS")[0])


def branch(m: Machine, image: Image, a: Attention) -> Time:
    """attention_branch: a program for each token and KV head goes on with the last splits."""
    keys, query_rows = image.constants["KEYS"], image.constants["QROWS"]
    own, ends = a.context // keys * keys, split_ends(a.length)
    tails = [cdiv(end - max(start, own), keys) for start, end in zip([0, *ends], ends) if end > own]
    blocks = a.rows * a.KV * cdiv(a.group, query_rows)
    tile, around = image.loops("HMMA")[:2]  # and for each split that goes on, what is around its tiles
    taken = 2 * m.l2_latency + straight(m, image, blocks, around)
    taken += sum(tails) * max(round_cycles(m, tile, image.warps, sharing(m, image, blocks)).values()) / m.clock
    taken += len(tails) * ((around.cycles - tile.cycles) / m.clock + m.memory_latency)
    waves = cdiv(blocks, m.multiprocessors * image.resident)
    keys_read = a.rows * a.KV * 4 * a.HD * (a.length - own)
    return Time(image.name, {"chain": waves * taken, "L2": (2 * a.parts(len(tails)) + keys_read) / m.l2},
                room=room(m, image, blocks), early=image.early)


def launches(m: Machine, kernels: Mapping[str, Image], a: Attention) -> list[Time]:
    """Kernels for a few rows, as csrc/cuda/ops.cc launches them."""
    along = [branch(m, kernels["attention_branch"], a)] if a.depth else []
    return [split(m, kernels["attention_split"], a), *along, merge(m, kernels["attention_merge"], a)]


def serial(m: Machine, kernels: Mapping[str, Image], a: Attention) -> Time:
    """attention_serial, for a prompt's rows: a program for each query tile and KV head goes through all splits."""
    image = kernels["attention_serial"]
    keys, tiles = image.constants["KEYS"], query_tiles(a, image.constants["QROWS"], image.constants["KEYS"])
    blocks = a.KV * len(tiles)
    (one, masked), first, times = tile_rounds(m, image, blocks), begin(m, image, blocks), []
    for whole, last in tiles:
        again = len(split_ends(last)) * m.l2_latency
        times += [first + again + whole // keys * one + cdiv(last - whole, keys) * masked] * a.KV
    limits = {"chain": makespan(times, m.multiprocessors * image.resident), "memory": a.cached / m.reads,
              "L2": a.cached * len(tiles) / m.l2}
    return Time(image.name, limits, bytes=a.cached, room=room(m, image, blocks), early=image.early)
