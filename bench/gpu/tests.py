"""The whole test suite on the device: exact bits first, then what runs on it, then the rest."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import record

_FIRST = ("cuda", "triton", "triton_attention", "triton_topk", "lossless", "sampling", "generate", "families", "api",
          "cuda_errors", "exactness", "load")
_WORKERS = 8
_TEST_SECONDS = 60


def files() -> list[str]:
    found = sorted((record.ROOT / "tests").glob("test_*.py"))
    first = [f"test_{name}.py" for name in _FIRST]
    found.sort(key=lambda path: first.index(path.name) if path.name in first else len(first))
    return [str(path.relative_to(record.ROOT)) for path in found]


def command(given: argparse.Namespace) -> list[str]:
    out = [sys.executable, "-m", "pytest", "-q", "-p", "outcomes", "-p", "no:cacheprovider"]
    out += ["--device", given.device]
    if importlib.util.find_spec("xdist"):
        out += ["-n", str(min(_WORKERS, os.cpu_count() or 1)), "--dist", "worksteal"]
    if importlib.util.find_spec("pytest_timeout"):
        out += ["--timeout", str(_TEST_SECONDS)]
    return [*out, *(given.select or files())]


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
    parser.add_argument("--select", nargs="*", help="of the tests part alone: files instead of all")
    given = parser.parse_args()
    with TemporaryDirectory() as folder, record.Part("tests", given) as part:
        path = Path(folder, "outcomes.jsonl")
        path.touch()
        known = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(known), "SWIFTK_OUTCOMES": str(path),
                       "PYTHONHASHSEED": "0"}  # workers must collect the same tests
        try:
            done = subprocess.run(command(given), cwd=record.ROOT, env=environment, check=False)
            if done.returncode not in (0, 1):  # more than tests that failed
                part.failures += 1
                part.note(f"pytest ended with status {done.returncode}")
        finally:
            tell(part, path)


if __name__ == "__main__":
    main()
