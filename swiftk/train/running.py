"""How a run runs: where, alone in its folder, until it is stopped; and its optimizer."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ..errors import DeviceError, InvalidArgument, OutOfMemory


def adamw(model: torch.nn.Module, s: Any) -> torch.optim.Optimizer:
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": matrices, "weight_decay": s.weight_decay}, {"params": others, "weight_decay": 0.0}]
    fused = next(model.parameters()).is_cuda
    return torch.optim.AdamW(groups, lr=s.lr or 0.0, betas=(s.beta1, s.beta2), fused=fused)


def autocast(device: torch.device, precision: str | None) -> torch.autocast:
    """Matrix products in bfloat16, where that is the precision; None: as a run on that device begins."""
    return torch.autocast(device.type, torch.bfloat16, enabled=(precision or default_precision(device)) == "bfloat16")


def default_precision(device: torch.device) -> str:
    return "bfloat16" if device.type == "cuda" else "float32"


def device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cpu":
        return torch.device(name)
    kind, _, index = name.partition(":")
    if kind != "cuda" or (index and not index.isdigit()):
        raise InvalidArgument(f"[train] --device is {name!r}, want auto, cpu, cuda or cuda:N")
    if int(index or 0) >= torch.cuda.device_count():
        raise DeviceError(f"[train] --device is {name}, and torch sees {torch.cuda.device_count()} GPUs")
    return torch.device(name)


@contextmanager
def memory() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        advice = "want a smaller --batch with more --accumulate in a new run, or --recompute"
        raise OutOfMemory(f"[train] the GPU has too little memory, {advice}: {error}") from None


@contextmanager
def alone(folder: Path, training: Path) -> Iterator[None]:
    """Two processes in one run would write each other's rows."""
    handle = os.open(training, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidArgument(f"[train] another process is training in {folder}, want it to end") from None
        yield
    finally:
        os.close(handle)  # and the lock with it


@contextmanager
def stoppable() -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM end the run after the step; a second one ends it at once, from the last checkpoint on."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, frame: object) -> None:
        stopped.set()
        for number, handler in before.items():
            signal.signal(number, handler)

    try:
        for number in before:
            signal.signal(number, stop)
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
