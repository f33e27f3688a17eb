"""What a figure was measured on: the machine as it is now, and the build of swiftk."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import swiftk
from swiftk import _core


def build() -> str:
    """The package's code, in a few letters."""
    package, digest = Path(swiftk.__file__).parent, hashlib.sha256()
    for path in sorted({*package.rglob("*.py"), Path(_core.__file__)}):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def cpu_name() -> str:
    """The model as the system names it, with family and model numbers where the name says little."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    field = {key: re.search(rf"^{key}\s*: (.*)$", text, re.M) for key in ("model name", "cpu family", "model")}
    name, family, model = (m.group(1).strip() if m else "?" for m in field.values())
    return f"{name} (family {family}, model {model})"


def probe(dtypes: Sequence[str] = ("bfloat16",), threads: int | None = None, isa: str | None = None) -> dict[str, Any]:
    """CPU, threads, instruction set, and bandwidth and multiply-add peak now. Takes about a second for each dtype."""
    threads, isa = threads or len(os.sched_getaffinity(0)), isa or _core.isas()[0]
    found = {dtype: _core.probe(dtype, isa, threads) for dtype in dtypes}
    return {
        "cpu": cpu_name(),
        "threads": threads,
        "isa": isa,
        "read_GB_per_s": max(read for read, _ in found.values()) / 1e9,
        "peak_GFLOP_per_s": {dtype: flops / 1e9 for dtype, (_, flops) in found.items()},
    }


def described(machine: dict[str, Any]) -> str:
    peaks = ", ".join(f"{dtype} {flops:.0f} GFLOP/s" for dtype, flops in machine["peak_GFLOP_per_s"].items())
    measured = f"reads {machine['read_GB_per_s']:.1f} GB/s, multiply-add peak {peaks}"
    return f"{machine['cpu']}, {machine['threads']} threads, {machine['isa']}; measured: {measured}"
