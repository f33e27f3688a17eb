"""The terminal: how a model's text gets there, and how Ctrl-C ends it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
_STYLES, _PLAIN = {"dim": "\x1b[2m", "green": "\x1b[32m"}, "\x1b[0m"


class Screen:
    """stdout, for a model's text alone: what commands say besides goes to stderr. Tabs stay tabs."""

    def __init__(self) -> None:
        self._file = sys.stdout
        self._terminal = self._file.isatty()
        self._styled = self._terminal and "NO_COLOR" not in os.environ
        self._thinks = False

    def write(self, text: str, style: str = "") -> None:
        """A piece of the text. A terminal obeys control characters, so it gets their numbers instead. style: "dim" or
        "green", on a terminal with colours."""
        if self._thinks:
            self._put(f"{_PLAIN}\n")
            self._thinks = False
        shown = plain(text) if self._terminal else text
        self._put(f"{_STYLES[style]}{shown}{_PLAIN}" if style and self._styled else shown)

    def think(self, text: str) -> None:
        """Shows the thoughts of a model before its answer: dim on a terminal, nowhere else."""
        if self._styled:
            self._put(("" if self._thinks else _STYLES["dim"]) + plain(text))
            self._thinks = True

    def end(self) -> None:
        """Ends the line of the text."""
        self.write("\n")

    def _put(self, text: str) -> None:
        self._file.write(text)
        self._file.flush()


def plain(text: str) -> str:
    """Without control characters other than tab and newline: \\x1b in place of an escape."""
    return text.translate(_CONTROLS)


@contextmanager
def one_interrupt() -> Iterator[None]:
    """The first Ctrl-C raises KeyboardInterrupt. Later ones are ignored, so that what it ended can be put in order."""

    def interrupt(*_: Any) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
