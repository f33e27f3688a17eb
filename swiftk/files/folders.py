"""Folders: caches, the user's state, and the kernels' sources."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import get_ident
from types import ModuleType

from ..errors import DeviceError

_PACKAGE = Path(__file__).resolve().parents[1]


def cache_folder() -> Path:
    """SWIFTK_CACHE, or swiftk in the user's cache folder."""
    own = os.environ.get("SWIFTK_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "swiftk"


def state_folder() -> Path:
    """swiftk in the folder for what programs keep of a user's doings: XDG_STATE_HOME, or ~/.local/state."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "swiftk"


def kernel_sources() -> Path:
    """The folder of the Triton kernels: of the source tree that this package lies in, else the installed copy."""
    tree = _PACKAGE.parent
    own = (tree / "csrc" / "engine" / "session.h").is_file()
    return tree / "kernels" / "triton" if own else _PACKAGE / "kernels" / "triton"


def load_source(path: Path) -> ModuleType:
    """A file of plain Python outside the package, as a module."""
    spec = importlib.util.spec_from_file_location(f"swiftk_{path.parent.name}_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def write_whole(path: Path, data: bytes) -> None:
    """The file, or what was there before."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.{get_ident()}")
    with typed(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.write_bytes(data)
            partial.replace(path)
        except OSError:
            with suppress(OSError):
                partial.unlink()
            raise


@contextmanager
def typed(path: Path) -> Iterator[None]:
    """An operating system's error as one of ours that names the path."""
    try:
        yield
    except OSError as error:
        hint = "; SWIFTK_CACHE names another folder" if path.is_relative_to(cache_folder()) else ""
        raise DeviceError(f"[pack] {path} cannot be written: {error.strerror}{hint}") from error
