"""Writing files whole or not at all: a name holds what was last finished, whenever the process or the disk ends."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import SwiftkError

PARTIAL = ".partial"


class SaveError(SwiftkError, OSError):
    """A file of a run could not be written; what it held before is intact."""


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A path beside `path` to write a file or folder to. It takes the place of `path` at the end, or vanishes."""
    partial = path.with_name(path.name + PARTIAL)
    try:
        _remove(partial)  # what a process that was killed left behind
        yield partial
        for file in [partial] if partial.is_file() else sorted(partial.iterdir()):
            _to_disk(file)
        if path.is_dir():
            shutil.rmtree(path)
        partial.replace(path)
        _to_disk(path.parent)
    except OSError as error:
        with suppress(OSError):
            _remove(partial)
        raise save_error(path, error) from error
    except BaseException:
        _remove(partial)
        raise


def save_error(path: Path, error: OSError) -> SaveError:
    """Says what the system said, how much room there is, and that nothing is lost."""
    if isinstance(error, SaveError):
        return error
    before = "what it held before is intact" if path.exists() else "nothing was there before"
    with suppress(OSError):
        free = shutil.disk_usage(path.parent).free / 1e6
        before = f"{free:,.0f} MB are free; {before}"
    return SaveError(f"[save] {path} cannot be written: {error.strerror or error}; {before}")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _to_disk(path: Path) -> None:
    """Before a rename: else a crash of the machine may keep the name and lose the data."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
