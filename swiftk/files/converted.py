"""Models that loads convert by themselves: weights that do not fit into memory are read for each pass, from a file that
has them as they are wanted there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from .. import _core
from .folders import cache_folder
from .model_files import ModelFiles
from .safetensors_io import WEIGHTS

_log = logging.getLogger("swiftk")


def in_cache(files: ModelFiles, dtype: str, found: Mapping[str, Any], convert: Callable[[Path, str], Any]) -> Path:
    """The converted model of these files. convert(path, copies) makes it where it is not there yet: weights as `dtype`
    says, and the few-bit copies that a survey found. What builds with other panels made of these files is removed."""
    path, name = _place(files, dtype, found)
    if _weights(path, files).exists():
        return path
    folder = path if files.path.is_dir() else path.parent
    for old in folder.parent.glob(f"{name}-*/*"):
        with suppress(OSError):
            old.unlink()
    plan = found["memory"]
    _log.warning(
        "%s needs %.1f GB, and %.1f GB are to be used: it is converted once, to %s, and each pass reads %.1f GB from "
        "there",
        files.path,
        (found["weight_bytes"] + sum(found["copies"].values())) / 1e9,
        plan["limit"] / 1e9,
        path,
        plan["streamed"] / 1e9,
    )
    folder.mkdir(parents=True, exist_ok=True)
    convert(path, _copies(found))
    return path


def streamed_file(files: ModelFiles, dtype: str, found: Mapping[str, Any]) -> Path:
    """The file that passes read, or before there is one the largest of those that it is made of."""
    made = _weights(_place(files, dtype, found)[0], files)
    return made if made.exists() and not found["converted"] else largest_file(files.path)


def largest_file(model: Path) -> Path:
    """A model's own, or the largest of a folder with weights."""
    return model if model.is_file() else max(model.glob(f"*{Path(WEIGHTS).suffix}"), key=lambda one: one.stat().st_size)


def _copies(found: Mapping[str, Any]) -> str:
    return ",".join(found["copies"]) or "own"


def _place(files: ModelFiles, dtype: str, found: Mapping[str, Any]) -> tuple[Path, str]:
    """Where it lies, and its name without the layout of panels."""
    name = f"{files.fingerprint}-{dtype}-{_copies(found).replace(',', '-')}"
    folder = cache_folder() / "converted" / f"{name}-{_core.panel_layout()}"
    return folder / "model.gguf" if files.path.is_file() else folder, name


def _weights(path: Path, files: ModelFiles) -> Path:
    return path if files.path.is_file() else path / WEIGHTS
