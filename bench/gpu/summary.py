"""The run as a whole, for bench/on_gpu.sh: is there a GPU, what machine is this, how did a part end.

Needs the standard library alone, so it runs before anything is built.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import subprocess
from importlib import metadata

import record

_STOPPED = {124: "stopped at its limit", 137: "killed"}
_PACKAGES = ("torch", "triton", "cupy-cuda13x", "transformers")


def has_gpu() -> bool:
    """By the driver itself, which is there when torch is not."""
    try:
        driver = ctypes.CDLL(os.environ.get("SWIFTK_CUDA_DRIVER") or "libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=record.ROOT).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def machine() -> dict[str, str]:
    """What the figures were measured with."""
    gpu = _output("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader").splitlines()
    nvcc = _output("nvcc", "--version").rpartition("release ")[2].partition(",")[0]
    found = {"GPU": gpu[0].replace(", ", ", driver ", 1) if gpu else "none", "cores": str(os.cpu_count()),
             "Python": platform.python_version(), "nvcc": nvcc,
             **{package: _version(package) for package in _PACKAGES},
             "commit": _output("git", "rev-parse", "--short", "HEAD")}
    return {key: value for key, value in found.items() if value}


def main() -> int:
    parser = record.options(argparse.ArgumentParser(description=__doc__.splitlines()[0]))
    parser.add_argument("action", choices=("gpu", "begin", "end", "show"))
    parser.add_argument("part", nargs="?")
    parser.add_argument("--fresh", action="store_true", help="of begin: forget what earlier runs found")
    parser.add_argument("--status", type=int, default=0, help="of end: the part's exit status, or -1: never begun")
    given = parser.parse_args()
    if given.action == "gpu":
        return 0 if has_gpu() else 1
    found = {"machine": {}, "parts": {}} if given.fresh else record.load(given.results)
    if given.action == "show":
        print(record.markdown(found))
        return 0
    if given.action == "begin":
        found["machine"] = machine()
        if given.tiny or given.device != "cuda":
            found["machine"]["trial"] = "on small shapes" if given.tiny else f"on {given.device}"
    elif given.status == -1:
        found["parts"][given.part] = {"state": "not run: no time was left", "rows": [], "notes": [], "figures": {}}
    elif given.status:
        empty = {"state": "unfinished", "rows": [], "notes": [], "figures": {}}
        part = found["parts"].setdefault(given.part, empty)
        if part["state"] in ("unfinished", "done"):
            part["state"] = _STOPPED.get(given.status, f"failed with status {given.status}")
    record.save(given.results, found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
