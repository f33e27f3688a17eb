"""Ends of a text: stop ids, EOS, stop strings, the budget. Decided by token, so a block may be cut anywhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from .detokenizer import Detokenizer


class StopStrings:
    """Searches text as it comes; holds back what may be the start of a stop string.

    Special tokens that the text leaves out are searched too: a stop string may be one, or contain one.
    """

    def __init__(self, strings: Sequence[str], include: bool = False) -> None:
        """include: whether the text that is shown ends with the stop string, or before it."""
        self._strings, self._include = tuple(strings), include
        self._held = ""
        self._hidden: list[bool] = []  # of each character held back: whether it belongs to a special token

    def push(self, text: str, hidden: bool = False) -> tuple[str, bool]:
        """(text that is safe to show, whether a stop string is now complete). hidden: it is searched, never shown."""
        if not self._strings:
            return "" if hidden else text, False
        self._held += text
        self._hidden += [hidden] * len(text)
        found = [(at, at + len(s)) for s in self._strings if (at := self._held.find(s)) >= 0]
        if found:
            first, end = min(found)
            return self._release(end if self._include else first), True
        return self._release(len(self._held) - max(_overlap(self._held, s) for s in self._strings)), False

    def flush(self) -> str:
        """What was held back, once the text has ended otherwise."""
        return self._release(len(self._held))

    def _release(self, n: int) -> str:
        shown = "".join(c for c, hidden in zip(self._held[:n], self._hidden, strict=False) if not hidden)
        self._held, self._hidden = self._held[n:], self._hidden[n:]
        return shown


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop` and is not all of it."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)


class Stopper:
    """Follows one text. finish is None until push() was given the token that ends it."""

    def __init__(
        self,
        budget: int,
        stop_ids: Collection[int],
        strings: Sequence[str] = (),
        detokenizer: Detokenizer | None = None,
        *,
        include_stop: bool = False,
        hidden: Mapping[int, str] | None = None,
        kept: Collection[str] = (),
        min_tokens: int = 0,
    ) -> None:
        """include_stop: the text ends with the stop string, or with what the detokenizer makes of the stop id. hidden:
        special tokens that the detokenizer leaves out, as stop strings spell them. kept: those of them that the text
        spells all the same. min_tokens: stop strings are looked for in what follows so many tokens."""
        self.finish: str | None = None  # "stop", "length" or "cancelled"
        self.remaining = budget  # tokens
        self.stop_ids = frozenset(stop_ids)
        self.piece = ""  # what the last token added, whether it is shown by now or held back
        self._searched_from = budget - min_tokens
        self._strings = StopStrings(strings, include_stop)
        self._detokenizer, self._include = detokenizer, include_stop
        self._hidden, self._kept = hidden or {}, frozenset(kept)

    @property
    def begins(self) -> bool:
        """Whether no words come before the text."""
        return self._detokenizer is None or self._detokenizer.begins

    def cancel(self) -> None:
        """Nothing follows, unless the text had ended."""
        self.finish = self.finish or "cancelled"

    def push(self, token: int) -> str:
        """The text this token makes visible."""
        assert self.finish is None
        assert self.remaining > 0
        self.remaining -= 1
        ends = token in self.stop_ids
        spelled = self._hidden.get(token, "")
        kept = spelled in self._kept
        shown = self._detokenizer.push(token) if self._detokenizer and (self._include or not ends) else ""
        self.piece = shown + spelled if kept and not ends else shown
        if ends:
            self.finish = "stop"
            return self._strings.flush() + self.piece
        if self.remaining >= self._searched_from:
            self.finish = None if self.remaining else "length"
            return self.piece
        text, complete = self._strings.push(shown)
        if spelled and not complete:
            more, complete = self._strings.push(spelled, hidden=not kept)
            text += more
        if complete:
            self.finish = "stop"
        elif self.remaining == 0:
            self.finish = "length"
            text += self._strings.flush()
        return text
