"""Runs the parts of bench/on_gpu.sh, each in a process of its own under a limit, and keeps how each ended.

Needs the standard library alone, so it runs before anything is built. What one run found, the next one goes by.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import ahead
import ladder
import record

_HERE = Path(__file__).resolve().parent
_TOOLS = ("python3", "nvcc", "cmake", "compute-sanitizer")
_PACKAGES = ("torch", "triton")
_LEAST = 5  # seconds that are worth beginning a part for


def _debug() -> dict[str, str]:
    return ladder.words(os.environ.get("SWIFTK_DEBUG", ""))


def has_gpu() -> bool:
    """By the driver itself, which is there when torch is not."""
    try:
        driver = ctypes.CDLL(_debug().get("driver") or "libcuda.so.1")
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
    """What the figures are measured with."""
    gpu = _output("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader").splitlines()
    nvcc = _output("nvcc", "--version").rpartition("release ")[2].partition(",")[0]
    found = {"GPU": gpu[0].replace(", ", ", driver ", 1) if gpu else "none", "cores": str(os.cpu_count()),
             "Python": platform.python_version(), "nvcc": nvcc,
             **{package: _version(package) for package in _PACKAGES},
             "commit": _output("git", "rev-parse", "--short", "HEAD")}
    return {key: value for key, value in found.items() if value}


def surroundings() -> None:
    """Tools beside this Python and those of CUDA's toolkit come first; packs that were built ahead are put in place."""
    before = [str(Path(sys.executable).parent), str(Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin"))]
    os.environ["PATH"] = os.pathsep.join([*before, os.environ.get("PATH", os.defpath)])
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
    cache = Path(os.environ.setdefault("SWIFTK_CACHE", str(ahead.WORK / "cache")))
    for tool in _TOOLS:
        print(f"[machine] {tool}: {shutil.which(tool) or 'not found'}")
    print(f"[machine] {_output('df', '-h', '/dev/shm') or 'no /dev/shm'}")
    packs = ahead.place_packs(cache)
    print(f"[machine] {packs} packs from {ahead.PACKS}{'' if packs else ': kernels are built when they are needed'}")


class Run:
    """Parts one after another, within the seconds of the whole."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.failed = given, False
        self.deadline = time.monotonic() + float(os.environ.get("SWIFTK_GPU_SECONDS", 560))
        self.python = ahead.WORK / "venv" / "bin" / "python"
        self.flags = ["--device", given.device, "--results", str(given.results), *(["--tiny"] if given.tiny else [])]
        self.flags += [word for model in given.only or () for word in ("--only", model)]

    def begin(self, parts: Sequence[str], fresh: bool) -> None:
        """Forgets rungs that are tried again; parts that were measured elsewhere say where."""
        found = {"machine": {}, "parts": {}} if fresh else record.load(self.given.results)
        now = machine()
        if self.given.tiny or self.given.device != "cuda":
            now["trial"] = "on small shapes" if self.given.tiny else f"on {self.given.device}"
        again = {*ladder.LADDER} & {*parts} | ({"sanitizer"} if "smoke" in parts else set())
        found["parts"] = {name: part for name, part in found["parts"].items() if name not in again}
        if found["machine"] != now:
            for part in found["parts"].values():
                part.setdefault("machine", found["machine"])
        record.save(self.given.results, {**found, "machine": now})

    def end(self, name: str, state: str) -> None:
        """What an earlier run found of a part that is not run now stays."""
        found = record.load(self.given.results)
        part = found["parts"].setdefault(name, {"rows": [], "notes": [], "figures": {}})
        if not (part["rows"] and state.startswith(ladder.ENDED)):
            part["state"] = state
        record.save(self.given.results, found)
        print(f"== {name}: {state}")

    def forget(self, name: str) -> None:
        found = record.load(self.given.results)
        found["parts"].pop(name, None)
        record.save(self.given.results, found)

    def keep(self, name: str, before: dict[str, Any]) -> None:
        """Rows and notes of models that this run did not measure."""
        found = record.load(self.given.results)
        part = found["parts"].setdefault(name, {"state": "unfinished", "rows": [], "notes": [], "figures": {}})
        measured = {row["case"] for row in part["rows"]}
        part["rows"] = [row for row in before["rows"] if row["case"] not in measured] + part["rows"]
        part["notes"] = list(dict.fromkeys([*before["notes"], *part["notes"]]))
        record.save(self.given.results, found)

    def part(self, name: str) -> None:
        part, found = ladder.PARTS[name], record.load(self.given.results)["parts"]
        faulty = [need for need in part.needs if need in ladder.faults(found)]
        most, left = min(part.seconds, self.given.part_seconds), self.deadline - time.monotonic()
        late = left < (most if name in ladder.LADDER else _LEAST)  # a rung that is cut short would look as if it hung
        if faulty or late or (name != "build" and not self.python.exists()):
            why = f"{faulty[0]} faults" if faulty else "no time was left" if late else "nothing is built"
            self.end(name, f"{ladder.ENDED}{why}")
            self.failed = True
            return
        chosen = {**ladder.settings(found), **_debug(), **part.debug}
        limit = int(min(most, left))
        shown = ladder.joined({word: chosen[word] for word in ladder.SETTINGS if word in chosen})
        print(f"== {name} (at most {limit} s) {shown}".rstrip())
        before = found.get(name)
        self.forget(name)
        status = self.process(name, part, limit, {**os.environ, "SWIFTK_DEBUG": ladder.joined(chosen)})
        state = record.load(self.given.results)["parts"].get(name, {}).get("state", "unfinished")
        if status and state in ("unfinished", "done"):
            self.end(name, ended(status))
        if self.given.only and before:
            self.keep(name, before)
        self.failed = self.failed or status != 0

    def process(self, name: str, part: ladder.Part, limit: int, environment: dict[str, str]) -> int:
        python, wrapper = self.python if name != "build" else sys.executable, []
        if name == "sanitizer":
            log = Path(os.environ.get("OUT") or ahead.WORK) / "sanitizer.log"
            wrapper = ["compute-sanitizer", "--log-file", str(log)]
        command = ["timeout", "-k", "5", str(limit), *wrapper, str(python), str(_HERE / f"{part.script}.py"),
                   *self.flags, "--part", name, *part.arguments]
        status = subprocess.run(command, env=environment, check=False).returncode
        return status if status >= 0 else 128 - status


def ended(status: int) -> str:
    """A part's state by its exit status, as `timeout` gives it."""
    known = {124: "stopped at its limit", 137: "killed"}.get(status)
    return known or (f"crashed with signal {status - 128}" if status > 128 else f"failed with status {status}")


@contextmanager
def checkpoints(run: Run, parts: Sequence[str]) -> Iterator[None]:
    """Models are made, with the swiftk that was built, while parts before theirs run; they are removed at the end."""
    given, flags = run.given, run.flags
    names = list(dict.fromkeys(model for name in parts for model in ladder.PARTS[name].chosen(given.only)))
    script = [str(run.python), str(_HERE / "models.py")]
    maker = subprocess.Popen([*script, "make", *names, *flags]) if names and run.python.exists() else None
    try:
        yield
    finally:
        if maker:
            maker.kill()
            maker.wait()
            subprocess.run([*script, "remove", *flags], check=False)


def arguments() -> argparse.Namespace:
    parser = record.options(argparse.ArgumentParser(prog="bench/on_gpu.sh", description=__doc__))
    parser.add_argument("--part-seconds", type=float, default=1e9, help="at most for a part, beside its own limit")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of: {', '.join(ladder.ORDER)}; or a rung")
    given = parser.parse_args()
    for name in given.parts:
        if name != "ladder" and name not in ladder.PARTS:
            parser.error(f"no part {name!r}, want some of: {', '.join(ladder.ORDER)}")
    return given


def main() -> int:
    given: Any = arguments()
    if given.device == "cuda" and not has_gpu():
        print("bench/on_gpu.sh: there is no NVIDIA GPU here, so there is nothing to measure")
        return 0
    surroundings()
    named = given.parts or ladder.ORDER
    parts = [part for name in named for part in (ladder.LADDER if name == "ladder" else [name])]
    run = Run(given)
    if "build" not in parts and not run.python.exists():
        parts.insert(0, "build")
    run.begin(parts, fresh=not given.parts)
    if "build" in parts:
        run.part("build")
    with checkpoints(run, parts):
        for name in (name for name in parts if name != "build"):
            run.part(name)
            faulty = name == "smoke" and name in ladder.faults(record.load(given.results)["parts"])
            if faulty and shutil.which("compute-sanitizer"):
                run.part("sanitizer")
    found = record.load(given.results)
    print(record.markdown({**found, "parts": {name: part for name, part in found["parts"].items() if name in parts}}))
    print(f"== ladder: {ladder.says(found['parts']) or 'not run'}")
    return int(run.failed)


if __name__ == "__main__":
    raise SystemExit(main())
