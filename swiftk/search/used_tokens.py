"""The tokens that a model's texts use, for a vocabulary head that is trimmed to them: counted in what it reads and
writes, and kept from one process to the next; or given. (FR-Spec, Zhao et al. 2025, counts them in a corpus.)"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from time import monotonic

from .. import _core
from ..errors import InvalidArgument
from ..files.model_files import ModelFiles
from ..text.tokenizer import Tokenizer
from .learned import SAVE, LearnedFile

_log = logging.getLogger("swiftk")
_KIND = "used tokens"  # in the file
_FEW = 4096  # counted tokens, below which the next one is too often one that was never seen
_PART = 4  # a trimmed head has at most this part of the vocabulary, or it would save little
_MOST = 1 << 16  # tokens that are kept, the most frequent ones


class UsedTokens:
    """A model's, on whatever device: how often each token came, with nothing of their order. Several processes may
    count at a time."""

    def __init__(self, files: ModelFiles) -> None:
        self._files, self._file = files, LearnedFile([files], "tokens")
        self._guard = threading.Lock()
        self._fresh: Counter[int] = Counter()  # not saved yet
        self._saved = -SAVE

    @cached_property
    def _vocab(self) -> int:
        return int(_core.read_config(str(self._files.path))["vocab_size"])

    def ids(self) -> list[int]:
        """The most frequent tokens that were saved; none before there are enough to tell."""
        counts = self._read()
        return sorted(token for token, _ in counts.most_common(self._vocab // _PART)) if counts.total() >= _FEW else []

    def add(self, tokens: Iterable[int]) -> None:
        """Tokens of a text that has ended, those left out that were counted with another."""
        with self._guard:
            self._fresh.update(tokens)
            due = monotonic() - self._saved > SAVE
        if due:
            self.save()

    def save(self) -> None:
        """Adds what was counted since the last time to the file."""
        with self._guard:
            fresh, self._fresh, self._saved = self._fresh, Counter(), monotonic()
        if fresh and self._file.enabled:
            self._file.save(_KIND, (self._read() + fresh).most_common(_MOST))

    def forget(self) -> None:
        """Drops what is not saved."""
        with self._guard:
            self._fresh = Counter()

    def _read(self) -> Counter[int]:
        """Counts in the file, as it is now."""
        self._file.reload()
        try:
            counts = Counter({int(token): int(count) for token, count in self._file.load(_KIND) or ()})
            for token, count in counts.items():
                if not (0 <= token < self._vocab and count > 0):
                    raise ValueError(f"token {token} was seen {count} times, want tokens 0..{self._vocab - 1}")
            return counts
        except (TypeError, ValueError) as error:
            _log.warning("what was learned before is not used: %s: %s", self._file.path, error)
            return Counter()


def draft_tokens(
    given: str | Path | Sequence[int], device: str, used: UsedTokens, tokenizer: Tokenizer, ends: Iterable[int]
) -> list[int]:
    """The tokens that the option draft_vocab names on a device; none: the head is whole. ends: those that end texts."""
    if given == "auto":
        found = used.ids() if device == "cpu" else []
    elif given == "all":
        found = []
    elif isinstance(given, Path):
        try:
            text = given.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"[load] draft_vocab: {given}: {error}") from None
        if not text:
            raise InvalidArgument(f"[load] draft_vocab: {given} is empty, want a text")
        found = tokenizer.encode(text)
    else:
        return list(given)
    return sorted({*found, *ends}) if found else []
