"""The CUDA C++ matmuls by themselves: time at 1 to 64 rows against memory's speed and torch.mm, and equal bits.

    python bench/gpu/matmuls.py [--sweep] [--only 7b] [--seconds 55]

Needs a GPU of compute capability 9, nvcc, CuPy and torch, and no installation. With --sweep other tiles than the plan's
are tried too, each of which must give the same bits.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels" / "cuda"
FLAGS = {"dtype": "bfloat16", "qk_norm": False, "qkv_bias": False, "o_bias": False, "mlp_bias": False}
MODELS = {
    "7b": {"D": 4096, "H": 32, "KV": 32, "HD": 128, "F": 11008, "V": 32000, "layers": 32},
    "1b": {"D": 2048, "H": 32, "KV": 8, "HD": 64, "F": 8192, "V": 128256, "layers": 16},
    "8b": {"D": 4096, "H": 32, "KV": 8, "HD": 128, "F": 14336, "V": 128256, "layers": 32},
    "13b": {"D": 5120, "H": 40, "KV": 40, "HD": 128, "F": 13824, "V": 32000, "layers": 40},
}
ROWS = (1, 8, 16, 32, 64)
COLD = 400e6  # bytes of copies of a matrix that are read in turn, so that none is in L2
LAUNCHES = 24  # of a recorded graph


def load_plan() -> Any:
    spec = importlib.util.spec_from_file_location("swiftk_cuda_plan", KERNELS / "plan.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Images:
    """Kernels by their compile command, each compiled once; a list of commands is compiled on all cores."""

    def __init__(self, arch: str) -> None:
        self.arch, self.folder, self.paths = arch, Path(tempfile.mkdtemp()), {}

    def path(self, command: tuple[str, ...]) -> Path:
        return self.paths.setdefault(command, self.folder / f"{len(self.paths)}.cubin")

    def command(self, source: Path, defines: list[str]) -> tuple[str, ...]:
        return ("nvcc", "-cubin", f"-arch={self.arch}", "-std=c++17", "-fmad=false", str(source), *defines)

    def build(self, commands: list[tuple[str, ...]]) -> None:
        def one(command: tuple[str, ...]) -> None:
            path = self.path(command)
            if not path.exists():
                subprocess.run([*command, "-o", str(path)], check=True)

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(one, dict.fromkeys(commands)))

    @functools.cache  # noqa: B019 - one for the whole run
    def function(self, command: tuple[str, ...], name: str, shared: int) -> Any:
        import cupy

        self.build([command])
        function = cupy.RawModule(path=str(self.path(command))).get_function(name)
        if shared > 48 << 10:
            function.max_dynamic_shared_size_bytes = shared
        return function


def launch(function: Any, grid: tuple[int, int], threads: int, shared: int, arguments: list[Any]) -> None:
    """Tensors by address, None as null, integers as int32, on torch's current stream."""
    import cupy
    import numpy as np
    import torch

    def given(a: Any) -> Any:
        if a is None:
            return np.uint64(0)
        return np.uint64(a.data_ptr()) if isinstance(a, torch.Tensor) else np.int32(a)

    with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
        function(grid, (threads,), tuple(map(given, arguments)), shared_mem=shared)


def seconds(runs: list[Callable[[], Any]]) -> float:
    """Median time of one of the runs, which are recorded one after another."""
    import torch

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for run in runs[:2]:
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for run in runs:
            run()
    taken = []
    for _ in range(12):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end) / 1e3 / len(runs))
    return median(taken[2:])


