"""What a figure was measured on: CPU, threads, instruction set, and bandwidth and multiply-add peak as they are now."""
from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swiftk import _core


def cpu_name() -> str:
    """The model as the system names it, with family and model numbers where the name says little."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    field = {key: re.search(rf"^{key}\s*: (.*)$", text, re.M) for key in ("model name", "cpu family", "model")}
    name, family, model = (m.group(1).strip() if m else "?" for m in field.values())
    return f"{name} (family {family}, model {model})"


@dataclass(frozen=True, slots=True)
class Machine:
    cpu: str
    threads: int
    isa: str
    read_bytes_per_s: float
    flops: dict[str, float]  # multiply-add peak, by the dtype of the weights

    @classmethod
    def measure(cls, threads: int, isa: str, dtypes: tuple[str, ...] = ("bfloat16", "float32")) -> Machine:
        """Takes about a second for each dtype."""
        probes = {dtype: _core.probe(dtype, isa, threads) for dtype in dtypes}
        return cls(cpu_name(), threads, isa, max(read for read, _ in probes.values()),
                   {dtype: flops for dtype, (_, flops) in probes.items()})

    def describe(self) -> str:
        peaks = ", ".join(f"{dtype} {f / 1e9:.0f} GFLOP/s" for dtype, f in self.flops.items())
        reads = self.read_bytes_per_s / 1e9
        measured = f"reads {reads:.1f} GB/s, multiply-add peak {peaks}"
        return f"{self.cpu}, {self.threads} threads, {self.isa}; measured: {measured}"

    def facts(self) -> dict[str, Any]:
        return {"cpu": self.cpu, "threads": self.threads, "isa": self.isa, "read_GB_per_s": self.read_bytes_per_s / 1e9,
                "peak_GFLOP_per_s": {dtype: f / 1e9 for dtype, f in self.flops.items()}}
