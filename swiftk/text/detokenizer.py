"""Token ids to text, a token at a time, never emitting half a character."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_BROKEN = "\N{REPLACEMENT CHARACTER}"  # what decoders write for bytes that are not (yet) a character
_PATIENCE = 8  # tokens after which broken bytes are broken for good
_WINDOW = 12  # tokens decoded again with each new one, about


class Detokenizer:
    """Decodes a sliding window, because a token's text depends on its neighbours; emits what can no longer change.
    Bytes of a character that never ends are never emitted."""

    def __init__(self, decode: Callable[[list[int]], str], prompt: Sequence[int] = ()) -> None:
        self._decode = decode
        self._ids = [int(t) for t in prompt[-6:]]  # context: a first word keeps its leading space
        self.begins = not self._ids or not decode(self._ids)  # no words come before: a first space is dropped
        self._start = 0  # where the window begins
        self._whole = len(self._ids)  # ids up to here ended on a whole character, last time they did
        self._emitted = (
            len(decode(self._ids).rstrip(_BROKEN)) if self._ids else 0
        )  # characters of the window that are out

    def push(self, token: int) -> str:
        """The text that this token settles."""
        self._ids.append(token)
        text = self._decode(self._ids[self._start :])
        waiting = len(self._ids) - self._whole
        stable = text if waiting >= _PATIENCE else text.rstrip(_BROKEN)
        new = stable[self._emitted :]
        self._emitted = max(self._emitted, len(stable))
        if len(stable) == len(text):
            self._slide()
        return new

    def _slide(self) -> None:
        """Moves the window's start to the last whole character but one, once it is long."""
        if len(self._ids) - self._start >= _WINDOW:
            rest = self._decode(self._ids[self._whole :])
            if rest:  # an empty decode (special tokens) would make the next token a first one, and lose its space
                self._start, self._emitted = self._whole, len(rest)
        if self._start > 64:
            del self._ids[: self._start]
            self._whole -= self._start
            self._start = 0
        self._whole = len(self._ids)
