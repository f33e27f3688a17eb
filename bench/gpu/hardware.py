"""What the card itself can do: reads, copies, launches, and the vendor's matrix products at few rows."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import launches
import library
import numpy as np
import record

_SOURCE = Path(__file__).with_name("streams.cu")
_STREAM = 8 << 30
_BULK = {"box": 16384, "shared": 13 * 16384 + 13 * 8}  # as in streams.cu
_SIZES = (8.4, 16.8, 33.6, 67.1, 134.2, 300.0)  # MB: matrices of a 1 B to a 13 B model
# (kernel, threads, blocks a multiprocessor)
_WAYS = (("read_4", 512, 4), ("read_4", 256, 8), ("read_8", 512, 3), ("read_8", 256, 6), ("read_16", 256, 3),
         ("read_16", 128, 6))


class Streams:
    """The kernels of streams.cu over one buffer of noise."""

    def __init__(self, size: int) -> None:
        import cupy

        self.cupy = cupy
        module = cupy.RawModule(code=_SOURCE.read_text(), options=("-std=c++17",))
        self.kernels = {name: module.get_function(name) for name in ("read_4", "read_8", "read_16", "nothing")}
        attributes = cupy.cuda.runtime.getDeviceProperties(0)
        self.multiprocessors = attributes["multiProcessorCount"]
        self.facts = {"multiprocessors": self.multiprocessors, "L2 MB": attributes["l2CacheSize"] / 2**20}
        if attributes["major"] >= 9:
            self.kernels["read_bulk"] = module.get_function("read_bulk")
            self.kernels["read_bulk"].max_dynamic_shared_size_bytes = _BULK["shared"]
        noise = cupy.asarray(np.random.default_rng(0).integers(0, 256, 64 << 20, dtype=np.uint8))
        self.data = cupy.empty(size, cupy.uint8)
        for at in range(0, size, noise.size):
            self.data[at : at + noise.size] = noise[: size - at]
        self.out = cupy.zeros(1 << 16, cupy.uint32)
        self.stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.runtime.deviceSynchronize()

    def read(self, way: tuple[str, int, int], begin: int, size: int) -> int:
        """Starts a kernel over that part of the buffer; returns the bytes it reads."""
        name, threads, blocks = way
        unit = _BULK["box"] if name == "read_bulk" else 16 * threads * int(name.rpartition("_")[2])
        count = size // unit
        grid = (min(blocks * self.multiprocessors, count),)
        given = np.int64(count if name == "read_bulk" else count * unit // 16)
        shared = _BULK["shared"] if name == "read_bulk" else 0
        self.kernels[name](grid, (threads,), (self.data[begin:], given, self.out), shared_mem=shared)
        return count * unit

    def seconds(self, run: Callable[[], Any], repeats: int = 9) -> float:
        """Median device time of what run() starts, as one recorded graph; kernels are loaded before."""
        with self.stream:
            run()
            self.stream.synchronize()
            self.stream.begin_capture()
            run()
            graph = self.stream.end_capture()
            taken = []
            for _ in range(repeats + 2):
                events = [self.cupy.cuda.Event() for _ in range(2)]
                events[0].record(self.stream)
                graph.launch(self.stream)
                events[1].record(self.stream)
                events[1].synchronize()
                taken.append(self.cupy.cuda.get_elapsed_time(*events) / 1e3)
        return median(taken[2:])


def measure_reads(part: record.Part, streams: Streams, ways: tuple[tuple[str, int, int], ...]) -> tuple[str, int, int]:
    """Rate of a long stream in every way; returns the best."""
    rates, size = {}, streams.data.size
    for way in ways:
        taken = part.attempt(str(way), streams.seconds, partial(streams.read, way, 0, size))
        if taken:
            rates[way] = size / taken
            part.add("reads", f"{way[0]}, {way[1]} threads, {way[2]} blocks", rates[way] / 1e9, "GB/s")
    best = max(rates, key=rates.get)
    known = part.found["figures"].get("read_bytes_per_s", 0)
    part.keep("read_bytes_per_s", max(known, rates[best]))
    return best


def _each(streams: Streams, way: tuple[str, int, int], starts: range, size: int) -> None:
    for at in starts:
        streams.read(way, at, size)


def measure_bursts(part: record.Part, streams: Streams, way: tuple[str, int, int]) -> None:
    """Reads of a matrix each, one kernel after another, none of them in a cache."""
    points = []
    for megabytes in _SIZES:
        size = int(megabytes * 1e6) >> 18 << 18  # whole tiles of every kernel
        starts = range(0, min(48, streams.data.size // size) * size, size)
        taken = streams.seconds(partial(_each, streams, way, starts, size)) / len(starts)
        points.append((size, taken))
        part.add("bursts", f"{way[0]}, {megabytes} MB a kernel", size / taken / 1e9, "GB/s")
    (a, b), (c, d) = points[0], points[-1]
    slope = (d - b) / (c - a)
    part.add("bursts", f"{way[0]}, start of a kernel", (b - slope * a) * 1e6, "us")
    part.keep(f"bursts_{way[0]}", points)


def measure_copies(part: record.Part, streams: Streams) -> None:
    half = streams.data.size // 2
    source, target = streams.data[:half], streams.data[half : 2 * half]
    runtime = streams.cupy.cuda.runtime
    taken = streams.seconds(
        lambda: runtime.memcpyAsync(target.data.ptr, source.data.ptr, half, runtime.memcpyDeviceToDevice,
                                    streams.stream.ptr)
    )
    part.add("copy on the card", "read and written", 2 * half / taken / 1e9, "GB/s")


def measure_gap(part: record.Part, streams: Streams) -> None:
    count, blocks = 2000, streams.multiprocessors
    taken = streams.seconds(lambda: [streams.kernels["nothing"]((blocks,), (128,), ()) for _ in range(count)])
    part.add("launches in a graph", f"empty kernel, {blocks} blocks", taken / count * 1e6, "us")


def measure(part: record.Part, streams: Streams, ways: tuple[tuple[str, int, int], ...]) -> None:
    best = measure_reads(part, streams, ways)
    part.attempt("bursts", measure_bursts, part, streams, best)


def main() -> None:
    given = record.options(argparse.ArgumentParser(description=__doc__)).parse_args()
    with record.Part("hardware", given) as part:
        if given.device != "cuda":
            part.note("reads, copies and launches need a GPU")
            library.measure(part)
            return
        streams = part.attempt("streams", Streams, _STREAM)
        if streams:
            part.keep("card", streams.facts)
            part.attempt("reads", measure, part, streams, _WAYS)
            part.attempt("copies", measure_copies, part, streams)
            part.attempt("gap", measure_gap, part, streams)
        part.attempt("library", library.measure, part)
        part.attempt("launches", launches.measure, part)
        if streams and "read_bulk" in streams.kernels:
            part.attempt("reads", measure, part, streams, (("read_bulk", 1, 1),))


if __name__ == "__main__":
    main()
