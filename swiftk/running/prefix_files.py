"""Prompts that several texts began with, as files: their keys and values are found again after a restart, after memory
was wanted for other texts, and by other processes. A file has a block of 64 tokens."""

from __future__ import annotations

import hashlib
import logging
import os
import queue
import stat
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from .. import _core
from ..errors import DeviceError, InvalidArgument
from ..files.folders import write_whole

_log = logging.getLogger("swiftk")
_FORMAT = b"swiftk prefixes 1"
_SUFFIX = ".kv"
_BLOCK = _core.SavedBlock.TOKENS
_PIECE = 32 << 20  # bytes that are loaded between two rounds, which takes some 10 ms
_QUEUE = 64  # texts whose prompts wait to be written; those of more are dropped
_FULL = 0.9  # share of the bound that is left once files had to go, so that the folder is not listed for each file
_STALE = 3600.0  # seconds after which a file that a process left half written is removed


class PrefixFiles:
    """A folder of them. Several processes and models may share it. What goes wrong here costs a line of the log and
    time, never a text."""

    def __init__(self, folder: Path, most: int, model: int, of: Sequence[bytes]) -> None:
        """most: bytes of all files; model: _core.Engine.model_digest(); of: what else bits of keys and values depend
        on, apart from the build."""
        self.folder, self._most = folder, most
        digest = hashlib.blake2b(_FORMAT, digest_size=_core.SavedBlock.IDENTITY)
        for part in (Path(_core.__file__).read_bytes(), model.to_bytes(8, "little"), *of):
            digest.update(len(part).to_bytes(8, "little") + part)
        self._identity = digest.digest()
        # Called with numbers of tokens, and of files that could not be read or written.
        self.read: Callable[[float], Any] = lambda tokens: None
        self.written: Callable[[float], Any] = lambda tokens: None
        self.failed: Callable[[float], Any] = lambda files: None
        self.count = self.bytes = 0  # all files and their size, when it last looked
        self._warned = False
        self._start()
        try:
            self._look()
        except OSError as error:
            self._warn("read", error)

    def _start(self) -> None:
        self._process, self._guard = os.getpid(), threading.Lock()
        self._jobs: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def _leave_other_process(self) -> None:
        """After a fork: its thread and its locks are not here."""
        if self._process != os.getpid():
            self._start()

    def fetch(self, native: Any, tokens: np.ndarray, end: int) -> int:
        """Loads what the folder has of a prompt and memory has not, and returns the number of these tokens. In the
        thread that submits the text, before it does. native: a _core.Engine; end: the position before which the text
        ends."""
        self._leave_other_process()
        try:
            stretched = native.stretches(end)
            paths = self._paths(tokens, stretched)
            there = next((i for i, path in enumerate(paths) if not path.exists()), len(paths))
            if there == 0:
                return 0
            _touch(paths[:there])
            whole = tokens[: there * _BLOCK]
            return self._load(native, paths[:there], whole, stretched, native.cached_blocks(whole, stretched))
        except Exception as error:
            self._warn("read", error)
            return 0

    def _load(self, native: Any, paths: Sequence[Path], tokens: np.ndarray, stretched: bool, first: int) -> int:
        """The number of tokens that were loaded."""
        blocks: list[Any] = []
        before = 0  # blocks that were handed over
        for i in range(first, len(paths)):
            block = self._read(native, paths[i], tokens[: (i + 1) * _BLOCK], stretched)
            if block is None:
                break
            blocks.append(block)
            if len(blocks) * native.saved_bytes(1) >= _PIECE:
                loaded = self._hand_over(native, blocks)
                before += loaded
                if loaded < len(blocks):
                    return before * _BLOCK
                blocks = []
        if blocks:
            before += self._hand_over(native, blocks)
        return before * _BLOCK

    def _hand_over(self, native: Any, blocks: Sequence[Any]) -> int:
        loaded: int = native.load_blocks(blocks)
        self.read(loaded * _BLOCK)
        return loaded

    def _read(self, native: Any, path: Path, tokens: np.ndarray, stretched: bool) -> Any:
        """A _core.SavedBlock; None where there is none, a damaged file included, which is removed."""
        try:
            file = _contents(path, native.saved_bytes(len(tokens) // _BLOCK))
            return native.read_block(file, tokens, stretched, self._identity)
        except FileNotFoundError:
            return None
        except InvalidArgument as error:
            _log.warning("a file of the prefix cache is removed: %s: %s", path, error)
            self.failed(1)
            with suppress(OSError):
                path.unlink()
            return None

    def keep(self, native: Any, tokens: np.ndarray, shared: int, end: int) -> None:
        """Has the leading `shared` tokens of a prompt written, which another text began with."""
        self._leave_other_process()
        if shared < _BLOCK:
            return
        with self._guard:
            if self._jobs.qsize() < _QUEUE:
                self._jobs.put((native, tokens[: shared // _BLOCK * _BLOCK], end))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, args=[self._jobs], name="swiftk-prefixes", daemon=True
                )
                self._thread.start()

    def close(self) -> None:
        """Returns once everything is written."""
        self._leave_other_process()
        with self._guard:
            thread, jobs = self._thread, self._jobs
            self._thread, self._jobs = None, queue.SimpleQueue()
        if thread is not None:
            jobs.put(None)
            if thread is not threading.current_thread():  # in which garbage may be collected
                thread.join()

    def _run(self, jobs: queue.SimpleQueue[tuple[Any, ...] | None]) -> None:
        while (job := jobs.get()) is not None:
            try:
                self._write(*job)
            except Exception as error:
                self.failed(1)
                self._warn("written", error)

    def _write(self, native: Any, tokens: np.ndarray, end: int) -> None:
        stretched = native.stretches(end)
        paths = self._paths(tokens, stretched)
        whole = _size(paths[-1]) >= native.saved_bytes(len(paths))  # what layers with windows see at the end, too
        if whole and all(path.exists() for path in paths):
            return
        self.folder.mkdir(0o700, parents=True, exist_ok=True)  # files tell what prompts said
        self._look()
        count, total = self.count, self.bytes
        own = 0
        for i, path in enumerate(paths):
            size = native.saved_bytes(i + 1)
            own += size
            if own > _FULL * self._most:
                break
            there = _size(path)
            if there >= size or (there > 0 and whole):
                continue
            file = native.save_block(tokens[: (i + 1) * _BLOCK], stretched, self._identity)
            if not file:  # memory was wanted meanwhile
                break
            if len(file) <= there:
                continue
            write_whole(path, file)
            self.written(_BLOCK)
            count, total = count + (there == 0), total + len(file) - there
            if total > self._most:
                _touch(paths[: i + 1])
                count, total = self._make_room()
            self.count, self.bytes = count, total
            if total > self._most:  # files of others that may not be removed
                break
        _touch(paths)

    def _look(self) -> None:
        sizes = [size for _, size, _ in self._files()]
        self.count, self.bytes = len(sizes), sum(sizes)

    def _make_room(self) -> tuple[int, int]:
        """Removes the files that were used longest ago. Returns how many are left, and their bytes."""
        files = sorted(self._files())
        count, left = len(files), sum(size for _, size, _ in files)
        for _, size, path in files:
            if left <= _FULL * self._most:
                break
            with suppress(OSError):
                path.unlink(missing_ok=True)
                count, left = count - 1, left - size
        return count, left

    def _files(self) -> list[tuple[int, int, Path]]:
        """(when it was used, bytes, path) of each file. What a process left half written is removed."""
        found = []
        with suppress(FileNotFoundError), os.scandir(self.folder) as entries:
            for entry in entries:
                if _SUFFIX not in entry.name:
                    continue
                with suppress(FileNotFoundError):
                    its = entry.stat(follow_symlinks=False)
                    if not stat.S_ISREG(its.st_mode):
                        continue
                    if entry.name.endswith(_SUFFIX):
                        found.append((its.st_mtime_ns, its.st_size, Path(entry.path)))
                    elif entry.name.startswith(".") and time.time() - its.st_mtime > _STALE:
                        Path(entry.path).unlink()
        return found

    def _paths(self, tokens: np.ndarray, stretched: bool) -> list[Path]:
        """Of the files of each whole block: a name is a hash of the model and of all tokens up to the block's end."""
        digest = hashlib.blake2b(self._identity + bytes([stretched]), digest_size=16)
        whole = np.ascontiguousarray(tokens, dtype="<i4")
        paths = []
        for i in range(0, len(whole) - _BLOCK + 1, _BLOCK):
            digest.update(whole[i : i + _BLOCK].tobytes())
            paths.append(self.folder / f"{digest.hexdigest()}{_SUFFIX}")
        return paths

    def _warn(self, done: str, error: BaseException) -> None:
        """Once. Errors of the operating system may be the cause of our own."""
        if not self._warned:
            self._warned = True
            cause = error.__cause__ if isinstance(error, DeviceError) and error.__cause__ else error
            _log.warning("the prefix cache %s cannot be %s: %s", self.folder, done, cause)


def _contents(path: Path, most: int) -> bytes:
    """Of a file that may have so many bytes."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as file:  # a pipe would have us wait
        found = os.fstat(file.fileno()).st_size
        if found > most:
            raise InvalidArgument(f"[prefix] it has {found} bytes, want a file of {most} at most")
        return file.read()


def _size(path: Path) -> int:
    """0: there is no such file."""
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _touch(paths: Sequence[Path]) -> None:
    """They were used now, the first one last: the end of a prompt is of no use without its beginning."""
    now = time.time_ns()
    for i, path in enumerate(paths):
        with suppress(OSError):
            os.utime(path, ns=(now - i, now - i))
