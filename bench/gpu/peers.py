"""Others on the same card in the same run: attention by itself; then whole models of the same shapes, one row, greedy,
each in a process with its own limit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import attention
import models
import record
from peer import WAYS

_GRAPH, _COMPILED, _GENERATE, _STATIC = WAYS
# (way, model, seconds it may take), by value
_JOBS = ((_GRAPH, "7b", 40), (_GENERATE, "7b", 50), (_GRAPH, "1b", 30), (_GRAPH, "13b", 40), (_STATIC, "7b", 120),
         (_COMPILED, "7b", 120), (_GRAPH, "8b", 40), (_COMPILED, "1b", 90))


def ours(given: argparse.Namespace, model: str) -> float | None:
    """swiftk's tokens/s on that model in this run."""
    return record.load(given.results)["parts"].get("decode", {}).get("figures", {}).get(f"{model}_tokens_per_second")


def run(part: record.Part, way: str, model: str, limit: int) -> None:
    given = part.given
    command = [sys.executable, str(Path(__file__).with_name("peer.py")), way, model, "--device", given.device,
               *(["--tiny", "--tokens", "8"] if given.tiny else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=limit, check=True)
    found = json.loads(done.stdout)
    rate, reads = 1 / found["seconds"], record.reads(given)
    share = rate * models.step_bytes(models.config(model, given.tiny)) / reads if reads else None
    part.add(models.label(model), f"{way} ({found['version']})", rate, "tokens/s", of_reads=share)
    if ours(given, model):
        part.add(models.label(model), f"swiftk over {way}", ours(given, model) / rate)


def main() -> None:
    given = record.options(argparse.ArgumentParser(description=__doc__.splitlines()[0])).parse_args()
    with record.Part("peers", given) as part:
        part.note("random weights made on the device, 128 tokens of prompt, 128 new ones, the best of the runs; "
                  "rates are those of decoding alone")
        part.attempt("attention", attention.measure, part)
        for way, model, limit in _JOBS:
            part.attempt(f"{way}, {models.label(model)}", run, part, way, model, limit)


if __name__ == "__main__":
    main()
