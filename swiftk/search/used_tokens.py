"""The tokens that a model's texts use, for a vocabulary head that is trimmed to them: counted in what it reads and
writes, and kept from one process to the next; or given. (FR-Spec, Zhao et al. 2025, counts them in a corpus.)"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
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
_MOST = 1 << 16  # tokens that are kept, the most frequent ones


class UsedTokens:
    """A model's, on whatever device."""

    def __init__(self, files: ModelFiles) -> None:
        self._file = LearnedFile([files], "tokens")
        self._guard = threading.Lock()
        self._saved = -SAVE
        self._unsaved = False
        self._counts = self._read(files)

    def ids(self) -> list[int]:
        """All that were seen; none before there are enough to tell."""
        with self._guard:
            return sorted(self._counts) if self._counts.total() >= _FEW else []

    def add(self, tokens: Iterable[int]) -> None:
        """The tokens of a text that has ended."""
        with self._guard:
            self._counts.update(tokens)
            self._unsaved = True
            due = monotonic() - self._saved > SAVE
        if due:
            self.save()

    def save(self) -> None:
        with self._guard:
            if not self._unsaved or not self._file.enabled:
                return
            self._saved, self._unsaved = monotonic(), False
            self._file.save(_KIND, self._counts.most_common(_MOST))

    def _read(self, files: ModelFiles) -> Counter[int]:
        state = self._file.load(_KIND)
        if state is None:
            return Counter()
        try:
            V = _core.read_config(str(files.path))["vocab_size"]
            counted = Counter({int(token): int(count) for token, count in state})
            for token, count in counted.items():
                if not (0 <= token < V and count > 0):
                    raise ValueError(f"token {token} was seen {count} times, want tokens 0..{V - 1}")
            return counted
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
