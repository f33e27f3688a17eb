"""Tests whose models run on the device, or those of equal bits among them."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import record

from swiftk.files.folders import cache_folder

# Those whose models run on the device: bits first.
FILES = ("cuda", "cuda_drafts", "cuda_copies", "lossless", "overlap", "sampling", "nucleus", "triton",
         "triton_attention", "triton_topk", "triton_low_bit", "families", "generate", "timed_trees", "score", "exits",
         "propose", "drafters", "recall", "api", "cuda_errors", "engine", "stub_drafters", "stub_texts")
_BITS = ("cuda", "cuda_drafts", "cuda_copies", "lossless")
_WORKERS = 8
_TEST_SECONDS, _BUILDING_SECONDS = 60, 300  # of one test; where its kernels have to be built first


def paths(names: Sequence[str]) -> list[str]:
    """Files of these tests, in whatever folder they lie. Raises FileNotFoundError with the names that have none."""
    found = {name: [*record.ROOT.glob(f"tests/*/test_{name}.py")] for name in names}
    if missing := [name for name, files in found.items() if not files]:
        raise FileNotFoundError(f"no tests/*/test_NAME.py for NAME in {', '.join(missing)}")
    return [str(file.relative_to(record.ROOT)) for files in found.values() for file in files]


def command(device: str, files: Sequence[str]) -> list[str]:
    out = [sys.executable, "-m", "pytest", "-q", "-p", "outcomes", "-p", "no:cacheprovider", "--device", device]
    if importlib.util.find_spec("xdist"):
        out += ["-n", str(min(_WORKERS, os.cpu_count() or 1)), "--dist", "worksteal"]
    if device == "cuda" and importlib.util.find_spec("pytest_timeout"):
        prepared = any((cache_folder() / "kernels").glob("*.pack"))
        # A test that waits for the device for ever takes its whole process with it.
        out += ["--timeout", str(_TEST_SECONDS if prepared else _BUILDING_SECONDS), "--timeout-method", "thread"]
    return [*out, *files]


def environment(outcomes: Path) -> dict[str, str]:
    known = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(known), "SWIFTK_OUTCOMES": str(outcomes),
            "PYTHONHASHSEED": "0"}  # workers must collect the same tests


def tell(part: record.Part, path: Path) -> None:
    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    count = Counter(line["outcome"] for line in lines)
    for outcome in ("passed", "skipped", "failed"):
        must = 0 if outcome == "failed" else None
        part.add(f"pytest --device {part.given.device}", outcome, count[outcome], must=must)
    failed = [line for line in lines if line["outcome"] == "failed"]
    part.keep("failed", failed)
    for line in failed[:20]:
        part.note(f"failed: {line['test']}")


def main() -> None:
    parser = record.options(argparse.ArgumentParser(description=__doc__))
    parser.add_argument("--select", nargs="*", help="files instead")
    parser.add_argument("--short", action="store_true", help="those of equal bits alone")
    parser.set_defaults(part="tests")
    given = parser.parse_args()
    with TemporaryDirectory() as folder, record.Part(given.part, given) as part:
        path = Path(folder, "outcomes.jsonl")
        path.touch()
        files = given.select or paths(("cuda_gate",) if given.tiny else _BITS if given.short else FILES)
        try:
            done = subprocess.run(command(given.device, files), cwd=record.ROOT, env=environment(path), check=False)
            if done.returncode not in (0, 1):  # more than tests that failed
                part.failures += 1
                part.note(f"pytest ended with status {done.returncode}")
        finally:
            tell(part, path)


if __name__ == "__main__":
    main()
