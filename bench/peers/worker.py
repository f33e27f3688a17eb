"""One peer, one mode, one process: reads a job as JSON from stdin, runs it, writes what it measured as JSON to stdout.

Runs under any interpreter that has the peer installed, so it imports nothing of this repository but its own folder.
"""
from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import time
from typing import Any

ROWS = (1, 8)


def peak_bytes() -> int:
    """High-water mark of resident memory of this process image (getrusage would count the parent's before exec)."""
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    raise RuntimeError("[worker] /proc/self/status has no VmHWM")


def generate(peer: Any, prompt: list[int], count: int) -> dict[str, Any]:
    """Tokens, and the clock from the first that arrived to the last: decoding without the prompt."""
    blocks: list[tuple[float, list[int]]] = []
    began = time.perf_counter()
    steps = peer.generate(prompt, count, lambda block: blocks.append((time.perf_counter(), block)))
    first, last = blocks[0], blocks[-1]
    tokens = [token for _, block in blocks for token in block]
    return {"tokens": tokens, "first_seconds": first[0] - began, "decode_seconds": last[0] - first[0],
            "decode_tokens": len(tokens) - len(first[1]), "steps": steps, "drafted": getattr(peer, "drafted", None)}


def prefill_seconds(peer: Any, tokens: list[int], repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        peer.forget()
        began = time.perf_counter()
        peer.prefill(tokens)
        best = min(best, time.perf_counter() - began)
    return best


def pass_seconds(peer: Any, tokens: list[int], repeats: int) -> dict[str, float]:
    """Median seconds of a pass of n rows behind the same text; sizes take turns, so drift meets all alike."""
    peer.forget()
    peer.prefill(tokens[:-max(ROWS)])
    rows = tokens[-max(ROWS):]
    taken: dict[int, list[float]] = {n: [] for n in ROWS}
    for repeat in range(repeats + 1):
        for n in ROWS:
            began = time.perf_counter()
            peer.rows(rows[:n])
            seconds = time.perf_counter() - began
            peer.roll_back(n)
            if repeat:
                taken[n].append(seconds)
    return {str(n): statistics.median(v) for n, v in taken.items()}


def run(job: dict[str, Any]) -> dict[str, Any]:
    began = time.perf_counter()
    peer = importlib.import_module(f"peer_{job['peer']}").Peer(job)
    out: dict[str, Any] = {"version": peer.version, "load_seconds": time.perf_counter() - began}
    generate(peer, job["prompts"][0], 8)
    out["texts"] = [generate(peer, prompt, job["max_new_tokens"]) for prompt in job["prompts"]]
    out["peak_bytes"] = peak_bytes()
    if job["passes"]:
        out["prefill_tokens"] = len(job["long_prompt"])
        out["prefill_seconds"] = prefill_seconds(peer, job["long_prompt"], job["passes"])
        out["pass_seconds"] = pass_seconds(peer, job["long_prompt"][:128], 4 * job["passes"])
    return out


if __name__ == "__main__":
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not reach the answer
    try:
        result = run(json.load(sys.stdin))
    except ImportError as error:
        result = {"missing": str(error)}
    answer.write(json.dumps(result))
