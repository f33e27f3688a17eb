"""Bayesian suggestions by the package bayesian-optimization, in a process of their own: one takes from a tenth of a
second to several, and decoding must not wait for it. The two talk in lines of JSON."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import weakref
from collections import deque
from contextlib import redirect_stdout, suppress
from importlib.util import find_spec
from io import StringIO
from queue import Empty, SimpleQueue
from typing import Any

_log = logging.getLogger("swiftk")
# Points: the price of a suggestion grows with their cube. With 26 sublayers one of 300 points took 4.5 s, and one of
# 1000, the paper's S, 25 s (one core of a Xeon).
_REMEMBERED = 300
_LOOK = 1.0  # seconds between two looks whether the process still lives


class Suggestions:
    """Points in [0, 1]^n that promise a high score. alpha: variance of a score's noise; kappa: of the upper confidence
    bound; waits: an answer is waited for. If not, its process has the time that nobody else wants. Without the package,
    or when its process dies, there is just never an answer."""

    def __init__(
        self, dimensions: int, seed: int, alpha: float = 1e-2, kappa: float = 2.5, waits: bool = False
    ) -> None:
        self.dimensions, self.waits = dimensions, waits
        self._arguments = [str(seed), str(alpha), str(kappa), "waits" if waits else "idle"]
        self._told: deque[tuple[list[float], float]] = deque(maxlen=_REMEMBERED)
        self._process: subprocess.Popen[str] | None = None
        self._answers: SimpleQueue[list[float]] = SimpleQueue()
        self._asked = False
        self._closed = dimensions < 1

    def tell(self, point: list[float], score: float) -> None:
        self._told.append((point, score))

    def ask(self) -> None:
        """For an answer some time later; one question at a time."""
        if self._closed or self._asked or not self._told or not self._start():
            return
        process = self._process
        assert process is not None and process.stdin is not None
        try:
            points, scores = zip(*self._told, strict=True)
            process.stdin.write(json.dumps({"points": points, "scores": scores}) + "\n")
            process.stdin.flush()
            self._asked = True
        except OSError:
            self._lost()

    def answer(self) -> list[float] | None:
        """The point asked for, once it is there."""
        while self._asked:
            with suppress(Empty):
                point = self._answers.get(timeout=_LOOK) if self.waits else self._answers.get_nowait()
                self._asked = False
                return point
            if self._process is not None and self._process.poll() is not None:
                self._lost()
            if not self.waits:
                break
        return None

    def close(self) -> None:
        """For now: another question starts another process."""
        self._asked = False
        if self._process is not None:
            _end(self._process)
            self._process = None

    def _start(self) -> bool:
        if self._process is not None:
            return True
        if find_spec("bayes_opt") is None:
            _log.warning("Bayesian steps need the package bayesian-optimization; the search goes on at random")
            self._closed = True
            return False
        command = [sys.executable, "-m", __name__, *self._arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        weakref.finalize(self, _end, self._process)  # also when the interpreter ends
        threading.Thread(target=_listen, args=(self._process.stdout, self._answers), daemon=True).start()
        return True

    def _lost(self) -> None:
        _log.warning("the process that makes Bayesian suggestions ended; the search goes on at random")
        self.close()
        self._closed = True


def _listen(lines: Any, answers: SimpleQueue[list[float]]) -> None:
    for line in lines:
        if not line.endswith("\n"):
            return  # killed while it wrote
        answers.put(json.loads(line))


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        try:
            if pipe is not None:
                pipe.close()
        except OSError:
            pass  # what was still to be written has no reader


def suggest(
    points: list[list[float]], scores: list[float], seed: int, alpha: float = 1e-2, kappa: float = 2.5
) -> list[float]:
    """The point that the scores so far make most promising. alpha, kappa: as in SWIFT's code."""
    from bayes_opt import BayesianOptimization
    from bayes_opt.acquisition import UpperConfidenceBound

    names = [f"x{i:04d}" for i in range(len(points[0]))]  # the package sorts by name
    search = BayesianOptimization(
        None,
        dict.fromkeys(names, (0.0, 1.0)),
        acquisition_function=UpperConfidenceBound(kappa=kappa),
        random_state=seed,
        verbose=0,
        allow_duplicate_points=True,
    )
    search.set_gp_params(alpha=alpha)
    with redirect_stdout(StringIO()):  # it prints a line for each point that was seen before
        for point, score in zip(points, scores, strict=True):
            search.register(dict(zip(names, point, strict=True)), score)
        found = search.suggest()
    return [float(found[name]) for name in names]


def _serve(seed: int, alpha: float, kappa: float, pace: str) -> None:
    if pace == "idle":
        os.nice(10)
        with suppress(OSError, AttributeError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    for count, line in enumerate(sys.stdin):
        told = json.loads(line)
        print(json.dumps(suggest(told["points"], told["scores"], seed + count, alpha, kappa)), flush=True)


if __name__ == "__main__":
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"  # before numpy is loaded: decoding has the cores
    _serve(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
