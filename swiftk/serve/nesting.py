"""Brackets and strings of a text that comes in pieces: each character is looked at once."""

from __future__ import annotations

import re

_OUTSIDE = re.compile(r"""["'\[\](){}]""")
_INSIDE = {'"': re.compile(r'["\\]'), "'": re.compile(r"['\\]")}
_LONG = 200  # characters of a string that is no name


class Nesting:
    """Follows a text from one bracket to where it is closed."""

    def __init__(self, at: int, shallow: int = 0) -> None:
        """at: of the bracket. shallow: brackets around what is not deep."""
        self.end: int | None = None  # after the bracket that closes it
        self._at, self._depth, self._shallow = at, 0, shallow
        self._quote, self._string = "", at

    @property
    def deep(self) -> bool:
        """Whether what comes next is within more brackets than the shallow ones, or within a long string."""
        within = self._depth > self._shallow or (self._quote != "" and self._at - self._string > _LONG)
        return within and self.end is None

    def follow(self, text: str) -> int | None:
        """text: all of it, as far as it has come. The place at which it is closed."""
        while self.end is None:
            found = (_INSIDE[self._quote] if self._quote else _OUTSIDE).search(text, self._at)
            if found is None or (found[0] == "\\" and found.end() == len(text)):
                self._at = found.start() if found else len(text)
                break
            self._at = found.end() + (found[0] == "\\")
            self._step(found[0])
        return self.end

    def _step(self, one: str) -> None:
        if one == self._quote:
            self._quote = ""
        elif one in _INSIDE and not self._quote:
            self._quote, self._string = one, self._at
        elif not self._quote:
            self._depth += 1 if one in "{[(" else -1
            if self._depth == 0:
                self.end = self._at


def balanced(text: str, at: int) -> int | None:
    """The place at which the bracket at `at` is closed."""
    return Nesting(at).follow(text)
