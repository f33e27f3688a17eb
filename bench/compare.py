"""swiftk beside llama.cpp and transformers: the same weights, prompts, threads and number of tokens, greedy, one table.

Every run is a process of its own, so that memory and threads are one peer's alone; runs take turns (A B C A B C). Needs
swiftk; a peer that is not installed is named and left out. llama-cpp-python and gguf may live in another environment:
python bench/compare.py --python-llama PATH
"""
from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from demo import grown, long_prompt, prompts
from machine import Machine
from swiftk import _core
from swiftk.folders import cache_folder
from tables import Table

_HERE = Path(__file__).parent
_WAYS = [("swiftk", "plain"), ("swiftk", "speculative"), ("llama_cpp f16", "plain"), ("llama_cpp f16", "prompt lookup"),
         ("llama_cpp bf16", "plain"), ("transformers", "plain"), ("transformers", "early exit"),
         ("transformers", "prompt lookup")]
_err = Console(stderr=True)


@dataclass(slots=True)
class Way:
    """One row of the table: a peer in a mode, and what its runs measured."""

    peer: str
    mode: str
    runs: list[dict[str, Any]] = field(default_factory=list)

    def rates(self) -> list[float]:
        """Tokens per second of each run, behind the first token of each text."""
        def total(run: dict[str, Any], key: str) -> float:
            return sum(text[key] for text in run["texts"])

        return [total(run, "decode_tokens") / total(run, "decode_seconds") for run in self.runs]

    def tokens_per_step(self) -> float:
        texts = self.runs[0]["texts"]
        return sum(len(t["tokens"]) - 1 for t in texts) / sum(t["steps"] for t in texts)

    def texts(self) -> list[list[int]]:
        return [t["tokens"] for t in self.runs[0]["texts"]]

    def ratio(self) -> float | None:
        """An 8-row pass in 1-row passes, each ratio from one process."""
        found = [r["pass_seconds"]["8"] / r["pass_seconds"]["1"] for r in self.runs if "pass_seconds" in r]
        return median(found) if found else None

    def prefill(self) -> float | None:
        found = [r["prefill_tokens"] / r["prefill_seconds"] for r in self.runs if "prefill_seconds" in r]
        return max(found) if found else None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="checkpoint directory; default: the demo model grown --grow times")
    parser.add_argument("--grow", type=int, default=8)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=6, help="how many of bench/prompts.jsonl")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens for each prompt")
    parser.add_argument("--lookup", type=int, default=2, help="draft tokens of the peers' prompt lookup")
    parser.add_argument("--exit-layer", type=int, help="of transformers' early exit; default: half of the layers")
    parser.add_argument("--no-flash-attention", action="store_true", help="of llama.cpp")
    parser.add_argument("--only", nargs="*", help="peers to run: swiftk, llama_cpp, transformers")
    parser.add_argument("--python-llama", default=sys.executable, help="interpreter that has llama-cpp-python and gguf")
    parser.add_argument("--python-transformers", default=sys.executable)
    parser.add_argument("--prefix", default="", help="command put before each run, e.g. 'taskset -c 0,1'")
    parser.add_argument("--json", type=Path, help="where every figure goes; default: bench/results/compare.json")
    return parser.parse_args()


def gguf(model: Path, dtype: str, python: str) -> Path:
    """The weights as llama.cpp reads them, made once for a model that has not changed by a python that has gguf."""
    stamp = max(int(f.stat().st_mtime) for f in model.glob("*.safetensors"))
    path = cache_folder() / "gguf" / f"{model.resolve().name}-{stamp}-{dtype}.gguf"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        command = [python, str(_HERE / "peers" / "gguf_export.py"), str(model), str(path), "--dtype", dtype]
        with _err.status(f"writing {path}"):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(why(done))
    return path


