"""What a part of bench/on_gpu.sh found out: each row is in gpu.json and gpu.md the moment it is known.

A part may be killed at its limit, and so may the whole run; what was measured before, in earlier runs too, is kept.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ladder

BENCH = Path(__file__).resolve().parents[1]
ROOT = BENCH.parent
sys.path.append(str(BENCH))  # for the tables, prompts and models that all benchmarks share

from tables import Table  # noqa: E402

COLUMNS = ["case", "measure", "value", "% of reads", "target", ""]


def options(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """What bench/on_gpu.sh tells every part."""
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small shapes and few repeats: a trial, not a measurement")
    parser.add_argument("--results", type=Path, default=BENCH / "results", help="folder of gpu.json and gpu.md")
    parser.add_argument("--only", action="append", metavar="MODEL", help="may be given again; default: every one")
    parser.add_argument("--part", default=Path(sys.argv[0]).stem, help=argparse.SUPPRESS)
    return parser


def load(results: Path) -> dict[str, Any]:
    path = results / "gpu.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"machine": {}, "parts": {}}


def save(results: Path, found: dict[str, Any]) -> None:
    """Both files, each whole at any moment, and copies under $OUT."""
    results.mkdir(parents=True, exist_ok=True)
    for name, text in (("gpu.json", json.dumps(found, indent=1) + "\n"), ("gpu.md", markdown(found))):
        partial = results / f".{name}.{os.getpid()}"
        partial.write_text(text, encoding="utf-8")
        partial.replace(results / name)
        if os.environ.get("OUT") and not results.samefile(os.environ["OUT"]):
            shutil.copy(results / name, os.environ["OUT"])


def short(value: float | str) -> str:
    """Three significant digits, more of a large number; "yes" or "no" of a bool; words as they are."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return ("no", "yes")[value] if isinstance(value, bool) else str(value)
    if not math.isfinite(value) or value == 0:
        return str(value)
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def words(machine: dict[str, str]) -> str:
    return ", ".join(f"{key} {value}" for key, value in machine.items())


def markdown(found: dict[str, Any]) -> str:
    """One table of all parts in order, then what is to be known about them."""
    table, rungs = Table(COLUMNS), ladder.says(found["parts"])
    notes = [words(found["machine"]), f"ladder: {rungs}" if rungs else ""]
    for name in sorted(found["parts"], key=list(ladder.PARTS).index):
        part = found["parts"][name]
        for row in part["rows"]:
            share = row.get("of_reads")
            verdict = {True: "met", False: "missed"}.get(row.get("met"), "")
            table.add(f"{name}: {row['case']}", row["measure"], f"{short(row['value'])} {row['unit']}".strip(),
                      "" if share is None else f"{share:.0%}", row.get("target", ""), verdict)
        notes.append(f"{name}: {part['state']}, {part.get('seconds', 0):.0f} s")
        notes += [f"{name}: {note}" for note in part["notes"]]
        notes += [f"{name}: measured before, with {words(part['machine'])}"] if "machine" in part else []
    return table.markdown() + "\n\n" + "\n".join(f"- {note}" for note in notes if note) + "\n"


class Stopped(BaseException):
    """SIGTERM: the part is at its limit."""


def _stop(*_: Any) -> None:
    raise Stopped


class Part:
    """One part's rows, as a context: an error inside is recorded, told, and ends the process with status 1."""

    def __init__(self, name: str, given: argparse.Namespace) -> None:
        self.name, self.given = name, given
        self.real = given.device == "cuda" and not given.tiny  # only then do targets mean anything
        self.found: dict[str, Any] = {"state": "unfinished", "seconds": 0.0, "rows": [], "notes": [], "figures": {}}
        self.raised = 0  # measurements that ended with an error
        self._began = time.perf_counter()

    @property
    def failures(self) -> int:
        """Measurements that raised, and promises that were not kept."""
        return self.raised + sum(row.get("must", False) and not row["met"] for row in self.found["rows"])

    def __enter__(self) -> Part:
        signal.signal(signal.SIGTERM, _stop)
        self._write()
        return self

    def __exit__(self, kind: Any, error: Any, _: Any) -> None:
        if error is None:
            self.found["state"] = f"done, {self.failures} failures" if self.failures else "done"
        elif kind is not Stopped:
            traceback.print_exc()
            self.found["state"] = "failed"
            self.found["notes"].append(f"{kind.__name__}: {error}"[:400])
        self._write()
        if error is not None or self.failures:
            raise SystemExit(1) from None

    def add(self, case: str, measure: str, value: Any, unit: str = "", *, of_reads: float | None = None,
            at_least: float | None = None, at_most: float | None = None, must: Any = None) -> None:
        """A row of the table, in the place of one that said the same before; at most one of the last three is its
        target."""
        row = {"case": case, "measure": measure, "value": value, "unit": unit}
        if of_reads is not None:
            row["of_reads"] = of_reads
        if must is not None:
            row.update(target=short(must), met=value == must, must=True)
        elif self.real and at_least is not None:
            row.update(target=f">= {short(at_least)}", met=value >= at_least)
        elif self.real and at_most is not None:
            row.update(target=f"<= {short(at_most)}", met=value <= at_most)
        for i, known in enumerate(self.found["rows"]):
            if all(known[key] == row[key] for key in ("case", "measure", "unit")):
                self.found["rows"][i] = row
                break
        else:
            self.found["rows"].append(row)
        print(f"[{self.name}] {case}: {measure} {short(value)} {unit}"
              + (f" ({row['target']}: {'met' if row['met'] else 'MISSED'})" if "target" in row else ""), flush=True)
        self._write()

    def note(self, text: str) -> None:
        if text in self.found["notes"]:
            return
        self.found["notes"].append(text)
        print(f"[{self.name}] {text}", flush=True)
        self._write()

    def keep(self, name: str, figures: Any) -> None:
        """Figures after the rows, for the JSON alone."""
        self.found["figures"][name] = figures
        self._write()

    def attempt(self, what: str, run: Callable[..., Any], *arguments: Any) -> Any:
        """run(*arguments), or a note why not: one measurement that fails must not cost the others of its part."""
        try:
            return run(*arguments)
        except Exception as error:
            traceback.print_exc()
            self.raised += 1
            self.note(f"{what}: {type(error).__name__}: {error}"[:400])
            return None

    def apart(self, what: str, seconds: float, run: Callable[..., Any], *arguments: Any) -> None:
        """attempt() in a process of its own: what ends it, or spoils its device, costs no other measurement."""

        def child() -> None:
            before = self.raised
            self.attempt(what, run, *arguments)
            raise SystemExit(self.raised - before)

        process = multiprocessing.get_context("fork").Process(target=child, daemon=True)
        process.start()
        try:
            process.join(seconds)
        finally:  # also when this part is at its limit
            late = process.is_alive()
            process.kill()
            process.join()
            self.found = load(self.given.results)["parts"][self.name]
        if process.exitcode >= 0:
            self.raised += process.exitcode
            return
        self.raised += 1
        why = f"not done in {seconds:.0f} s" if late else f"crashed with signal {-process.exitcode}"
        self.note(f"{what}: {why}")

    def _write(self) -> None:
        self.found["seconds"] = time.perf_counter() - self._began
        everything = load(self.given.results)
        everything["parts"][self.name] = self.found
        save(self.given.results, everything)


def reads(given: argparse.Namespace) -> float | None:
    """Bytes/s that the hardware part read memory with at its best."""
    return load(given.results)["parts"].get("hardware", {}).get("figures", {}).get("read_bytes_per_s")
