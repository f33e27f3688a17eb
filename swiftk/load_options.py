"""The options of load(): each is declared once here, with its default, its check and its help. load(), the command
line and help() read this."""

# ruff: noqa: RUF009, option() is dataclasses.field()
from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from .errors import InvalidArgument, InvalidOption
from .option_values import forms, integer, number_of_bytes, put
from .skip import MOST_DRAFTERS

MAX_THREADS = 1024
DTYPES = {
    "auto": "auto",
    "float32": "float32",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
}
Check = Callable[[Any, str], None]  # (options, name): normalises the value in place, or raises a typed error


def option(default: Any, check: Check, help: str, *, kind: type = str, metavar: str | None = None) -> Any:
    """A field. kind: what a command line reads, int, str or list; metavar: as its help names the value."""
    return field(default=default, metadata={"check": check, "help": help, "kind": kind, "metavar": metavar})


def _integer(low: int, high: int, or_else: Sequence[Any] = (None,)) -> Check:
    return lambda o, name: integer(o, name, low, high, or_else)


def _device(o: Any, name: str) -> None:
    device = os.environ.get("SWIFTK_DEVICE", "auto") if o.device == "auto" else o.device
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", str(device)):
        raise InvalidArgument(f"[load] device={device!r}, want 'auto', 'cpu', 'cuda' or 'cuda:N'")
    put(o, name, str(device))


def _dtype(o: Any, name: str) -> None:
    dtype = str(o.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise InvalidArgument(f"[load] dtype={o.dtype!r}, want one of {', '.join(sorted(DTYPES))}")
    put(o, name, DTYPES[dtype])


def _isa(o: Any, name: str) -> None:
    if not (o.isa is None or isinstance(o.isa, str)):
        raise InvalidOption(f"[load] isa={o.isa!r}, want the name of an instruction set")


def _pack(o: Any, name: str) -> None:
    if not (o.pack is None or isinstance(o.pack, (str, os.PathLike))):
        raise InvalidOption(f"[load] pack={o.pack!r}, want the path of a file that `swiftk pack` made")


def _drafter(o: Any, name: str) -> None:
    several = o.drafter if isinstance(o.drafter, (list, tuple)) else [o.drafter]
    if not (o.drafter is None or all(isinstance(one, (str, os.PathLike)) for one in several)):
        raise InvalidOption(f"[load] drafter={o.drafter!r}, want the path of a drafter's folder, or a list")
    if len(several) > MOST_DRAFTERS:
        raise InvalidOption(f"[load] drafter= names {len(several)} folders, want at most {MOST_DRAFTERS}")
    put(o, name, [Path(one).expanduser() for one in several if one is not None])


def _drafter_pack(o: Any, name: str) -> None:
    if o.drafter_pack is None:
        return
    files = o.drafter_pack if isinstance(o.drafter_pack, (list, tuple)) else [o.drafter_pack]
    if not all(isinstance(file, (str, os.PathLike)) for file in files):
        given = repr(o.drafter_pack)
        raise InvalidOption(f"[load] drafter_pack={given}, want paths of what `swiftk pack --drafter` made")
    put(o, name, [os.fspath(file) for file in files])


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a model is loaded."""

    function: ClassVar[str] = "load"
    device: str = option(
        "auto",
        _device,
        "Where to run: cpu, cuda, cuda:N, or auto (SWIFTK_DEVICE if it is set, else a GPU where there is one).",
        metavar="DEVICE",
    )
    dtype: str = option(
        "auto",
        _dtype,
        "Weights in memory: auto (as in the checkpoint), float32, bfloat16 or float16.",
        metavar="DTYPE",
    )
    threads: int | None = option(None, _integer(1, MAX_THREADS), "CPU threads. Default: one per core.", kind=int)
    context: int | None = option(
        None, _integer(2, 1 << 31), "Most tokens of prompt and text together. Default: the model's.", kind=int
    )
    isa: str | None = option(
        None,
        _isa,
        "Instruction set of the CPU's kernels: baseline, avx2, avx512, avx512bf16 or amx. Each gives texts of its own. "
        "Default: the best of this machine.",
        metavar="NAME",
    )
    pack: str | Path | None = option(
        None,
        _pack,
        "Kernels for a GPU, a file of `swiftk pack`. Default: built at first use, then cached.",
        metavar="FILE",
    )
    draft_weights: str | Sequence[str] = option(
        "auto",
        lambda o, name: put(o, name, forms(o.draft_weights)),
        "Copies of the weights in few bits that drafts read: int8, int4, int3, or several; auto (int4 or int3, if one "
        "fits); own (none); upper (the upper bytes of float16 weights on a CPU, which cost no memory). A CPU reads a "
        "drafter in the first of these that has few bits.",
        metavar="FORM[,FORM]",
    )
    drafter: str | Path | Sequence[str | Path] | None = option(
        None,
        _drafter,
        "Folder of a head that was trained for this model, or of a small model of the same vocabulary. Of several the "
        "fastest is used.",
        kind=list,
        metavar="FOLDER",
    )
    drafter_pack: str | Path | Sequence[str | Path] | None = option(
        None,
        _drafter_pack,
        "The drafters' kernels for a GPU, files of `swiftk pack --drafter` in the same order (three for a Mixture of "
        "Attentions). Default: built at first use, then cached.",
        kind=list,
        metavar="FILE",
    )
    draft_memory: int | str | None = option(
        None,
        number_of_bytes,
        "Most memory of all copies of the weights: bytes, or a size such as 6GB or 512MiB. Default: a quarter of what "
        "is free.",
        metavar="SIZE",
    )
    max_sequences: int = option(
        16, _integer(1, 256, ()), "Texts that step together; others wait. Default: 16.", kind=int
    )
    kv_memory: int | str | None = option(
        None,
        number_of_bytes,
        "Most memory of keys and values: bytes, or a size such as 6GB or 512MiB. Default: one text of full length, and "
        "an eighth of one for each of the others.",
        metavar="SIZE",
    )

    def __post_init__(self) -> None:
        for one in fields(self):
            one.metadata["check"](self, one.name)
