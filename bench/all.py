"""Every result of a CPU, in order: each study in a process of its own, so that one that fails stops no other.

A study whose results are of the build that is installed is left out, so a second run goes on where the first one
ended. By default all of them take two to three hours on two cores, half of that for Self-SD's searches, which run
for as many steps as were asked for.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from .published import MODELS, model
from .results import OUT, RECORD, folder_of, is_current, place

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = {"ops": 4.0, "phases": 0.7, "draws": 0.7, "generate": 2.2}  # pytest --benchmark; minutes
MINUTES = {
    **BENCHMARKS,
    "compare": 6.5,
    "modes": 6.5,
    "quantised": 13.0,
    "loading": 2.0,
    "families": 2.5,
    "batch": 5.0,
    "contexts": 8.0,
    "disk": 8.0,
    "arrivals": 1.7,
    "users": 10.0,
    "precision": 2.7,
    "sources": 1.3,
    "c_host": 1.2,
    "remote": 3.0,
    "structured": 1.5,
    "drafters": 6.0,
    "modelled": 6.0,
    "published_model": 4.0,
    "quality": 3.0,
    "paper/main_table": 26.0,
    "paper/topk": 1.4,
    "paper/transfer": 1.5,
    "paper/inference": 2.3,
    "paper/mixed": 20.0,
    "paper/search": 38.0,
    "paper/scaling": 2.0,
    "paper/ablation": 2.4,
    "paper/defeat": 2.4,
    "paper/constructed": 1.0,
    "layerskip/exits": 1.0,
    "layerskip/kvq": 1.5,
    "layerskip/sweep": 2.2,
    "layerskip/transformers_peer": 1.5,
}
APART = ("heads",)  # takes hours, and wants texts to learn from
WITH_LLAMA = ("compare", "quantised", "loading", "batch", "contexts", "disk", "users")


def command(name: str, given: argparse.Namespace, minutes: float) -> list[str]:
    where = ["--record"] if given.record else ["--out", str(given.out)]
    if name in BENCHMARKS:
        grow = ["--grow", "1"] if given.quick else []
        return ["pytest", "--benchmark", "-q", f"bench/bench_{name}.py", *grow, *where]
    words = [f"bench.{name.replace('/', '.')}", "--minutes", f"{minutes:.1f}", *where]
    words += ["--quick"] if given.quick else []
    for option in ("model", "dtype", "isa", "texts", "tokens"):
        value = getattr(given, option)
        words += [f"--{option}", str(value)] if value else []
    return words + (["--python-llama", given.python_llama] if name in WITH_LLAMA else [])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=sum(MINUTES.values()), help="of all; default %(default)s")
    parser.add_argument("--only", nargs="+", choices=MINUTES, metavar="STUDY", help=f"some of: {', '.join(MINUTES)}")
    parser.add_argument("--quick", action="store_true", help="smoke tests, of seconds, on the bundled model")
    about = f"folder, GGUF file, or one of {', '.join(MODELS)}, for the studies that are not pytest benchmarks"
    parser.add_argument("--model", type=model, help=about)
    for option, kind in (("dtype", str), ("isa", str), ("texts", int), ("tokens", int)):
        parser.add_argument(f"--{option}", type=kind, help="as in these studies")
    parser.add_argument("--out", type=Path, help=f"folder of results; default {OUT}")
    parser.add_argument("--record", action="store_true", help=f"results go to {RECORD}, which READMEs cite")
    parser.add_argument("--python-llama", default=sys.executable, help="interpreter that has llama-cpp-python and gguf")
    given = parser.parse_args()
    try:
        given.out = folder_of(given.record, given.out, given.quick).resolve()
    except ValueError as error:
        parser.error(str(error))
    began, failed = perf_counter(), []
    asked = given.model, given.dtype, given.isa
    there = {name: given.out if name in BENCHMARKS else place(given.out, *asked) for name in given.only or MINUTES}
    todo = {name: MINUTES[name] for name, folder in there.items() if not is_current(name, folder, given.quick)}
    print(f"{len(todo)} studies, {given.minutes:.0f} minutes at most, into {given.out}", flush=True)
    for at, (name, share) in enumerate(todo.items()):
        left = max(0.0, given.minutes - (perf_counter() - began) / 60)
        minutes = left * share / sum(list(todo.values())[at:])
        print(f"== {at + 1} of {len(todo)}: {name}, {minutes:.1f} minutes", flush=True)
        done = subprocess.run([sys.executable, "-m", *command(name, given, minutes)], cwd=ROOT, check=False)
        failed += [name] if done.returncode else []
    told = f"failed: {', '.join(failed)}" if failed else "none failed"
    print(f"== {len(todo)} studies in {(perf_counter() - began) / 60:.1f} minutes; {told}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
