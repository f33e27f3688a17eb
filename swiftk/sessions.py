"""Native sessions for texts that Python decodes: each has one to itself, and the next text takes it over."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np


class Sessions:
    """Those that are idle. In a forked process there are none at first."""

    def __init__(self, make: Callable[[], Any]) -> None:
        """make: a _core.Session."""
        self._make = make
        self._guard = threading.Lock()
        self._first: Any = None
        self._idle: list[Any] = []
        self._busy: list[Any] = []
        self._process = os.getpid()

    @property
    def first(self) -> Any:
        with self._guard:
            self._here()
            if self._first is None:
                self._first = self._make()
                self._idle.append(self._first)
            return self._first

    def take(self, prompt: np.ndarray) -> Any:
        """The one whose cache goes along with the prompt for longest; another one where all are in use."""
        with self._guard:
            self._here()
            idle = self._idle
            if idle:
                session = idle.pop(max(range(len(idle)), key=lambda i: _common(idle[i].history, prompt)))
            else:
                session = self._make()
                self._first = self._first or session
            self._busy.append(session)
            return session

    def give(self, session: Any) -> None:
        """Back."""
        with self._guard:
            if any(session is one for one in self._busy):
                self._busy = [one for one in self._busy if one is not session]
                self._idle.append(session)

    def cancel(self) -> None:
        with self._guard:
            for session in self._busy:
                session.cancel()

    def forget(self) -> None:
        """What they know of texts, and of what follows on what; those of texts under way go when these end."""
        with self._guard:
            self._busy.clear()
            for session in self._idle:
                session.forget_sources()
                session.reuse([int(session.history[0]) ^ 1] if len(session.history) else [0])

    def close(self) -> None:
        self.cancel()
        with self._guard:
            self._first, self._idle, self._busy = None, [], []

    def _here(self) -> None:
        """Those of the process that forked this one may be in the middle of something."""
        if self._process != os.getpid():
            self._first, self._idle, self._busy, self._process = None, [], [], os.getpid()


def _common(text: np.ndarray, prompt: np.ndarray) -> int:
    """Leading tokens that both have."""
    n = min(len(text), len(prompt))
    differs = np.flatnonzero(text[:n] != prompt[:n])
    return int(differs[0]) if differs.size else n
