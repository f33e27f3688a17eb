"""The options of load(): each is declared once here, with its default, its check and its help. load(), the command
line and help() read this."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ..draft.draft_spec import MOST_DRAFTERS
from ..errors import InvalidArgument, InvalidOption
from ..files.model_files import open_model_files
from .fields import described, option, read_all
from .values import By, Ids, Integer, Size, forms

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
ROUNDED = {"int8": "int8", "int4": "int4"}  # of weights
ROUNDED_KV = {"int8": "int8"}


def _device(where: str, value: Any) -> str:
    device = os.environ.get("SWIFTK_DEVICE", "auto") if value == "auto" else value
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", str(device)):
        raise InvalidArgument(f"{where}={device!r}, want 'auto', 'cpu', 'cuda' or 'cuda:N'")
    return str(device)


def _of(names: Mapping[str, str]) -> Callable[[str, Any], str]:
    def dtype(where: str, value: Any) -> str:
        name = str(value).removeprefix("torch.")
        if name not in names:
            raise InvalidArgument(f"{where}={value!r}, want one of {', '.join(sorted(names))}")
        return names[name]

    return dtype


def _isa(where: str, value: Any) -> Any:
    if not (value is None or isinstance(value, str)):
        raise InvalidOption(f"{where}={value!r}, want the name of an instruction set")
    return value


def _pack(where: str, value: Any) -> Any:
    if not (value is None or isinstance(value, (str, os.PathLike))):
        raise InvalidOption(f"{where}={value!r}, want the path of a file that `swiftk pack` made")
    return value


def _drafter(where: str, value: Any) -> list[Path]:
    several = value if isinstance(value, (list, tuple)) else [value]
    if not (value is None or all(isinstance(one, (str, os.PathLike)) for one in several)):
        raise InvalidOption(f"{where}={value!r}, want the path of a drafter's folder, or a list")
    if len(several) > MOST_DRAFTERS:
        raise InvalidOption(f"{where}= names {len(several)} folders, want at most {MOST_DRAFTERS}")
    return [Path(one).expanduser() for one in several if one is not None]


def _draft_vocab(where: str, value: Any) -> Any:
    if isinstance(value, (str, os.PathLike)):
        return value if value in ("auto", "all") else _path(where, value)
    ids = Ids().read(where, value)
    if not ids:
        raise InvalidOption(f"{where}=[], want 'auto', 'all', the path of a text file, or token ids")
    return ids


def _drafter_pack(where: str, value: Any) -> list[str] | None:
    if value is None:
        return None
    files = value if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(file, (str, os.PathLike)) for file in files):
        raise InvalidOption(f"{where}={value!r}, want paths of what `swiftk pack --drafter` made")
    return [os.fspath(file) for file in files]


def _tokenizer(where: str, value: Any) -> Path | None:
    path = _path(where, value)
    if path and not open_model_files(path).has_tokenizer:
        raise InvalidArgument(f"{where}={str(path)!r} has no tokenizer, want a model's folder or GGUF file")
    return path


def _chat_template(where: str, value: Any) -> Path | None:
    file = _path(where, value)
    if file and not file.is_file():
        raise InvalidArgument(f"{where}={str(file)!r} is no file, want one with a Jinja template")
    return file


def _folder(where: str, value: Any) -> Path | None:
    if not (value is None or isinstance(value, (str, os.PathLike))):
        raise InvalidOption(f"{where}={value!r}, want the path of a folder")
    folder = None if value is None else Path(value).expanduser()
    if folder and folder.exists() and not folder.is_dir():
        raise InvalidArgument(f"{where}={str(folder)!r} is a file, want a folder")
    return folder


def _path(where: str, value: Any) -> Path | None:
    if not (value is None or isinstance(value, (str, os.PathLike))):
        raise InvalidOption(f"{where}={value!r}, want the path of a file")
    return None if value is None else Path(value).expanduser()


@described
@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a model is loaded."""

    function: ClassVar[str] = "load"
    device: str = option(
        "auto",
        By(str, _device),
        "Device: cpu, cuda, cuda:N, or auto (SWIFTK_DEVICE if it is set, else a GPU if there is one).",
        metavar="DEVICE",
    )
    dtype: str = option(
        "auto",
        By(str, _of(DTYPES | ROUNDED)),
        "Weights in memory: auto (as in the checkpoint), float32, bfloat16, float16, int8 or int4 (rounded when they "
        "are loaded, on a CPU).",
        metavar="DTYPE",
    )
    kv_dtype: str = option(
        "auto",
        By(str, _of(DTYPES | ROUNDED_KV)),
        "Keys and values: auto (as the weights), float32, bfloat16, float16 or int8 (rounded, with a scale for each). "
        "On a GPU, auto. It changes the texts.",
        metavar="DTYPE",
    )
    threads: int | None = option(None, Integer(1, MAX_THREADS), "CPU threads. Default: one per core.")
    context: int | None = option(
        None, Integer(2, 1 << 31), "Maximum number of tokens of prompt and answer together. Default: the model's."
    )
    isa: str | None = option(
        None,
        By(str, _isa),
        "Instruction set of the CPU's kernels: baseline, avx2, avx512, avx512bf16 or amx. Texts may differ "
        "between them. "
        "Default: the best of this machine.",
        metavar="NAME",
    )
    pack: str | Path | None = option(
        None,
        By(str, _pack),
        "GPU kernels, a file of `swiftk pack`. Default: built at first use, then cached.",
        metavar="FILE",
    )
    draft_weights: str | Sequence[str] = option(
        "auto",
        By(str, forms),
        "Few-bit copies of the weights for drafting: int8, int4, int3, or several, auto (int4 or int3, if one fits), "
        "own (none), or upper (the upper bytes of float16 weights on a CPU, which cost no memory). A CPU reads a head "
        "in the first of these that has few bits.",
        metavar="FORM[,FORM]",
    )
    drafter: str | Path | Sequence[str | Path] | None = option(
        None,
        By(list[str], _drafter),
        "Folder of a head that was trained for this model, or of a small model of the same vocabulary. The fastest of "
        "several is used.",
        metavar="FOLDER",
    )
    drafter_pack: str | Path | Sequence[str | Path] | None = option(
        None,
        By(list[str], _drafter_pack),
        "GPU kernels of heads and draft models, files of `swiftk pack --drafter` in the same order (three for "
        "a Mixture of Attentions). Default: built at first use, then cached.",
        metavar="FILE",
    )
    draft_vocab: str | Path | Sequence[int] = option(
        "auto",
        By(str, _draft_vocab),
        "Tokens that drafts may propose by a vocabulary head that is trimmed to them, on a CPU: auto (those of this "
        "model's texts so far, where its head is large), all (no trimmed head), or the path of a text file, whose "
        "tokens they are. In Python also a list of token ids.",
        metavar="auto|all|FILE",
    )
    draft_memory: int | str | None = option(
        None,
        Size(),
        "Maximum memory of all copies of the weights: bytes, or a size such as 6GB or 512MiB. Default: a quarter of "
        "what is free.",
        metavar="SIZE",
    )
    memory: int | str | None = option(
        None,
        Size(),
        "Memory that this process may take, on a CPU: bytes, or a size such as 6GB or 512MiB. Weights that do not fit "
        "are read from disk for each pass, out of a converted model that the first load makes. Default: what is free.",
        metavar="SIZE",
    )
    max_sequences: int = option(
        16, Integer(1, 256, also=()), "Maximum number of requests that run together; others wait. Default: 16."
    )
    kv_memory: int | str | None = option(
        None,
        Size(),
        "Maximum memory of keys and values: bytes, or a size such as 6GB or 512MiB. Default: one text of full "
        "length, and an eighth of one for each of the others, but no more than half of the free memory.",
        metavar="SIZE",
    )
    prefix_cache: str | Path | None = option(
        None,
        By(str, _folder),
        "Folder in which the keys and values of prompts that several texts began with are kept, for later processes, "
        "too. It is made if there is none. Whoever may write to it can change texts.",
        metavar="DIR",
    )
    prefix_cache_size: int | str = option(
        "4GB",
        Size(),
        "Maximum size of the prefix cache's files: bytes, or a size such as 6GB or 512MiB. Files that were used "
        "longest ago are removed. Default: 4GB.",
        metavar="SIZE",
    )
    tokenizer: str | Path | None = option(
        None,
        By(str, _tokenizer),
        "A model's folder or GGUF file, whose tokenizer and chat template are used in place of the model's own; its "
        "vocabulary must be the model's. Default: the model's.",
        metavar="PATH",
    )
    chat_template: str | Path | None = option(
        None,
        By(str, _chat_template),
        "File of a chat template (Jinja), in place of the checkpoint's own. Default: the checkpoint's.",
        metavar="FILE",
    )
    corpus: str | Path | None = option(
        None,
        By(str, _path),
        "A text file, or a folder of some: what follows the same words there is proposed to every text.",
        metavar="PATH",
    )

    def __post_init__(self) -> None:
        read_all(self)
