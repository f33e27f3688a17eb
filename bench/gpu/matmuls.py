"""The CUDA C++ matmuls by themselves, as a model's pack has them, at 1 to 64 rows: their error against torch in
float32, equal bits, time against memory's speed and torch.mm.

With --sweep other tiles than the plan's are tried too (by nvcc), each of which must give the same bits.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import clock
import models
import numpy as np
import record
import torch
from subject import forms, kernel_shape

from swiftk.gpu import pack, pack_cuda
from swiftk.gpu.device import architecture

ROWS = (1, 8, 16, 32, 64)
COLD = 400e6  # bytes of copies of a matrix that are read in turn, so that none is in L2
LAUNCHES = 24  # of a recorded graph
_SLICES = ((4, 1), (2, 2), (1, 4), (1, 1))  # warps and blocks that have a slice of K each; or a warp has all
_MOST_ERROR = 1e-2  # of bf16 results, relative


class Images:
    """Loaded kernels: those of a pack by entry, and others that are compiled here."""

    def __init__(self, folder: Path, path: Path, arch: str) -> None:
        self.folder, self.arch, self.header, self.made = folder, arch, pack.read_header(path), {}
        data = path.read_bytes()
        self.data = data[8 + int.from_bytes(data[:8], "little") :]

    def function(self, name: str, symbol: str, shared: int) -> Any:
        if name not in self.made:
            file = self.folder / f"{name}.cubin"
            if name in self.header["kernels"]:
                entry = self.header["kernels"][name]
                file.write_bytes(self.data[entry["begin"] : entry["end"]])
            import cupy

            function = cupy.RawModule(path=str(file)).get_function(symbol)
            if shared > 48 << 10:
                function.max_dynamic_shared_size_bytes = shared
            self.made[name] = function
        return self.made[name]

    def compile(self, kernels: list[Any]) -> None:
        """On all cores."""

        def one(kernel: Any) -> None:
            source, to = pack_cuda.sources() / f"{kernel.source}.cu", self.folder / f"{kernel.name}.cubin"
            options = ["-cubin", f"-arch={self.arch}", "-std=c++17", "-fmad=false", "-o", str(to), str(source)]
            subprocess.run(["nvcc", *options, *kernel.defines("bfloat16")], check=True)

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(one, kernels))


def launch(function: Any, grid: tuple[int, int], threads: int, shared: int, arguments: list[Any]) -> None:
    """Tensors by address, None as null, integers as int32, on torch's current stream."""
    import cupy

    def given(a: Any) -> Any:
        if a is None:
            return np.uint64(0)
        return np.uint64(a.data_ptr()) if isinstance(a, torch.Tensor) else np.int32(a)

    with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
        function(grid, (threads,), tuple(map(given, arguments)), shared_mem=shared)


