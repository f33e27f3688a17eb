"""Others on the same card: whole models of the same shapes, one row, greedy, each in a process with its own limit; then
attention by itself.
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
from subject import KINDS

_GRAPH, _COMPILED, _GENERATE, _STATIC = WAYS
# (way, model, seconds it may take), by value
_JOBS = ((_GRAPH, "8b", 40), (_GRAPH, "1b", 30), (_GRAPH, "7b", 40), (_GRAPH, "13b", 40), (_GENERATE, "7b", 50),
         (_COMPILED, "7b", 120), (_STATIC, "7b", 120), (_COMPILED, "1b", 90))


def ours(given: argparse.Namespace, model: str) -> dict[str, float]:
    """swiftk's tokens/s on that model, by kind of matmuls, as the decode part found them."""
    figures = record.load(given.results)["parts"].get("decode", {}).get("figures", {})
    known = {kind: figures.get(f"{model}_tokens_per_second_{kind}") for kind in ("cuda", "triton")}
    return {kind: rate for kind, rate in known.items() if rate}


def run(part: record.Part, way: str, model: str, limit: int) -> None:
    given = part.given
    command = [sys.executable, str(Path(__file__).with_name("peer.py")), way, model, "--device", given.device,
               *(["--tiny", "--tokens", "8"] if given.tiny else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=limit, check=True)
    found = json.loads(done.stdout)
    rate, reads = 1 / found["seconds"], record.reads(given)
    share = rate * models.step_bytes(models.config(model, given.tiny)) / reads if reads else None
    part.add(models.label(model), f"{way} ({found['version']})", rate, "tokens/s", of_reads=share)
    for kind, own in ours(given, model).items():
        part.add(models.label(model), f"swiftk{KINDS[kind]} over {way}", own / rate)


def main() -> None:
    given = record.options(argparse.ArgumentParser(description=__doc__.splitlines()[0])).parse_args()
    with record.Part("peers", given) as part:
        part.note("random weights made on the device, 128 tokens of prompt, 128 new ones, the best of the runs; "
                  "rates are those of decoding alone")
        for way, model, limit in _JOBS:
            if model in (given.only or models.SHAPES):
                part.attempt(f"{way}, {models.label(model)}", run, part, way, model, limit)
        part.attempt("attention", attention.measure, part)


if __name__ == "__main__":
    main()