def measure_reads(images: Images) -> float:
    """Bytes per second of a kernel that only reads, with as many bulk copies in flight as there is room for."""
    import cupy
    import numpy as np
    import torch

    shared, box = 13 * 16384 + 13 * 8, 16384
    command = images.command(Path(__file__).with_name("streams.cu"), [])
    function = images.function(command, "read_bulk", shared)
    data = torch.randint(0, 255, (4 << 30,), dtype=torch.uint8, device="cuda")
    out = torch.zeros(1024, dtype=torch.int32, device="cuda")
    count = torch.cuda.get_device_properties(0).multi_processor_count

    def run() -> None:
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            arguments = (np.uint64(data.data_ptr()), np.int64(data.numel() // box), np.uint64(out.data_ptr()))
            function((count,), (1,), arguments, shared_mem=shared)

    return data.numel() / seconds([run, run])


class Problem:
    """One matrix of a model: its weights in both layouts, inputs of 64 rows, and somewhere to write."""

    def __init__(self, plan: Any, images: Images, shape: dict, name: str) -> None:
        import torch

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
        import torch

        if unit not in self.packed:
            units, columns = self.plan.packed_shape(self.outputs, self.K, unit)
            to = torch.empty(units * 16 * unit * columns, dtype=torch.bfloat16, device="cuda")
            mapping = self.plan.rows_of_units(self.name, self.shape, unit)
            command = self.images.command(KERNELS / "pack.cu", [f"-DSWIFTK_K={self.K}", f"-DSWIFTK_UNIT={unit}"])
            launch(self.images.function(command, "pack", 0), (1024, 1), 256, 0, [self.w[0], to, *mapping])
            self.packed[unit] = [to] + [to.clone() for _ in range(self.copies - 1)]
        return self.packed[unit]

    def kernel(self, tokens: int) -> Any:
        choice = self.plan.tile(self.outputs, self.plan.unit(self.outputs, self.pairs), tokens)
        return self.plan.Kernel(f"{self.name}.{tokens}", self.source, self.sizes, choice, self.outputs, self.K)

    def command(self, kernel: Any) -> tuple[str, ...]:
        return self.images.command(KERNELS / f"{kernel.source}.cu", kernel.defines("bfloat16"))

    def outputs_for(self, n: int) -> list:
        """Fresh tensors that the kernel writes."""
        import torch

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
        function = self.images.function(self.command(kernel), kernel.source, kernel.shared)
        launch(function, (kernel.blocks, 1), kernel.threads, kernel.shared, arguments)

    def result(self, kernel: Any, n: int) -> Any:
        import torch

        self.n.fill_(n)
        to = self.outputs_for(n)
        self.start(kernel, 0, to)
        torch.cuda.synchronize()
        return torch.cat([t.reshape(n, -1) for t in to], 1)

    def expected(self) -> Any:
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
        out = torch.cat([self.y.float() @ part.float().T for part in self.w[0].split(16384)], 1)
        if self.source == "residual":
            return self.x + out
        if self.source == "gate_up":
            g, u = out.chunk(2, 1)
            return torch.nn.functional.silu(g) * u
        return out

    def seconds(self, kernel: Any, n: int) -> float:
        self.n.fill_(n)
        to = self.outputs_for(n)
        return seconds([lambda i=i: self.start(kernel, i, to) for i in range(max(LAUNCHES, self.copies))])

    def library_seconds(self, n: int) -> float:
        import torch

        y = self.y[:n]
        out = torch.empty(n, self.matrix_rows, dtype=y.dtype, device="cuda")
        runs = range(max(LAUNCHES, self.copies))
        return seconds([lambda i=i: torch.mm(y, self.w[i % self.copies].T, out=out) for i in runs])


def other_tiles(plan: Any, kernel: Any) -> Iterator[tuple[str, Any]]:
    """The plan's tile, and what might be better on a given machine."""
    yield "plan", kernel
    tile = kernel.tile
    narrow = {"ROW_WARPS": 1, "K_WARPS": 4, "CLUSTER": 1}
    wide = {"TILES": 2, "ROW_WARPS": 4, "K_WARPS": 1}
    ways = {"narrow": narrow, "two units": {**narrow, "ROW_WARPS": 2}, "turns": {**wide, "CLUSTER": 1}}
    ways |= {"cluster": {**wide, "CLUSTER": 4}, "eight warps": {**wide, "K_WARPS": 2, "CLUSTER": 2}}
    for name, way in ways.items():
        for blocks in (1, 2, 3):
            choice = {**tile, **way, "BLOCKS": blocks}
            sums, one = (plan.shared_bytes(choice, s) for s in (0, 1))
            stages = min((228 * 1024 // blocks - 1024 - sums) // (one - sums), 16)
            found = replace(kernel, tile={**choice, "STAGES": stages})
            if stages >= 2 and found.threads * blocks <= 1024 and found.tile != tile:
                yield f"{name}, {blocks} blocks, {stages} stages", found


def measure(plan: Any, problem: Problem, ceiling: float, sweep: bool, deadline: float) -> list[float]:
    """Prints the table of a matrix; returns seconds by row count."""
    import torch

    expected, whole, times = problem.expected(), problem.result(problem.kernel(64), 64), []
    for n in ROWS:
        kernel = problem.kernel(next(t for t in plan.BUCKETS if n <= t))
        found = problem.result(kernel, n)
        equal = torch.equal(found.view(torch.uint8), whole[:n].view(torch.uint8))
        error = ((found.float() - expected[:n]).norm() / expected[:n].norm()).item()
        times.append(problem.seconds(kernel, n))
        library = problem.library_seconds(n)
        rate = problem.bytes / times[-1]
        print(
            f"{problem.name:8} {problem.matrix_rows:6} x {problem.K:5} {n:3} rows {times[-1] * 1e6:8.2f} us "
            f"{rate / 1e9:6.0f} GB/s {rate / ceiling:4.0%}  v {times[-1] / times[0]:5.3f}  "
            f"torch.mm {library * 1e6:8.2f} us {library / times[-1]:5.2f}x  error {error:.1e}  "
            f"bits {'equal' if equal else 'DIFFER'}",
            flush=True,
        )
        if not sweep or time.monotonic() > deadline or n == 1:
            continue
        rows = 1 if n == 8 else n
        tried = list(other_tiles(plan, kernel))
        problem.images.build([problem.command(k) for _, k in tried])
        for name, other in tried:
            taken = problem.seconds(other, rows)
            same = torch.equal(problem.result(other, n).view(torch.uint8), whole[:n].view(torch.uint8))
            print(f"    {rows:3} rows, {name:32} {taken * 1e6:8.2f} us {'' if same else 'OTHER BITS'}", flush=True)
    return times


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sweep", action="store_true", help="other tiles too")
    parser.add_argument("--only", choices=MODELS, action="append", help="a model")
    parser.add_argument("--seconds", type=float, default=55)
    given, _ = parser.parse_known_args()  # bench/on_gpu.sh has options that are not for this
    deadline = time.monotonic() + given.seconds
    plan, images = load_plan(), Images("sm_90a")
    ceiling = measure_reads(images)
    print(f"{torch.cuda.get_device_name()}: a kernel that only reads: {ceiling / 1e9:.0f} GB/s", flush=True)
    for model in given.only or MODELS:
        shape = {**FLAGS, **MODELS[model]}
        kernels = list(plan.kernels(shape))
        images.build([images.command(KERNELS / f"{k.source}.cu", k.defines("bfloat16")) for k in kernels])
        total = [0.0] * len(ROWS)
        for name in ("qkv", "o_proj", "gate_up", "down", "lm_head"):
            if time.monotonic() > deadline:
                raise SystemExit("out of time")
            problem = Problem(plan, images, shape, name)
            times = measure(plan, problem, ceiling, given.sweep, deadline)
            total = [t + s * (1 if name == "lm_head" else shape["layers"]) for t, s in zip(total, times)]
        rows = ", ".join(f"{n}: {t * 1e3:.3f} ms v {t / total[0]:.3f}" for n, t in zip(ROWS, total))
        print(f"== {model}, matmuls of a step by rows: {rows}\n", flush=True)


if __name__ == "__main__":
    main()
