"""The same function, k times as wide: for measuring speed at real sizes with a model whose text is known.

Hidden channels, heads and FFN units are tiled k times and projections divided by k, so every copy computes what the
original did. RMSNorm keeps its mean square; the final norm is divided by k, which serves a tied head too.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from .. import _core
from ..errors import InvalidArgument
from .folders import cache_folder
from .hf_folder import CONFIG, HfFolder
from .safetensors_io import Stream, Tensor, decode, encode, write_folder

_TABLES = ("d2t", "t2d", "confidence_head.proj.bias")  # of tokens, and of one number
_BLOCK = 64 << 20  # bytes per write
_SHARD = 2 << 30  # bytes of a file where one does not hold the model


def _tiled(rows: np.ndarray, times: int) -> Iterator[np.ndarray]:
    """The rows of ``rows``, over and over; blocks of a fixed size, so memory does not grow with the matrix."""
    step = max(1, _BLOCK // max(1, rows[:1].nbytes))
    for _ in range(times):
        for begin in range(0, len(rows), step):
            yield rows[begin : begin + step]


def _wide(rows: np.ndarray, k: int) -> Iterator[np.ndarray]:
    """The rows of ``rows`` with their columns tiled k times."""
    step = max(1, _BLOCK // max(1, rows[:1].nbytes * k))
    for begin in range(0, len(rows), step):
        yield np.tile(rows[begin : begin + step], (1, k))


def _of_features(names: Collection[str]) -> bool:
    """Whether a drafter reads and foretells what is after the model's last norm, as EAGLE-1 and 2 do."""
    return "fc.weight" in names and "norm.weight" not in names and any(n.startswith("layers.0.") for n in names)


def _share(name: str, k: int, of_features: bool, columns: int) -> Any:
    """What a matrix's columns are divided by: k copies are summed. What is after the model's last norm is a k-th of
    what it was, and so are all states of a drafter that foretells it."""
    if not of_features:
        return np.float32(k)
    if name == "fc.weight":  # of an embedding, and of a feature
        return np.repeat(np.float32([k * k, k]), columns // 2)
    if name.endswith(("o_proj.weight", "down_proj.weight")):
        return np.float32(k * k)
    first = name.startswith("layers.0.self_attn.")  # no norm is before it
    return np.float32(1 if first else k)


def _wider(name: str, t: Tensor, k: int, names: Collection[str], D: int) -> Stream | Tensor:
    """names: of all tensors, which show what kind of drafter it is. D: hidden size."""
    of_features = _of_features(names)

    def divided() -> np.ndarray:
        return encode(decode(t) / _share(name, k, of_features, t.bits.shape[-1]), t.dtype)

    if name.endswith(("q_norm.weight", "k_norm.weight")) or name.startswith("markov_head.") or name in _TABLES:
        return t  # one head's, and heads stay as they are; what knows tokens alone
    if name == "confidence_head.proj.weight":  # states, and after them the token before
        return Tensor(t.dtype, np.concatenate([np.tile(t.bits[:, :D], (1, k)), t.bits[:, D:]], axis=1))
    if name in ("model.norm.weight", "norm.weight") or (of_features and name == "fc.bias"):
        return Tensor(t.dtype, np.tile(encode(decode(t) / np.float32(k), t.dtype), k))
    if t.bits.ndim == 1:
        return Tensor(t.dtype, np.tile(t.bits, k))  # norms and biases act per copy: nothing sums over copies
    rows, columns = t.bits.shape
    if name in ("model.embed_tokens.weight", "embed_tokens.weight", "lm_head.weight"):
        return Stream(t.dtype, (rows, columns * k), _wide(t.bits, k))

    parts = columns // rows if name == "fc.weight" else 1  # features of several layers, one after another
    layer, inside, which = name.partition("self_attn.")
    if inside and which[0] in "qkv" and f"{layer}hidden_norm.weight" in names:
        parts = 2  # an embedding, and a state (EAGLE-3)

    def blocks() -> Iterator[np.ndarray]:
        wide = [np.tile(part, (1, k)) for part in np.split(divided(), parts, axis=1)]
        yield from _tiled(np.concatenate(wide, axis=1), k)

    return Stream(t.dtype, (rows * k, columns * k), blocks())


def grow(src_dir: str | Path, dst_dir: str | Path, k: int, progress: Callable[[int, int], None] | None = None) -> Path:
    """Writes the checkpoint of ``src_dir`` k times as wide (k * k times the layer weights) to ``dst_dir``; of a
    drafter, one for the model k times as wide. A Mixture of Attentions has no norm: its logits are k times as large,
    unless layers of the model run after it.

    With k a power of two every weight is exact and the logits are equal up to the order of summation; another k also
    rounds weights to the checkpoint's dtype. ``progress`` gets bytes done and bytes in all after each tensor.
    """
    if k < 1:
        raise InvalidArgument(f"[grow] k is {k}, want at least 1")
    src, dst = Path(src_dir), Path(dst_dir)
    files = HfFolder(src)
    config, stored = files.config, files.tensors()
    shape = config.get("transformer_layer_config", config)
    D = shape["hidden_size"]
    tensors = {name: _wider(name, t, k, stored.keys(), D) for name, t in stored.items()}
    dst.mkdir(parents=True, exist_ok=True)
    heads = shape["num_attention_heads"]
    usual = _core.families()[shape["model_type"]]  # where config.json leaves them out
    shape["head_dim"] = shape.get("head_dim") or usual["head_dim"] or shape["hidden_size"] // heads
    shape["num_key_value_heads"] = shape.get("num_key_value_heads") or usual["kv_heads"] or heads
    for field in shape:  # a Mixture of Attentions has them of several layers
        if field.endswith(("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")):
            shape[field] *= k
    (dst / CONFIG).write_text(json.dumps(config, indent=2))
    for name, content in files.settings().items():
        if name != CONFIG:
            (dst / name).write_bytes(content)
    total = sum(_nbytes(t) for t in tensors.values())
    done = 0
    for size in write_folder(dst, tensors, -(-total // _SHARD)):
        done += size
        if progress is not None:
            progress(done, total)
    return dst


def grown(source: Path, k: int, show: Callable[[Path], AbstractContextManager[Any]] = nullcontext) -> Path:
    """The folder of a model, or of a drafter, k times as wide; made once for these weights, in the cache. show: opened
    on the folder while it is made; gives what ``progress`` is, or anything else."""
    weights = 0
    for file in sorted(source.glob("*.safetensors")):
        weights = zlib.crc32(file.read_bytes(), weights)
    folder = cache_folder() / "grown" / f"{weights:08x}" / f"{source.resolve().name}-x{k}"
    if (folder / CONFIG).is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f"{folder.name}.{os.getpid()}")
    with show(folder) as progress:
        grow(source, partial, k, progress if callable(progress) else None)
    if not folder.exists():
        partial.rename(folder)  # whole or not at all, also when two run at once
    return folder if not partial.exists() else partial


def _nbytes(t: Stream | Tensor) -> int:
    if isinstance(t, Tensor):
        return t.bits.nbytes
    return int(np.prod(t.shape, dtype=np.int64)) * (4 if t.dtype == "F32" else 2)
