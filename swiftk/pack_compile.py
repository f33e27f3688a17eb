"""Compiles some kernels of a pack with Triton, no GPU needed: a process of its own, started by pack.py.

Reads its task as JSON from stdin, writes <index>.cubin files, and prints a line of JSON for each.
"""

from __future__ import annotations

import importlib
import json
import sys
import types
from pathlib import Path
from typing import Any

PACKAGE = "swiftk_triton"  # what the folder of kernels is imported as: it is no package on disk


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
    options = importlib.import_module(f"{PACKAGE}.manifest").OPTIONS
    names = function.arg_names
    signature = {name: job["signature"].get(name, "constexpr") for name in names}
    constants = {(names.index(name),): value for name, value in job["constants"].items()}
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in job["aligned"]}
    return triton.compile(
        ASTSource(function, signature, constants, attributes),
        target=GPUTarget("cuda", int(arch.removeprefix("sm_")), 32),
        options={"num_warps": job["warps"], "num_stages": job["stages"], **options},
    )


def main() -> None:
    task = json.load(sys.stdin)
    load_kernels(task["sources"])
    for job in task["jobs"]:
        kernel = compile_kernel(job, task["arch"])
        facts = kernel.metadata
        if facts.global_scratch_size or facts.profile_scratch_size:
            raise RuntimeError(f"kernel {job['name']} wants scratch memory, which the launcher does not give")
        Path(task["folder"], f"{job['index']}.cubin").write_bytes(kernel.asm["cubin"])
        print(json.dumps({"index": job["index"], "symbol": facts.name, "shared": facts.shared}), flush=True)


if __name__ == "__main__":
    main()
