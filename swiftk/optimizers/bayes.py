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
from contextlib import redirect_stdout
from importlib.util import find_spec
from io import StringIO
from typing import Any

_log = logging.getLogger("swiftk")
_ALPHA, _KAPPA = 1e-2, 2.5  # of the Gaussian process and its upper confidence bound, as in SWIFT's code
_REMEMBERED = 300  # points: the price of a suggestion grows with their cube


class Suggestions:
    """Points in [0, 1]^n that promise a high score. Told and asked without ever waiting; without the package, or when
    its process dies, there is just never an answer."""

    def __init__(self, dimensions: int, seed: int) -> None:
        self.dimensions, self._seed = dimensions, seed
        self._told: deque[tuple[list[float], float]] = deque(maxlen=_REMEMBERED)
        self._process: subprocess.Popen[str] | None = None
        self._answers: deque[list[float]] = deque()
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
        if self._answers:
            self._asked = False
            return self._answers.popleft()
        if self._asked and self._process is not None and self._process.poll() is not None:
            self._lost()
        return None

    def close(self) -> None:
        self._closed = True
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
        command = [sys.executable, "-m", __name__, str(self.dimensions), str(self._seed)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        weakref.finalize(self, _end, self._process)  # also when the interpreter ends
        threading.Thread(target=_listen, args=(self._process.stdout, self._answers), daemon=True).start()
        return True

    def _lost(self) -> None:
        _log.warning("the process that makes Bayesian suggestions ended; the search goes on at random")
        self.close()


def _listen(lines: Any, answers: deque[list[float]]) -> None:
    for line in lines:
        if not line.endswith("\n"):
            return  # killed while it wrote
        answers.append(json.loads(line))


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        try:
            if pipe is not None:
                pipe.close()
        except OSError:
            pass  # what was still to be written has no reader


def suggest(points: list[list[float]], scores: list[float], seed: int) -> list[float]:
    """The point that the scores so far make most promising."""
    from bayes_opt import BayesianOptimization
    from bayes_opt.acquisition import UpperConfidenceBound

    names = [f"x{i:04d}" for i in range(len(points[0]))]  # the package sorts by name
    search = BayesianOptimization(
        None,
        dict.fromkeys(names, (0.0, 1.0)),
        acquisition_function=UpperConfidenceBound(kappa=_KAPPA),
        random_state=seed,
        verbose=0,
        allow_duplicate_points=True,
    )
    search.set_gp_params(alpha=_ALPHA)
    with redirect_stdout(StringIO()):  # it prints a line for each point that was seen before
        for point, score in zip(points, scores, strict=True):
            search.register(dict(zip(names, point, strict=True)), score)
        found = search.suggest()
    return [float(found[name]) for name in names]


def _serve(seed: int) -> None:
    os.nice(10)
    for count, line in enumerate(sys.stdin):
        told = json.loads(line)
        print(json.dumps(suggest(told["points"], told["scores"], seed + count)), flush=True)


if __name__ == "__main__":
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"  # before numpy is loaded: decoding has the cores
    _serve(int(sys.argv[2]))
