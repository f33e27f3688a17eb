"""Where a text ends: stop ids, EOS, stop strings, the budget. Decided by token, so a block may be cut anywhere."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .detokenizer import Detokenizer


class StopStrings:
    """Searches text as it comes; holds back what may be the start of a stop string."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = tuple(strings)
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """(text that is safe to show, whether a stop string is now complete). The stop string itself is never shown."""
        text = self._held + text
        self._held = ""
        if not self._strings:
            return text, False
        found = [at for s in self._strings if (at := text.find(s)) >= 0]
        if found:
            return text[: min(found)], True
        keep = max(_overlap(text, s) for s in self._strings)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], False

    def flush(self) -> str:
        """What was held back, once the text has ended otherwise."""
        held, self._held = self._held, ""
        return held


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
    ) -> None:
        self.finish: str | None = None  # "stop", "length" or "cancelled"
        self.remaining = budget  # tokens
        self.stop_ids = frozenset(stop_ids)
        self._strings = StopStrings(strings)
        self._detokenizer = detokenizer

    def cancel(self) -> None:
        """Nothing follows, unless the text had ended."""
        self.finish = self.finish or "cancelled"

    def push(self, token: int) -> str:
        """The text this token makes visible."""
        assert self.finish is None
        assert self.remaining > 0
        self.remaining -= 1
        if token in self.stop_ids:
            self.finish = "stop"
            return self._strings.flush()
        text, complete = self._strings.push(self._detokenizer.push(token) if self._detokenizer else "")
        if complete:
            self.finish = "stop"
        elif self.remaining == 0:
            self.finish = "length"
            text += self._strings.flush()
        return text
