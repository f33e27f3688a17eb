"""Peers of swiftk, each in a process of its own, perhaps of another interpreter: a line of JSON asks, a line
answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any

from .as_gguf import Missing, gguf
from .harness import Study
from .spread import error
from .texts import Text

_PEERS = Path(__file__).with_name("peers")
_CALM = 0.02  # seconds: a process's idle threads spin for some milliseconds, on the cores that the next one needs
LOOKED_UP = 2  # tokens of a draft: what llama-cpp-python's README says is best on CPUs
PYTHON_LLAMA = {"--python-llama": {"default": sys.executable, "help": "interpreter that has llama-cpp-python and gguf"}}


class Ended(RuntimeError):
    """A peer's process is no longer there."""


class Peer:
    """A context; peers/worker.py on the other side."""

    def __init__(
        self,
        peer: str,
        python: str = sys.executable,
        threads: int | None = None,
        enter: Callable[[], None] | None = None,
        **options: Any,
    ) -> None:
        """enter: what the process does before it begins."""
        threads = threads or len(os.sched_getaffinity(0))
        self._process = subprocess.Popen(
            [python, str(_PEERS / "worker.py"), peer, json.dumps({"threads": threads, **options})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=enter,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        )
        self.version = self._answer()["version"]

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """What the peer's method `do` returns, and the most memory that its process had, in bytes."""
        sleep(_CALM)
        print(json.dumps({"do": do, **arguments}), file=self._process.stdin, flush=True)
        found = self._answer()
        sleep(_CALM)
        return found

    def _answer(self) -> dict[str, Any]:
        if not (line := self._process.stdout.readline()):
            raise Ended(f"[peers] {self._process.args[2]} ended with status {self._process.wait()}")
        found = json.loads(line)
        if "missing" in found:
            raise Missing(f"{self._process.args[0]}: {found['missing']}")
        return found

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


def ours(study: Study, loading: Mapping[str, Any] | None = None, **more: Any) -> Any:
    """What makes a peer of the study's model in swiftk."""
    return partial(Peer, "swiftk", model=str(study.folder), loading={**study.asked, **(loading or {})}, **more)


def llama(study: Study, dtype: str, **options: Any) -> Peer:
    python = study.given.python_llama
    return Peer("llama_cpp", python, path=gguf(study.folder, dtype, python), **options)


def side_by_side_on(
    study: Study, peers: Mapping[str, Any], texts: Sequence[Text]
) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """Every text by every peer in turn, greedy, within a part of the study: the answers of each, and notes. peers: by
    name, what makes it."""
    notes, lanes = [], {}
    with ExitStack() as stack:
        for name in study.chosen(peers):
            try:
                lanes[name] = stack.enter_context(peers[name](threads=study.threads))
            except Missing as error:
                notes.append(f"left out: {name} ({error})")
        versions = {name.partition(",")[0]: lane.version for name, lane in lanes.items()}
        order, found = list(lanes), {name: [] for name in lanes}
        for text in study.each(texts):
            for name in list(order):
                try:
                    found[name].append(lanes[name].ask("generate", prompt=text.prompt, count=study.tokens))
                except Ended as error:
                    if name.startswith("swiftk"):
                        raise
                    notes.append(f"left out: {name} ({error})")
                    order.remove(name)
                    del found[name]
            order.reverse()
    return found, [*notes, "versions: " + ", ".join(f"{peer} {version}" for peer, version in versions.items())]


def side_by_side(study: Study, peers: Mapping[str, Any]) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """The same with the texts of the study's streams, as its only part."""
    every = [text for name in study.streams for text in study.texts(name)]
    for _, texts in study.parts({"texts": every}):
        found = side_by_side_on(study, peers, texts)
    return found


def summed(texts: list[dict[str, Any]]) -> dict[str, Any]:
    """A row of a peer's answers."""
    timed, seconds, steps = (sum(text[key] for text in texts) for key in ("timed", "seconds", "steps"))
    drafted = sum(text.get("drafted", 0) for text in texts)
    return {
        "rate": timed / seconds,
        "memory_GB": max(text["peak_bytes"] for text in texts) / 1e9,
        "M": timed / steps,
        "alpha": sum(len(text["tokens"]) - 1 - text["steps"] for text in texts) / drafted if drafted else None,
    }


def over(texts: list[dict[str, Any]], others: list[dict[str, Any]]) -> dict[str, Any]:
    """How much faster a peer is than another on the same texts, and the standard error of that by the texts."""
    ratio = summed(texts)["rate"] / summed(others)["rate"]
    a, b = ([text["seconds"] / text["timed"] for text in some] for some in (others, texts))
    return {"over": ratio, "error": error(a, b)}


def equal(texts: list[dict[str, Any]], others: list[dict[str, Any]]) -> str:
    """How many have the same tokens."""
    same = sum(a["tokens"] == b["tokens"] for a, b in zip(texts, others, strict=True))
    return f"{same} of {len(texts)}"
