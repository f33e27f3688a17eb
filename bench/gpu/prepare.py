"""Kernels of every model that bench/on_gpu.sh and tests on a GPU load, and a wheel, made where there is no GPU.

Which kernels tests want is found out by running them on the stub of the driver.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import record

if any(record.ROOT.glob("swiftk/_core.*.so")):  # built in the tree: an installed one may be older
    sys.path.insert(0, str(record.ROOT))

import ahead
import models
import subject
import suite

import swiftk
from swiftk.gpu import pack, pack_cuda

_RUNS = ("ladder", "hardware decode contexts bits", "speculation tests")
Job = tuple[dict[str, Any], str, str]  # shape, kind of matmuls, forms of copies


def call(*command: Any, **more: Any) -> None:
    subprocess.run([str(word) for word in command], check=True, cwd=record.ROOT, **more)


def packs_of_tests(files: list[str], folder: Path) -> list[Path]:
    """The packs that tests load, as they are for the stub, left in a folder."""
    library = os.environ.get("SWIFTK_STUB_CUDA")
    if not library:
        call("cmake", "-S", "tests/native/stub_cuda", "-B", ahead.WORK / "stub")
        call("cmake", "--build", ahead.WORK / "stub", "-j", len(os.sched_getaffinity(0)))
        library = str(ahead.WORK / "stub" / "libstub_cuda.so")
    environment = suite.environment(folder / "outcomes.jsonl")
    environment |= {"SWIFTK_STUB_CUDA": library, "SWIFTK_CACHE": str(folder)}
    done = subprocess.run(suite.command("stub", files), cwd=record.ROOT, env=environment, check=False)
    if done.returncode:
        print("Some of these tests fail here: kernels that they would have asked for may be missing.")
    return sorted((folder / "kernels").glob("*.pack"))


def forms_in(header: dict[str, Any]) -> str:
    """The forms in a pack, as draft_weights has them: the middle of names like "qkv.int4.8"."""
    names = (name.split(".") for name in header["kernels"])
    return ",".join(sorted({name[1] for name in names if len(name) == 3 and name[0] == "qkv"})) or "own"


def jobs(files: list[str]) -> Iterator[Job]:
    """Models of the runs first, then those of tests; each with both kinds of matmuls where there are both."""
    wanted = [(pack.shape_of(swiftk.demo_model()), "int4"), (subject.kernel_shape(models.GROWN), "int4")]
    wanted += [(subject.kernel_shape(name), subject.forms(name)) for name in models.SHAPES]
    heads = pack.shapes_of_drafter(swiftk.demo_drafter(), swiftk.demo_model())
    wanted += [(shape, pack.copies_of_drafter(shape, "int4")) for shape in heads]
    with TemporaryDirectory() as folder:
        headers = [pack.read_header(path) for path in packs_of_tests(files, Path(folder))]
    wanted += [(header["shape"], forms_in(header)) for header in headers]
    for shape, forms in wanted:
        for kind in ("cuda", "triton") if pack_cuda.supports(shape) else ("triton",):
            yield shape, kind, forms


def other_sources() -> list[str]:
    """Kernels of the tree that differ from those that swiftk here would compile."""
    ours, theirs = record.ROOT / "kernels", pack.kernel_sources().parent
    files = [path.relative_to(ours) for path in ours.glob("*/*.*") if path.suffix in (".py", ".cu", ".cuh")]
    files = [file for file in files if file.parts[0] in ("triton", "cuda")]
    return [str(file) for file in files
            if not (theirs / file).is_file() or (theirs / file).read_bytes() != (ours / file).read_bytes()]


class Remembering:
    """Compiles kernels as packs have it done, but none that an earlier pack of this run had."""

    def __init__(self, compile_kernels: Any) -> None:
        self.compile, self.known = compile_kernels, {}

    def __call__(self, sources: Path, entries: Sequence[Any], arch: str, progress: pack.Progress | None = None) -> list:
        recipes = [json.dumps({**asdict(entry), "name": arch}) for entry in entries]
        new = {recipe: entry for recipe, entry in zip(recipes, entries) if recipe not in self.known}
        self.known |= zip(new, self.compile(sources, [*new.values()], arch, progress))
        return [self.known[recipe] for recipe in recipes]


def compiled(job: Job, arch: str, what: str) -> Path:
    shape, kind, forms = job
    began = time.monotonic()

    def progress(done: int, total: int) -> None:
        print(f"\r{what}: {done} of {total} kernels", end="", flush=True)

    path = pack.ensure(shape, arch, progress, matmuls=kind, draft_weights=forms)
    sizes = " ".join(f"{name} {shape[name]}" for name in ("D", "H", "KV", "HD", "F", "V"))
    print(f"\r{what}: {sizes} {shape['dtype']}, {kind}, {forms}: {path.stat().st_size / 1e6:.1f} MB, "
          f"{time.monotonic() - began:.0f} s", flush=True)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench/gpu/prepare.sh", description=__doc__)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--python", default="python3.12", help="of the version that the machine with the GPU has")
    parser.add_argument("--tests", nargs="*", default=suite.paths(suite.FILES), help="files to find shapes in")
    parser.add_argument("--no-wheel", action="store_true")
    given = parser.parse_args()
    if other_sources():
        parser.error(f"the installed swiftk is not of this tree: {', '.join(other_sources())} differ")
    os.environ["SWIFTK_CACHE"] = str(ahead.WORK / "cache")
    if not given.no_wheel:
        if not shutil.which(given.python):
            parser.error(f"there is no {given.python} on the PATH: --python names another")
        for old in ahead.PREPARED.glob("*.whl"):
            old.unlink()
        call(given.python, "-m", "pip", "wheel", "--no-deps", "-w", ahead.PREPARED, ".")
        for wheel in ahead.PREPARED.glob("*.whl"):
            ahead.without_models(wheel)
        (ahead.PREPARED / "sources").write_text(ahead.digest())
    pack.compile_kernels = Remembering(pack.compile_kernels)
    todo = list({str(job): job for job in jobs(given.tests)}.values())
    built = [compiled(job, given.arch, f"{i} of {len(todo)}") for i, job in enumerate(todo, 1)]
    ahead.pack_up(list(dict.fromkeys(built)))
    total = 0
    for path in sorted(ahead.PREPARED.iterdir()):
        total += path.stat().st_size
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    folder = ahead.PREPARED.relative_to(record.ROOT)
    print(f"\nCopy {folder} ({total / 1e6:.1f} MB) with the source tree, and run there:")
    for parts in _RUNS:
        print(f"  bench/on_gpu.sh {parts}")
    print("Where each finds a fresh machine, bench/results/gpu.json goes along: one goes by what the last one found.")


if __name__ == "__main__":
    main()
