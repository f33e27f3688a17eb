"""safetensors in numpy alone, for making test models: tensors are memory maps to read and streams of rows to write.

The runtime has its own reader in C++ (csrc/files/checkpoint.cc); this one is for Python, where numpy has no bfloat16
and torch is heavy.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..errors import CheckpointError

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
STORED = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}  # config.json's name -> safetensors' name
_CONVERTED = "swiftk.converted"  # csrc/files/converted.h
_NUMPY = {
    "F32": np.dtype("<f4"),
    "BF16": np.dtype("<u2"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "BOOL": np.dtype("?"),
}


class Tensor(NamedTuple):
    """``bits`` has dtype uint16 for BF16."""

    dtype: str
    bits: np.ndarray


class Stream(NamedTuple):
    """A tensor still to be made: ``blocks`` yields its rows in order, as many at a time as it likes."""

    dtype: str
    shape: tuple[int, ...]
    blocks: Iterable[np.ndarray]


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    """float32 -> the bits of bfloat16, rounded to nearest, ties to even. NaN is not expected."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def encode(x: np.ndarray, dtype: str) -> np.ndarray:
    """float32 -> what a tensor of safetensors dtype ``dtype`` stores."""
    return to_bfloat16(x) if dtype == "BF16" else x.astype(_NUMPY[dtype])


def decode(tensor: Tensor) -> np.ndarray:
    """-> float32."""
    return from_bfloat16(tensor.bits) if tensor.dtype == "BF16" else tensor.bits.astype(np.float32)


def read_file(path: str | Path) -> dict[str, Tensor]:
    """The tensors of one file, as read-only memory maps, in the order of its data."""
    try:
        data = np.memmap(path, np.uint8, "r")
        (length,) = struct.unpack("<Q", data[:8].tobytes())
        header = json.loads(data[8 : 8 + length].tobytes())
        header.pop("__metadata__", None)
        if _CONVERTED in header:
            raise ValueError("it was converted for loading, want the model that it was made of")
        out = {}
        for name, info in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            begin, end = (8 + length + offset for offset in info["data_offsets"])
            out[name] = Tensor(info["dtype"], data[begin:end].view(_NUMPY[info["dtype"]]).reshape(info["shape"]))
        return out
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        raise CheckpointError(f"[checkpoint] {path} cannot be read: {error}") from None


def read_folder(folder: str | Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint, whether one file or shards."""
    folder = Path(folder)
    single, index = folder / WEIGHTS, folder / INDEX
    if single.is_file() or not index.is_file():
        return read_file(single)
    out: dict[str, Tensor] = {}
    for name in sorted(set(json.loads(index.read_text())["weight_map"].values())):
        out.update(read_file(folder / name))
    return out


def write_file(path: str | Path, tensors: Mapping[str, Tensor | Stream]) -> Iterator[int]:
    """Writes the tensors in order and yields the bytes of each when it is done; nothing is held back in memory."""
    header: dict[str, dict] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, t in tensors.items():
        shape = t.bits.shape if isinstance(t, Tensor) else t.shape
        size = int(np.prod(shape, dtype=np.int64)) * _NUMPY[t.dtype].itemsize
        header[name] = {"dtype": t.dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            written = 0
            for block in [t.bits] if isinstance(t, Tensor) else t.blocks:
                written += file.write(np.ascontiguousarray(block).view(np.uint8).data)
            yield written


def write_folder(folder: str | Path, tensors: Mapping[str, Tensor | Stream], shards: int = 1) -> Iterator[int]:
    """model.safetensors, or ``shards`` files of about as many tensors each and their index; yields as write_file does.

    Shards are written at once, a thread each: what takes time is the system finding memory for the pages of a file, and
    it does that for one writer of a file at a time.
    """
    folder = Path(folder)
    if shards == 1:
        yield from write_file(folder / WEIGHTS, tensors)
        return
    names = list(tensors)
    cuts = [len(names) * i // shards for i in range(shards + 1)]
    parts = {f"model-{i + 1:05d}-of-{shards:05d}.safetensors": names[cuts[i] : cuts[i + 1]] for i in range(shards)}

    def write(file: str) -> list[int]:
        return list(write_file(folder / file, {name: tensors[name] for name in parts[file]}))

    total = 0
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for sizes in threads.map(write, parts):
            total += sum(sizes)
            yield from sizes
    weight_map = {name: file for file, part in parts.items() for name in part}
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index, indent=2))
