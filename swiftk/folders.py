"""Where swiftk keeps what it made, and where its kernels' sources are."""

from __future__ import annotations

import os
from pathlib import Path

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
