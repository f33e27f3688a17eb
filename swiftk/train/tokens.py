"""The token file: all documents one after another as ids, memory-mapped; the end of each file is held out."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CheckpointError, InvalidArgument
from ..files.model_files import open_model_files
from .files import whole
from .texts import Piece, pieces

_GROUP = 64  # pieces encoded at a time, on all cores
_COPY = 1 << 22  # tokens copied at a time

Progress = Callable[[int, int], None]  # files done, files in all
Encode = Callable[[Sequence[Piece]], Iterator[list[int]]]


@dataclass(frozen=True, slots=True)
class Tokens:
    train: np.ndarray  # [n]
    valid: np.ndarray  # [m]


@dataclass(frozen=True, slots=True)
class Encoder:
    """A tokenizer.json, and what stands around a document."""

    backend: Any  # tokenizers.Tokenizer
    special: dict[str, int]  # bos_token_id, eos_token_id, as far as the tokenizer names them
    begin: tuple[int, ...]
    end: tuple[int, ...]

    @classmethod
    def read(cls, folder: Path, eos: int | None = None) -> Encoder:
        """eos: what ends a document, where the checkpoint says it; else the tokenizer's."""
        from tokenizers import Tokenizer

        files = open_model_files(folder)
        try:
            backend = Tokenizer.from_buffer(files.tokenizer_json())
        except Exception as error:  # the library raises Exception itself
            raise CheckpointError(f"[data] {files.tokenizer_path} cannot be read: {error}") from None
        backend.no_truncation()
        backend.no_padding()
        spelt = {f"{name}_id": files.special_tokens.get(name) for name in ("bos_token", "eos_token")}
        named = {name: backend.token_to_id(text) for name, text in spelt.items() if text is not None}
        special = {name: id for name, id in named.items() if id is not None}
        eos = special.get("eos_token_id") if eos is None else eos
        around = backend.encode("", add_special_tokens=True).ids
        return cls(backend, special, tuple(i for i in around if i != eos), () if eos is None else (eos,))

    @property
    def size(self) -> int:
        """One more than the largest id; some tokenizers leave ids out."""
        return max(self.backend.get_vocab(with_added_tokens=True).values()) + 1

    def ids(self, group: Sequence[Piece]) -> Iterator[list[int]]:
        """Pieces of a document are encoded apart: at a line end hardly a merge is lost."""
        encoded = self.backend.encode_batch([piece.text for piece in group], add_special_tokens=False)
        for piece, found in zip(group, encoded):
            yield [*(self.begin if piece.first else ()), *found.ids, *(self.end if piece.last else ())]


def build(
    folder: Path,
    files: Sequence[Path],
    template: str,
    encoder: Encoder,
    held_out: float,
    progress: Progress,
    ids: Encode | None = None,
) -> None:
    """Writes `folder` with train.bin, valid.bin and tokens.json, whole or not at all. ids: what pieces become; the
    encoder's."""
    dtype = np.dtype(np.uint16 if encoder.size <= 1 << 16 else np.uint32)
    counts = {"train": 0, "valid": 0}
    with whole(folder) as partial:
        partial.mkdir(parents=True)
        with open(partial / "train.bin", "wb") as train, open(partial / "valid.bin", "wb") as valid:
            for done, path in enumerate(files):
                progress(done, len(files))
                found = _encoded(partial / "file.bin", path, template, ids or encoder.ids, dtype)
                kept = len(found) - int(len(found) * held_out)
                counts["train"] += _copy(found[:kept], train)
                counts["valid"] += _copy(found[kept:], valid)
        (partial / "file.bin").unlink()
        facts = {"dtype": dtype.name, **counts, "files": [str(path) for path in files]}
        (partial / "tokens.json").write_text(json.dumps(facts, indent=1))
    progress(len(files), len(files))


def read(folder: Path, context: int, held_out: float) -> Tokens:
    """The parts of a token file that build() wrote, long enough for sequences of `context`."""
    try:
        facts = json.loads((folder / "tokens.json").read_text())
        parts = {name: _mapped(folder / f"{name}.bin", facts["dtype"], facts[name]) for name in ("train", "valid")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"[data] {folder} is no token file, or damaged: {error}") from None
    if len(parts["train"]) < 2 * context:
        raise InvalidArgument(f"[data] {len(parts['train'])} tokens to train on, want {2 * context}: 2 x --context")
    if held_out and len(parts["valid"]) <= context:
        raise InvalidArgument(
            f"[data] {len(parts['valid'])} tokens held out, want more than --context {context}; or --held-out 0"
        )
    return Tokens(**parts)


def windows(tokens: np.ndarray, context: int, starts: Sequence[int]) -> np.ndarray:
    """int64 [len(starts), context + 1]: a sequence and, one further, what it should say."""
    return np.stack([tokens[start : start + context + 1] for start in map(operator.index, starts)]).astype(np.int64)


@dataclass(slots=True)
class Order:
    """Which sequences a step sees: windows side by side, shuffled anew each epoch and begun at another offset.

    A function of (seed, sample) alone, so a run resumes with nothing but its step.
    """

    tokens: int
    context: int
    seed: int
    _epoch: int = -1
    _starts: np.ndarray | None = None  # where windows begin in that epoch, shuffled

    def starts(self, first: int, count: int) -> list[int]:
        """Where samples first .. first + count - 1 of the whole run begin."""
        return [self._start(sample) for sample in range(first, first + count)]

    def _start(self, sample: int) -> int:
        epoch, at = divmod(sample, (self.tokens - self.context) // self.context)
        if epoch != self._epoch or self._starts is None:
            rng = np.random.default_rng([self.seed, epoch, 2])
            offset = rng.integers(self.context)
            self._starts = rng.permutation((self.tokens - self.context) // self.context) * self.context + offset
            self._epoch = epoch
        return int(self._starts[at])


def _encoded(scratch: Path, path: Path, template: str, encode: Encode, dtype: np.dtype) -> np.ndarray:
    """The tokens of one file, on disk: how many are held out is known at its end."""
    found = pieces(path, template)
    with open(scratch, "wb") as file:
        while group := list(islice(found, _GROUP)):
            for ids in encode(group):
                file.write(np.asarray(ids, dtype).tobytes())
    return np.memmap(scratch, dtype, "r")


def _copy(ids: np.ndarray, file: Any) -> int:
    for at in range(0, len(ids), _COPY):
        file.write(ids[at : at + _COPY].tobytes())
    return len(ids)


def _mapped(path: Path, dtype: str, count: int) -> np.ndarray:
    size = np.dtype(dtype).itemsize * count
    if path.stat().st_size != size:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes, want {size}")
    return np.memmap(path, dtype, "r") if count else np.empty(0, dtype)
