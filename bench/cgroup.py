"""A control group whose processes have a bounded amount of memory, page cache included. Needs a system that lets this
user make one."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

from .as_gguf import Missing

_ROOT = Path("/sys/fs/cgroup")


class MemoryGroup:
    """A context. Missing: there may be no such group."""

    def __init__(self, limit: int) -> None:
        v1 = (_ROOT / "memory").is_dir()
        self._folder = _ROOT / ("memory" if v1 else "") / f"swiftk-bench-{os.getpid()}"
        try:
            self._folder.mkdir()
            (self._folder / ("memory.limit_in_bytes" if v1 else "memory.max")).write_text(str(limit))
        except OSError as error:
            raise Missing(f"a control group with {limit} bytes of memory: {error.strerror}") from None

    def enter(self) -> None:
        """This process goes in, and so do those that it starts."""
        (self._folder / "cgroup.procs").write_text(str(os.getpid()))

    def __enter__(self) -> MemoryGroup:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._folder.rmdir()


def forget(path: Path) -> None:
    """A file leaves the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
