"""Corpora: a user's text files, whose n-grams are proposed for drafting (source "corpus")."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import numpy as np

from .. import _core
from ..errors import InvalidArgument
from .tokenizer import Tokenizer

_log = logging.getLogger("swiftk")
_LOOK = 10.0  # seconds between two looks at whether files have changed
_PIECE = 1 << 20  # characters that are tokenised at a time
_END = -1  # of a text, among tokens
Stamp = tuple[tuple[Path, int, int], ...]


class Corpora:
    """Those of a model, by path. An index is made when it is first asked for, and again once files have changed."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._guard = tokenizer, threading.Lock()
        self._kept: dict[Path, tuple[float, Stamp, _core.sources.Corpus]] = {}

    def of(self, path: Path) -> _core.sources.Corpus:
        """The index of a text file, or of those in a folder: hidden ones are left out, and those that are not UTF-8.
        InvalidArgument: there is no such file, or no text."""
        with self._guard:
            looked, before, corpus = self._kept.get(path, (-_LOOK, None, None))
            if monotonic() - looked < _LOOK:
                return corpus
            stamp = _stamp(path)
            if stamp != before:
                corpus = self._read(path, [file for file, _, _ in stamp])
            self._kept[path] = (monotonic(), stamp, corpus)
            return corpus

    def _read(self, path: Path, files: list[Path]) -> _core.sources.Corpus:
        tokens: list[np.ndarray] = []
        told, total = monotonic(), 0
        for at, file in enumerate(files, 1):
            for piece in _pieces(file, files == [path]):
                tokens.append(np.array(self._tokenizer.encode(piece, special=False), np.int32))
                total += len(tokens[-1])
                if monotonic() - told > 1:
                    told = monotonic()
                    _log.info("reading %s: %d of %d files, %d tokens", path, at, len(files), total)
            tokens.append(np.array([_END], np.int32))
        if not total:
            raise InvalidArgument(f"[corpus] {path} has no text, want a text file, or a folder with some")
        return _core.sources.Corpus(np.concatenate(tokens))


def _stamp(path: Path) -> Stamp:
    """Files, with what tells that one has changed."""
    if not path.exists():
        raise InvalidArgument(f"[corpus] {path} does not exist, want a text file, or a folder with some")
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    seen = [one for one in files if not any(part.startswith(".") for part in one.relative_to(path).parts)]
    return tuple((one, (stat := one.stat()).st_mtime_ns, stat.st_size) for one in seen)


def _pieces(file: Path, alone: bool) -> Iterator[str]:
    """Whole lines, about as long as is tokenised at a time."""
    try:
        with file.open(encoding="utf-8") as text:
            while lines := text.readlines(_PIECE):
                yield "".join(lines)
    except UnicodeDecodeError as error:
        if alone:
            raise InvalidArgument(f"[corpus] {file} is not UTF-8 ({error.reason}), want a text file") from None
        _log.info("%s is no text, and left out", file)
    except OSError as error:
        raise InvalidArgument(f"[corpus] {file} cannot be read: {error.strerror}") from None
