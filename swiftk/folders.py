"""Where swiftk keeps what it made, and where its kernels' sources are."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

_PACKAGE = Path(__file__).resolve().parent


def cache_folder() -> Path:
    """SWIFTK_CACHE, or swiftk in the user's cache folder."""
    own = os.environ.get("SWIFTK_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "swiftk"


def kernel_sources() -> Path:
    """The folder of the Triton kernels: of the source tree that this package lies in, else the installed copy."""
    tree = _PACKAGE.parent
    own = (tree / "csrc" / "session.h").is_file()
    return tree / "kernels" / "triton" if own else _PACKAGE / "kernels" / "triton"


def load_source(path: Path) -> ModuleType:
    """A file of plain Python outside the package, as a module."""
    spec = importlib.util.spec_from_file_location(f"swiftk_{path.parent.name}_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