class Problem:
    """One matrix of a model: its weights in both layouts, inputs of 64 rows, and somewhere to write."""

    def __init__(self, plan: Any, images: Images, shape: dict, name: str) -> None:
        self.plan, self.images, self.shape, self.name = plan, images, shape, name
        found = {o[0]: o for o in plan.operations(shape)}[name]
        _, self.source, self.sizes, self.outputs, self.K, self.pairs = found
        self.matrix_rows = plan.rows_of_units(name, shape, 2)[0]
        self.bytes = 2 * self.matrix_rows * self.K
        self.copies = max(1, round(COLD / self.bytes))
        options = {"dtype": torch.bfloat16, "device": "cuda"}
        self.w = [torch.randn(self.matrix_rows, self.K, **options) * self.K**-0.5]
        self.w += [self.w[0].clone() for _ in range(self.copies - 1)]
        self.y = torch.randn(64, self.K, **options)
        self.x = torch.randn(64, shape["D"], device="cuda")
        self.n = torch.zeros(1, dtype=torch.int32, device="cuda")
        self.slot = torch.arange(64, dtype=torch.int32, device="cuda")
        half = (64, shape["HD"] // 2)
        self.cos, self.sin = torch.ones(half, device="cuda"), torch.zeros(half, device="cuda")
        self.packed: dict[int, list] = {}

    def weights(self, unit: int) -> list:
        """The packed copies, made by the kernel that makes them for the runtime."""
        if unit not in self.packed:
            units, columns = self.plan.packed_shape(self.outputs, self.K, unit)
            to = torch.empty(units * 16 * unit * columns, dtype=torch.bfloat16, device="cuda")
            mapping = self.plan.rows_of_units(self.name, self.shape, unit)
            function = self.images.function(f"pack.{self.name}", "pack", 0)
            launch(function, (1024, 1), 256, 0, [self.w[0], to, *mapping])
            self.packed[unit] = [to] + [to.clone() for _ in range(self.copies - 1)]
        return self.packed[unit]

    def kernel(self, n: int) -> Any:
        """The plan's for n rows."""
        tokens = next(most for most in self.plan.BUCKETS if n <= most)
        choice = self.plan.tile(self.outputs, self.plan.unit(self.outputs, self.pairs), tokens)
        return self.plan.Kernel(f"{self.name}.{tokens}", self.source, self.sizes, choice, self.outputs, self.K)

    def outputs_for(self, n: int) -> list:
        """Fresh tensors that the kernel writes."""
        s, half = self.shape, {"dtype": torch.bfloat16, "device": "cuda"}
        if self.source == "residual":
            return [self.x[:n].clone()]
        if self.source == "lm_head":
            return [torch.full((n, s["V"]), float("nan"), device="cuda")]
        if self.source == "gate_up":
            return [torch.full((n, s["F"]), float("nan"), **half)]
        return [torch.full((n, h, s["HD"]), float("nan"), **half) for h in (s["H"], s["KV"], s["KV"])]

    def start(self, kernel: Any, copy: int, to: list) -> None:
        first = [self.n, self.y, self.weights(kernel.tile["UNIT"])[copy % self.copies]]
        arguments = {
            "residual": [*first, None, *to],
            "gate_up": [*first, None, *to],
            "lm_head": [*first, *to],
            "qkv": [*first, None, self.slot, self.cos, self.sin, *to, None],
        }[self.source]
        function = self.images.function(kernel.name, kernel.source, kernel.shared)
        launch(function, (kernel.blocks, 1), kernel.threads, kernel.shared, arguments)

    def result(self, kernel: Any, n: int) -> Any:
        self.n.fill_(n)
        to = self.outputs_for(n)
        self.start(kernel, 0, to)
        torch.cuda.synchronize()
        return torch.cat([t.reshape(n, -1) for t in to], 1)

    def expected(self) -> Any:
        torch.backends.cuda.matmul.allow_tf32 = False
        out = torch.cat([self.y.float() @ part.float().T for part in self.w[0].split(16384)], 1)
        if self.source == "residual":
            return self.x + out
        if self.source == "gate_up":
            g, u = out.chunk(2, 1)
            return torch.nn.functional.silu(g) * u
        return out

    def seconds(self, run: Callable[[int], Any]) -> float:
        """Seconds of run(copy), with all copies in turn in one recorded graph."""
        count = max(LAUNCHES, self.copies)
        return clock.seconds(lambda: [run(copy % self.copies) for copy in range(count)], "cuda") / count

    def kernel_seconds(self, kernel: Any, n: int) -> float:
        self.n.fill_(n)
        to = self.outputs_for(n)
        return self.seconds(lambda copy: self.start(kernel, copy, to))

    def library_seconds(self, n: int) -> float:
        y = self.y[:n]
        out = torch.empty(n, self.matrix_rows, dtype=y.dtype, device="cuda")
        return self.seconds(lambda copy: torch.mm(y, self.w[copy].T, out=out))


def other_tiles(plan: Any, kernel: Any) -> Iterator[Any]:
    """Kernels that might be better than the plan's on a given machine."""
    tile = kernel.tile
    ways = [(tile["UNIT"], warps, 4, 1) for warps in (1, 2)]
    ways += [(2, warps, k_warps, cluster) for warps in (2, 4) for k_warps, cluster in _SLICES]
    ways += [(4, warps, k_warps, cluster) for warps in (1, 2) for k_warps, cluster in _SLICES]
    for tiles, warps, k_warps, cluster in dict.fromkeys(ways):
        for blocks in (1, 2, 3, 4):
            choice = {**tile, "TILES": tiles, "ROW_WARPS": warps, "K_WARPS": k_warps, "CLUSTER": cluster}
            choice["BLOCKS"] = blocks
            sums, one = (plan.shared_bytes(choice, s) for s in (0, 1))
            stages = min((228 * 1024 // blocks - 1024 - sums) // (one - sums), 16)
            way = f"{tiles} tiles, {warps} x {k_warps} warps, {cluster} blocks, {blocks} at once"
            found = replace(kernel, name=f"{kernel.name}, {way}", tile={**choice, "STAGES": stages})
            fits = stages >= 2 and found.threads * blocks <= 2048 and found.threads <= 1024
            if fits and found.tile != tile and found.tiles * cluster > plan.MULTIPROCESSORS * (blocks - 1):
                yield found


def equal(a: Any, b: Any) -> bool:
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def candidates(problem: Problem) -> dict[int, list[Any]]:
    """For each number of rows the other tiles."""
    return {n: list(other_tiles(problem.plan, problem.kernel(n))) for n in ROWS if n > 8}


def sweep(part: record.Part, problem: Problem, case: str, whole: Any) -> None:
    for n, kernels in candidates(problem).items():
        for kernel in kernels:
            same = equal(problem.result(kernel, n), whole[:n])
            rate = problem.bytes / problem.kernel_seconds(kernel, n)
            part.add(case, f"{n} rows, {kernel.name}", rate / 1e9, "GB/s")
            part.add(case, f"{n} rows, {kernel.name}: bits of the plan's", same, must=True)


def check(part: record.Part, problem: Problem, case: str) -> Any:
    """Numbers and bits before times; returns the results of all rows at once."""
    expected, whole = problem.expected(), problem.result(problem.kernel(64), 64)
    error = ((whole.float() - expected).norm() / expected.norm()).item()
    part.add(case, "error against torch in float32", error)
    part.add(case, "the error is that of rounding", error < _MOST_ERROR, must=True)
    different = [n for n in range(1, 64) if not equal(problem.result(problem.kernel(n), n), whole[:n])]
    part.add(case, "row counts with other bits", ", ".join(map(str, different)) or "none", must="none")
    return whole


def measure(part: record.Part, name: str, images: Images, ceiling: float | None) -> None:
    config, plan, shape = models.config(name, False), pack_cuda.plan(), images.header["shape"]
    total = dict.fromkeys(ROWS, 0.0)
    problems = [Problem(plan, images, shape, name) for name in ("qkv", "o_proj", "gate_up", "down", "lm_head")]
    if part.given.sweep:
        images.compile([kernel for p in problems for kernels in candidates(p).values() for kernel in kernels])
    for problem in problems:
        matrix = problem.name
        case = f"{models.label(name)}, {matrix}: {problem.matrix_rows} x {problem.K}"
        whole = check(part, problem, case)
        for n in ROWS:
            taken, library = problem.kernel_seconds(problem.kernel(n), n), problem.library_seconds(n)
            rate = problem.bytes / taken
            part.add(case, f"{n} rows", rate / 1e9, "GB/s", of_reads=rate / ceiling if ceiling else None)
            part.add(case, f"{n} rows, over torch.mm", library / taken)
            total[n] += taken * (1 if matrix == "lm_head" else config["num_hidden_layers"])
        if part.given.sweep:
            sweep(part, problem, case, whole)
    for n in ROWS:
        part.add(f"{models.label(name)}, matmuls of a step", f"{n} rows", total[n] * 1e3, "ms")
        part.add(f"{models.label(name)}, matmuls of a step", f"{n} rows over one", total[n] / total[1])


def best_reads() -> float:
    """Bytes/s of a kernel that only reads, with as many bulk copies in flight as there is room for."""
    from hardware import Streams

    streams = Streams(4 << 30)
    return streams.data.size / streams.seconds(partial(streams.read, ("read_bulk", 1, 1), 0, streams.data.size))


def main() -> None:
    parser = record.options(argparse.ArgumentParser(description=__doc__))
    parser.add_argument("--sweep", action="store_true", help="other tiles too")
    given = parser.parse_args()
    with record.Part("matmuls", given) as part, TemporaryDirectory() as folder:
        if given.device != "cuda" or architecture("cuda") == pack.STUB:
            part.note("matmuls by themselves need a GPU")
            return
        ceiling = part.attempt("reads", best_reads)
        for name in given.only or models.SHAPES:
            shape, arch = kernel_shape(name), architecture("cuda")
            path = pack.ensure(shape, arch, matmuls="cuda", draft_weights=forms(name))
            part.attempt(models.label(name), measure, part, name, Images(Path(folder), path, arch), ceiling)


if __name__ == "__main__":
    main()
