"""The kernels of a pack in CUDA C++, compiled by nvcc: matmuls with the layout of weights that they read, and the gate.

kernels/cuda/plan.py holds tiles, launch parameters and layouts as data; this turns them into entries of a pack.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from .errors import DeviceError
from .folders import kernel_sources, load_source
from .pack_compile import Image, cores

MATMULS = ("qkv", "o_proj", "gate_up", "down", "lm_head")
_PACK_WARPS = 8


@dataclass(frozen=True)
class Entry:
    """A kernel of the pack: what manifest.py's entries have, for a source in CUDA C++."""

    name: str
    function: str
    constants: dict[str, int]
    warps: int
    shared: int
    command: Callable[[str, Path, Path], list[str]]  # of compiling it: (arch, source, output)
    stages: int = 2


def sources() -> Path:
    return kernel_sources().parent / "cuda"


def plan() -> ModuleType:
    """kernels/cuda/plan.py, which needs no toolkit."""
    return load_source(sources() / "plan.py")


def header() -> Path:
    """What the gate shares with the runtime."""
    return sources().parent / "gate_rule.h"


def available() -> bool:
    return shutil.which("nvcc") is not None


def supports(shape: dict[str, Any]) -> bool:
    """Whether there are kernels for a shape: 16-bit weights, whose rows are multiples of 16 bytes."""
    widths = (shape["D"], shape["F"], shape["H"] * shape["HD"])
    return shape["dtype"] != "float32" and all(width % 8 == 0 for width in widths)


def compiler() -> str:
    """What compiles, as "nvcc 13.0". Raises DeviceError where there is none."""
    path = shutil.which("nvcc")
    if path is None:
        raise DeviceError("[pack] matmuls='cuda' needs nvcc of CUDA's toolkit on the PATH; matmuls='triton' does not")
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    _, found, rest = said.partition("release ")
    return f"nvcc {rest.split(',')[0]}" if found else "nvcc"


def entries(shape: dict[str, Any], arch: str, early: bool) -> tuple[list[Entry], dict[str, dict[str, Any]]]:
    """The matmuls and the kernels that lay their weights out, and the pack header's "layouts"."""
    p = plan()
    # The stub of the driver reads the layout by its numbers, which kernels have compiled in.
    found, layouts = [], {}
    for name, _, _, outputs, K, pairs in p.operations(shape):
        unit = p.unit(outputs, pairs)
        units, columns = p.packed_shape(outputs, K, unit)
        rows, *numbers = p.rows_of_units(name, shape, unit)
        fields = dict(zip(("units", "per", "stride", "second", "step", "half"), numbers, strict=True))
        kernel = f"pack.{name}"
        size = units * unit * 16 * columns * 2
        layouts[name] = {"kernel": kernel, "bytes": size, "rows": rows, **fields}
        constants = {"K": K, "UNIT": unit}
        command = partial(_pack_command, constants)
        found.append(Entry(kernel, "pack", constants, _PACK_WARPS, 0, command))
    for k in p.kernels(shape, arch):
        layout = {key.upper(): value for key, value in layouts[k.name.split(".")[0]].items() if isinstance(value, int)}
        sizes = {**layout, **k.sizes, **k.tile, "K": k.K, "ROWS": k.rows, "GRID": k.blocks, "EARLY": early}
        command = partial(_matmul_command, p, k, shape["dtype"])
        found.append(Entry(k.name, k.source, sizes, k.threads // 32, k.shared, command))
    return found, layouts


def gate() -> Entry:
    """The kernel that lets the device take a draft's steps without the host."""
    p = plan()
    return Entry("gate", "gate", {}, p.GATE_WARPS, p.GATE_SHARED, partial(_gate_command, p), stages=1)


def compile_entries(
    found: Sequence[Entry], arch: str, progress: Callable[[int, int], Any] | None = None
) -> list[Image]:
    """Images of entries, in their order."""

    def one(index: int, entry: Entry, folder: Path) -> Image:
        output = folder / f"{index}.cubin"
        run = subprocess.run(
            entry.command(arch, sources() / f"{entry.function}.cu", output), capture_output=True, text=True, check=False
        )
        if run.returncode:
            last = " ".join((run.stderr or run.stdout).strip().splitlines()[-1:])
            raise DeviceError(f"[pack] compiling {entry.name} for {arch}: {last}")
        return Image(output.read_bytes(), entry.function, entry.shared)

    images = []
    with tempfile.TemporaryDirectory(prefix="swiftk-") as folder, ThreadPoolExecutor(cores()) as pool:
        for image in pool.map(lambda job: one(*job, Path(folder)), enumerate(found)):
            images.append(image)
            if progress:
                progress(len(images), len(found))
    return images


def _matmul_command(p: ModuleType, kernel: Any, dtype: str, arch: str, source: Path, output: Path) -> list[str]:
    command: list[str] = p.compile_command(kernel, dtype, arch, source, output)
    return command


def _gate_command(p: ModuleType, arch: str, source: Path, output: Path) -> list[str]:
    command: list[str] = p.gate_command(arch, header().parent, source, output)
    return command


def _pack_command(constants: dict[str, int], arch: str, source: Path, output: Path) -> list[str]:
    defines = [f"-DSWIFTK_{name}={value}" for name, value in constants.items()]
    return ["nvcc", "-cubin", f"-arch={arch}", "-std=c++17", "-o", str(output), str(source), *defines]
