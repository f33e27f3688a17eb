"""One peer in a process: `worker.py PEER OPTIONS`, then a line of JSON asks and a line answers.

Runs under any interpreter that has the peer installed, so it imports nothing of this repository but its own folder.
"""

from __future__ import annotations

import importlib
import json
import os
import sys


def peak_bytes() -> int:
    """High-water mark of resident memory of this process image (getrusage would count the parent's before exec)."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


def main(name: str, options: str) -> None:
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not reach the answer

    def tell(found: dict) -> None:
        print(json.dumps(found), file=answer, flush=True)

    try:
        peer = importlib.import_module(f"peer_{name}").Peer(**json.loads(options))
    except ImportError as error:
        return tell({"missing": str(error)})
    tell({"version": peer.version})
    for line in sys.stdin:
        asked = json.loads(line)
        tell({**getattr(peer, asked.pop("do"))(**asked), "peak_bytes": peak_bytes()})


if __name__ == "__main__":
    main(*sys.argv[1:])
