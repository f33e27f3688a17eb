"""Compiles the kernels of a pack with Triton, which needs no GPU, in processes of their own.

So what a compiler leaves behind, or a crash of it, is not the caller's. A process takes recipes, a line of JSON each,
and answers each with a line: `compile_kernels` is this side, `main` the other.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import DeviceError

PACKAGE = "swiftk_triton"  # what the folder of kernels is imported as: it is no package on disk
_MOST = 16  # processes: each takes some 300 MB


@dataclass(frozen=True)
class Image:
    """A compiled kernel."""

    code: bytes
    symbol: str
    shared: int  # bytes of dynamic shared memory


def compile_kernels(
    sources: Path, entries: Sequence[Any], arch: str, progress: Callable[[int, int], Any] | None = None
) -> list[Image]:
    """Images of manifest entries, in their order, of the kernels in a folder. Equal recipes are compiled once."""
    recipes = [json.dumps({**asdict(entry), "name": ""}) for entry in entries]
    names = dict(zip(reversed(recipes), (entry.name for entry in reversed(entries)), strict=True))
    todo, doing, images = list(names), {}, {}
    with tempfile.TemporaryDirectory(prefix="swiftk-") as scratch, ExitStack() as stack:
        ready = stack.enter_context(selectors.DefaultSelector())

        def feed(process: Any) -> None:
            if todo:
                doing[process] = todo.pop()
                process.stdin.write(doing[process] + "\n")

        for i in range(min(cores(), _MOST, len(todo))):
            complaints = stack.enter_context(open(Path(scratch, str(i)), "w+"))
            process: Any = stack.enter_context(_start([str(sources), arch], scratch, complaints))
            stack.callback(process.kill)
            ready.register(process.stdout, selectors.EVENT_READ, (process, complaints))
            feed(process)
        while len(images) < len(names):
            for key, _ in ready.select():
                process, complaints = key.data
                recipe = doing[process]
                images[recipe] = _image(process, complaints, f"{names[recipe]} for {arch}")
                feed(process)
                if progress:
                    progress(sum(recipe in images for recipe in recipes), len(recipes))
    return [images[recipe] for recipe in recipes]


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start(arguments: list[str], scratch: str, complaints: Any) -> subprocess.Popen[str]:
    """A process that sees the modules that this one sees; images without the lines, and so the paths, of sources."""
    code = f"import sys; sys.path[:] = {sys.path!r}; from swiftk.gpu.pack_compile import main; main(*sys.argv[1:])"
    settings = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": scratch, "TRITON_DISABLE_LINE_INFO": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints, text=True, bufsize=1,
        env={**os.environ, **settings},
    )  # fmt: skip


def _image(process: Any, complaints: Any, what: str) -> Image:
    line = process.stdout.readline()
    if not line:
        complaints.seek(0)
        last = complaints.read().strip().splitlines()[-1:]
        raise DeviceError(f"[pack] compiling {what}: the compiler ended with status {process.wait()}: {' '.join(last)}")
    reply = json.loads(line)
    if "error" in reply:
        raise DeviceError(f"[pack] compiling {what}: {reply['error']}")
    return Image(base64.b64decode(reply["code"]), reply["symbol"], reply["shared"])


def load_kernels(folder: str) -> None:
    """Makes the kernels importable as swiftk_triton.<file>."""
    package = types.ModuleType(PACKAGE)
    package.__path__ = [folder]
    sys.modules[PACKAGE] = package


def compile_kernel(job: dict[str, Any], arch: str) -> Any:
    """Triton's compiled kernel of a manifest entry."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = getattr(importlib.import_module(f"{PACKAGE}.{job['module']}"), job["function"])
    entry = importlib.import_module(f"{PACKAGE}.manifest").Entry(**job)
    names = function.arg_names
    if [name for name in names if name not in job["constants"]] != list(job["signature"]):
        raise ValueError(f"takes {', '.join(names)}, which is not what the manifest says")
    signature = {name: job["signature"].get(name, "constexpr") for name in names}
    constants = {(names.index(name),): value for name, value in job["constants"].items()}
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in job["aligned"]}
    kernel = triton.compile(
        ASTSource(function, signature, constants, attributes),
        target=GPUTarget("cuda", int(arch.removeprefix("sm_")), 32),
        options=entry.options,
    )
    if kernel.metadata.global_scratch_size or kernel.metadata.profile_scratch_size:
        raise ValueError("wants scratch memory, which the launcher does not give")
    return kernel


def main(folder: str, arch: str) -> None:
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what Triton prints is no reply
    load_kernels(folder)
    for line in sys.stdin:
        try:
            kernel = compile_kernel(json.loads(line), arch)
            facts = kernel.metadata
            code = base64.b64encode(kernel.asm["cubin"]).decode()
            reply = {"code": code, "symbol": facts.name, "shared": facts.shared}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies)
