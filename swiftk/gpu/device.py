"""Devices: the CPU, or a GPU with kernels built for it. A GPU that cannot be used is never passed over in
silence."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import _core
from ..errors import DeviceError
from . import debug
from . import pack as packs

_log = logging.getLogger("swiftk")


def choose(device: str) -> str:
    """The device that LoadOptions.device asks for; "auto" takes the first GPU, else the CPU."""
    if device != "auto":
        return device
    try:
        gpu = _core.gpu_info(0)
    except DeviceError as error:
        _log.info("running on the CPU: %s", error)
        return "cpu"
    _log.info("running on %s", gpu["name"])
    return "cuda"


def architecture(device: str) -> str:
    """What kernels for this device are compiled for ("sm_90"); SWIFTK_DEBUG may name another."""
    ordinal = int(device.partition(":")[2] or 0)
    return debug.value("arch") or _core.gpu_info(ordinal)["architecture"]


def kernels(
    folder: Path,
    dtype: str,
    device: str,
    progress: Callable[[int, int], Any] | None = None,
    draft_weights: str = "own",
) -> str:
    """The kernel pack of a checkpoint for a device, built if it is not cached; "" for the CPU, which needs none."""
    if device == "cpu":
        return ""
    shape = packs.shape_of(folder, dtype)
    return str(packs.ensure(shape, architecture(device), progress, draft_weights=draft_weights))


def drafter_kernels(
    drafter: Path,
    folder: Path,
    dtype: str,
    device: str,
    progress: Callable[[int, int], Any] | None = None,
    draft_weights: str = "own",
) -> list[str]:
    """The same for the layers of a drafter of that checkpoint; of most kinds one. A model has copies, too."""
    if device == "cpu":
        return []
    shapes = packs.shapes_of_drafter(drafter, folder, dtype)
    arch, copies = architecture(device), packs.copies_of_drafter(shapes[0], draft_weights)
    return [str(packs.ensure(shape, arch, progress, draft_weights=copies)) for shape in shapes]


def place(
    folder: Path,
    device: str,
    dtype: str = "auto",
    pack: str | Path | None = None,
    progress: Callable[[int, int], Any] | None = None,
    draft_weights: str = "own",
) -> tuple[str, str]:
    """Device and kernel pack for a checkpoint. "auto" goes to the CPU, with a warning, where a GPU gets no kernels."""
    chosen = choose(device)
    try:
        if pack and chosen != "cpu":
            return chosen, str(pack)
        return chosen, kernels(folder, dtype, chosen, progress, draft_weights)
    except DeviceError as error:
        if device != "auto":
            raise
        _log.warning("running on the CPU although there is a GPU: %s", error)
        return "cpu", ""
