"""The kernels of a pack in CUDA C++: matmuls with the layout of weights that they read, and the gate.

kernels/cuda/plan.py holds tiles, launch parameters and layouts as data; this turns them into entries of a pack, and
compiles them with what is there: NVRTC from a wheel, or nvcc. NVRTC comes first, since it needs no compiler for the
host and takes half the time; of several, the oldest, as images of CUDA 12 run on its drivers and on later ones.

Images of the two differ even where their versions do not: NVRTC takes 64 bits for a pointer to shared memory, nvcc 32,
and so they unroll the loop after the sums unequally and take other registers. The order of the sums is the sources'.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import DeviceError
from ..files.folders import cache_folder, kernel_sources, load_source, write_whole
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
    defines: tuple[str, ...] = ()
    stages: int = 2

    @property
    def job(self) -> tuple[str, tuple[str, ...]]:
        """What is compiled: that of several entries may be one."""
        return self.function, self.defines


@dataclass(frozen=True)
class Compiler:
    name: str  # "nvrtc 12.9"
    command: tuple[str, ...]  # before output, source and options


class Unavailable(DeviceError):
    """Kernels that cannot be built here, or for this shape."""


def sources() -> Path:
    return kernel_sources().parent / "cuda"


def plan() -> ModuleType:
    """kernels/cuda/plan.py, which needs no toolkit."""
    return load_source(sources() / "plan.py")


def header() -> Path:
    """What the gate shares with the runtime."""
    return sources().parent / "gate_rule.h"


def source_files() -> list[Path]:
    return [*sources().glob("*.*"), header()]


def supports(shape: dict[str, Any]) -> bool:
    """Whether there are kernels for a shape: 16-bit weights, whose rows are multiples of 16 bytes; not a head's."""
    if "linears" in shape:
        return False
    widths = (shape["D"], shape["F"], shape["H"] * shape["HD"])
    return shape["dtype"] != "float32" and all(width % 8 == 0 for width in widths)


def compilers() -> list[Compiler]:
    """What compiles CUDA C++ here, the best first."""
    return [*_nvrtc(), *_nvcc()]


def _nvrtc() -> Iterator[Compiler]:
    wheels = importlib.util.find_spec("nvidia")
    folders = wheels.submodule_search_locations if wheels else None
    found = [path for folder in folders or () for path in Path(folder).glob("*/lib/libnvrtc-builtins.so.*")]
    versions = {path: path.name.partition(".so.")[2].split(".") for path in found}
    for path in sorted(found, key=lambda path: [int(part) for part in versions[path]]):
        library = path.with_name(f"libnvrtc.so.{versions[path][0]}")
        program = (sys.executable, "-I", str(Path(__file__).with_name("nvrtc.py")), str(path), str(library))
        yield Compiler(f"nvrtc {'.'.join(versions[path])}", program)


def _nvcc() -> Iterator[Compiler]:
    path = shutil.which("nvcc")
    if path is not None:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
        _, found, rest = said.partition("release ")
        yield Compiler(f"nvcc {rest.split(',')[0]}" if found else "nvcc", (path, "-cubin", "-o"))


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
        found.append(Entry(kernel, "pack", constants, _PACK_WARPS, 0, tuple(p.defines(constants))))
    for k in p.kernels(shape, arch):
        layout = {key.upper(): value for key, value in layouts[k.name.split(".")[0]].items() if isinstance(value, int)}
        sizes = {**layout, **k.sizes, **k.tile, "K": k.K, "ROWS": k.rows, "GRID": k.blocks, "EARLY": early}
        found.append(Entry(k.name, k.source, sizes, k.threads // 32, k.shared, tuple(k.defines(shape["dtype"]))))
    return found, layouts


def gate() -> Entry:
    """The kernel that lets the device take a draft's steps without the host."""
    p = plan()
    return Entry("gate", "gate", {}, p.GATE_WARPS, p.GATE_SHARED, stages=1)


def gate_image(arch: str) -> tuple[Image, str]:
    """The gate's image, and what compiled it. An architecture has one for all packs, which is kept beside them."""
    entry, digest = gate(), hashlib.sha256(repr((arch, plan().OPTIONS)).encode())
    for source in sorted(source_files(), key=lambda source: source.name):
        digest.update(source.read_bytes())
    path = cache_folder() / "kernels" / f"{arch}-{digest.hexdigest()[:20]}.gate"
    with suppress(OSError, ValueError):
        check, name, code = path.read_bytes().split(b"\n", 2)
        if check.decode() == hashlib.sha256(code).hexdigest():
            return Image(code, entry.function, entry.shared), name.decode()
    (image,), name = compile_entries([entry], arch)
    with suppress(DeviceError):  # a folder that cannot be written costs the next pack half a second
        write_whole(path, f"{hashlib.sha256(image.code).hexdigest()}\n{name}\n".encode() + image.code)
    return image, name


def compile_entries(
    found: Sequence[Entry], arch: str, progress: Callable[[int, int], Any] | None = None
) -> tuple[list[Image], str]:
    """Images of entries, in their order, and the name of the first compiler that makes all of them."""
    failed = ["needs NVRTC (pip install 'swiftk[cuda]') or nvcc of CUDA's toolkit on the PATH"]
    for compiler in compilers():
        try:
            return _compile(compiler, found, arch, progress), compiler.name
        except Unavailable as error:
            failed.append(str(error))
    raise Unavailable(f"[pack] CUDA C++: {'; '.join(failed[1:] or failed)}")


def _compile(
    compiler: Compiler, found: Sequence[Entry], arch: str, progress: Callable[[int, int], Any] | None
) -> list[Image]:
    def one(index: int, entry: Entry, folder: Path) -> bytes:
        output = folder / f"{index}.cubin"
        command = compile_command(compiler, entry, arch, output)
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            said = (run.stderr or run.stdout).strip().splitlines()
            reported = next((line for line in said if re.search(r"\b(error|fatal)\b", line)), "".join(said[-1:]))
            raise Unavailable(
                f"compiling {entry.name} for {arch} with {compiler.name}: {reported or f'status {run.returncode}'}"
            )
        return output.read_bytes()

    todo: dict[Any, Entry] = {}
    for entry in found:
        todo.setdefault(entry.job, entry)
    codes: dict[Any, bytes] = {}
    with tempfile.TemporaryDirectory(prefix="swiftk-") as folder, ThreadPoolExecutor(cores()) as pool:
        for code in pool.map(lambda numbered: one(*numbered, Path(folder)), enumerate(todo.values())):
            codes[list(todo)[len(codes)]] = code
            if progress:
                progress(sum(entry.job in codes for entry in found), len(found))
    return [Image(codes[entry.job], entry.function, entry.shared) for entry in found]


def compile_command(compiler: Compiler, entry: Entry, arch: str, output: Path) -> list[str]:
    """What is linked in nothing: the one function that a kernel calls, of the gate, is the driver's."""
    includes = [f"-I{sources()}", f"-I{header().parent}"]
    source = sources() / f"{entry.function}.cu"
    return [*compiler.command, str(output), str(source), f"-arch={arch}", *plan().OPTIONS, *includes, *entry.defines]