def _job(way: Way, model: Path, given: argparse.Namespace) -> dict[str, Any]:
    peer, _, dtype = way.peer.partition(" ")
    layers = json.loads((model / "config.json").read_text())["num_hidden_layers"]
    file = str(gguf(model, dtype, given.python_llama)) if dtype else None
    return {"peer": peer, "mode": way.mode, "model": str(model), "gguf": file,
            "threads": given.threads, "prompts": prompts(model, given.prompts), "max_new_tokens": given.tokens,
            "long_prompt": long_prompt(model, 512), "passes": 3 if way.mode == "plain" else 0, "lookup": given.lookup,
            "exit_layer": given.exit_layer or layers // 2, "flash_attention": not given.no_flash_attention}


def why(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.strip().splitlines()
    return f"exit status {done.returncode}: {lines[-1] if lines else 'no message'}"


def run_job(job: dict[str, Any], python: str = sys.executable, prefix: str = "") -> dict[str, Any]:
    """What the job's peer measured in a process of its own, or why it is missing."""
    command = [*shlex.split(prefix), python, str(_HERE / "peers" / "worker.py")]
    done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, check=False,
                          env={**os.environ, "OMP_NUM_THREADS": str(job["threads"])})
    if done.returncode or not done.stdout:
        return {"missing": why(done)}
    return json.loads(done.stdout)


def _measure(ways: list[Way], model: Path, given: argparse.Namespace) -> dict[str, str]:
    """Fills in the runs; returns what was left out, and why."""
    missing: dict[str, str] = {}
    others = {"llama_cpp": given.python_llama, "transformers": given.python_transformers}
    jobs: dict[int, dict[str, Any]] = {}
    columns = (TextColumn("{task.description:32}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=_err, transient=True) as progress:
        task = progress.add_task("", total=given.repeats * len(ways))
        for _ in range(given.repeats):
            for i, way in enumerate(ways):
                name = f"{way.peer}, {way.mode}"
                progress.update(task, description=name)
                if name not in missing:
                    try:
                        jobs[i] = jobs.get(i) or _job(way, model, given)
                        result = run_job(jobs[i], others.get(jobs[i]["peer"], sys.executable), given.prefix)
                    except RuntimeError as error:
                        result = {"missing": str(error)}
                    if "missing" in result:
                        missing[name] = result["missing"]
                    else:
                        way.runs.append(result)
                progress.advance(task)
    return missing


def same_start(a: list[list[int]], b: list[list[int]]) -> float:
    """Share of tokens before the first that differs, over all texts."""
    total = same = 0
    for x, y in zip(a, b):
        total += len(x)
        same += next((i for i, (s, t) in enumerate(zip(x, y)) if s != t), min(len(x), len(y)))
    return same / total


def _brief(run: dict[str, Any]) -> dict[str, Any]:
    """A run without its texts."""
    return {key: value for key, value in run.items() if key != "texts"}


def _table(ways: list[Way]) -> Table:
    plain = {way.peer: way for way in ways if way.mode == "plain"}
    table = Table(["", "tokens/s best", "median", "tokens/step", "8 rows / 1", "prompt tokens/s", "peak memory",
                   "own plain output", "agrees with swiftk"])
    for way in ways:
        own, swiftk = plain.get(way.peer), plain.get("swiftk")
        ratio, prefill = way.ratio(), way.prefill()
        table.add(f"{way.peer}, {way.mode}", f"{max(way.rates()):.1f}", f"{median(way.rates()):.1f}",
                  f"{way.tokens_per_step():.2f}", "" if ratio is None else f"{ratio:.2f}",
                  "" if prefill is None else f"{prefill:.0f}", f"{max(r['peak_bytes'] for r in way.runs) / 1e9:.2f} GB",
                  "" if own in (None, way) else "same" if own.texts() == way.texts() else "differs",
                  "" if swiftk in (None, way) else f"{same_start(way.texts(), swiftk.texts()):.0%}")
    return table


def _notes(ways: list[Way], model: Path, machine: Machine, missing: dict[str, str],
           given: argparse.Namespace) -> list[str]:
    size = sum(f.stat().st_size for f in model.glob("*.safetensors"))
    versions = {way.peer.split()[0]: way.runs[0]["version"] for way in ways}
    return [
        machine.describe(),
        f"{model.name}, {size / 1e9:.2f} GB of weights; {given.threads} threads, greedy, batch 1; {given.repeats} runs "
        f"of {given.prompts} prompts in turn, {given.tokens} new tokens each",
        "tokens/s: behind the first token of each text; 8 rows / 1: a pass of 8 rows over a pass of one, median; "
        "prompt tokens/s: 512 at once, best; agrees with swiftk: share of tokens before the first that differs",
        "versions: " + ", ".join(f"{peer} {version}" for peer, version in versions.items()),
        *(f"left out: {name} ({why})" for name, why in missing.items()),
    ]


def main() -> int:
    given = _arguments()
    model = given.model or grown(given.grow)
    chosen = [Way(*w) for w in _WAYS if given.only is None or w[0].split()[0] in given.only]
    machine = Machine.measure(given.threads, _core.isas()[0])
    missing = _measure(chosen, model, given)
    ways = [way for way in chosen if way.runs]
    if not ways:
        _err.print(f"[compare] nothing ran: {missing}")
        return 1
    notes = _notes(ways, model, machine, missing, given)
    text = _table(ways).markdown() + "\n\n" + "\n".join(f"- {note}" for note in notes) + "\n"
    print(text, end="")
    measured = [{"peer": w.peer, "mode": w.mode, "tokens_per_second": w.rates(), "runs": [_brief(r) for r in w.runs]}
                for w in ways]
    facts = {"machine": machine.facts(), "model": model.name, "notes": notes, "missing": missing, "ways": measured}
    path = given.json or _HERE / "results" / "compare.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
