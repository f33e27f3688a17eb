"""Every experiment of this folder, one after another. Each keeps its own results, and a second run goes on where the
first was interrupted. `python bench/paper/all.py [--minutes N]`; other options go to each experiment."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from pathlib import Path
from time import perf_counter

# Shares of the time.
WEIGHTS = {
    "main_table": 16,
    "mixed": 4,
    "search": 4,
    "ends": 1,
    "inference": 3,
    "transfer": 3,
    "ablation": 3,
    "topk": 2,
    "scaling": 2,
    "gamma": 2,
    "overhead": 2,
    "defeat": 2,
    "constructed": 1,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, help="time budget of all experiments together")
    given, others = parser.parse_known_args()  # other options go to each experiment
    began, failed = perf_counter(), []
    signal.signal(signal.SIGINT, lambda *_: None)  # the experiment hears it too, keeps what it has, and says 130
    for at, (name, weight) in enumerate(WEIGHTS.items()):
        command = [sys.executable, str(Path(__file__).with_name(f"{name}.py")), *others]
        if given.minutes is not None:
            left = max(0.0, given.minutes - (perf_counter() - began) / 60)
            command += ["--minutes", f"{left * weight / sum(list(WEIGHTS.values())[at:]):.2f}"]
        status = subprocess.run(command, check=False).returncode
        if status == 130:
            return status
        if status:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
