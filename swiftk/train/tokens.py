"""The token file: all documents one after another as ids, memory-mapped; the end of each file is held out.

A byte beside each token says whether it is learned and whether a document begins with it. A model is trained on windows
of the whole stream. A head is trained on segments, which are of one document each.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CheckpointError, InvalidArgument
from ..files.model_files import open_model_files
from ..text.tokenizer import Tokenizer
from .files import whole
from .texts import Messages, Part, Piece, pieces

LEARNED, FIRST = 1, 2  # bits of a mark: a model should say the token; a document begins with it
_GROUP = 64  # pieces encoded at a time, on all cores
_COPY = 1 << 22  # bytes copied at a time
_ALIKE = 64  # batches whose segments are shared out by length

Progress = Callable[[int, int], None]  # files done, files in all


@dataclass(frozen=True, slots=True)
class Text:
    """ids [n] of tokens, and their marks [n]."""

    ids: np.ndarray
    marks: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, start: int, end: int) -> Text:
        """A text of its own, with which a document begins."""
        marks = self.marks[start:end].copy()
        marks[:1] |= FIRST
        return Text(self.ids[start:end], marks)


@dataclass(frozen=True, slots=True)
class Tokens:
    train: Text
    valid: Text


@dataclass(frozen=True, slots=True)
class Batch:
    """tokens [B, T] int64, and learned [B, T], which of them a model should say; both end with zeros where a sequence
    is shorter than the longest."""

    tokens: np.ndarray
    learned: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        """[B, T] whether what a model says at a place is learned: whether the token after it is."""
        return np.pad(self.learned[:, 1:], ((0, 0), (0, 1)))


@dataclass(frozen=True, slots=True)
class Encoder:
    """A tokenizer.json, and what stands around a document."""

    backend: Any  # tokenizers.Tokenizer
    template: Tokenizer  # whose chat template it is
    special: dict[str, int]  # bos_token_id, eos_token_id, as far as the tokenizer names them
    begin: tuple[int, ...]
    end: tuple[int, ...]

    @classmethod
    def read(cls, folder: Path, eos: int | None = None) -> Encoder:
        """eos: what ends a document, where the checkpoint says it; else the tokenizer's."""
        from tokenizers import Tokenizer as Backend

        files = open_model_files(folder)
        try:
            backend = Backend.from_buffer(files.tokenizer_json())
        except Exception as error:  # the library raises Exception itself
            raise CheckpointError(f"[data] {files.tokenizer_path} cannot be read: {error}") from None
        backend.no_truncation()
        backend.no_padding()
        spelt = {f"{name}_id": files.special_tokens.get(name) for name in ("bos_token", "eos_token")}
        named = {name: backend.token_to_id(text) for name, text in spelt.items() if text is not None}
        special = {name: id for name, id in named.items() if id is not None}
        eos = special.get("eos_token_id") if eos is None else eos
        around = backend.encode("", add_special_tokens=True).ids
        begin = tuple(i for i in around if i != eos)
        return cls(backend, Tokenizer(files), special, begin, () if eos is None else (eos,))

    @property
    def size(self) -> int:
        """One more than the largest id; some tokenizers leave ids out."""
        return max(self.backend.get_vocab(with_added_tokens=True).values()) + 1

    def encoded(self, group: Sequence[Piece]) -> Iterator[tuple[list[int], list[int]]]:
        """Ids and marks of pieces. Pieces of a document are encoded apart: at a line end hardly a merge is lost. So are
        a question and its answer, as at inference."""
        texts = [part.text for piece in group for part in piece.parts]
        found = iter(self.backend.encode_batch(texts, add_special_tokens=False))
        for piece in group:
            parts = [(next(found).ids, part.learned) for part in piece.parts]
            if piece.first and not piece.framed:
                parts.insert(0, (list(self.begin), False))
            if piece.last and not piece.framed:
                parts.append((list(self.end), True))
            ids = [id for own, _ in parts for id in own]
            marks = [LEARNED * learned for own, learned in parts for _ in own]
            if ids and piece.first:
                marks[0] |= FIRST
            yield ids, marks

    def rendered(self, messages: Messages) -> tuple[Part, ...]:
        """A chat as the model's template writes it. What the assistant says is learned, up to its last character; the
        line end that a template puts after it is nobody's."""
        parts: list[Part] = []
        done = ""
        for i, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            asked = self.template.render(messages[:i])
            said = self.template.render(messages[: i + 1], add_generation_prompt=False).rstrip()
            if not (asked.startswith(done) and said.startswith(asked)):
                raise InvalidArgument(
                    "[chat] the chat template writes earlier messages anew after later ones, want one that only adds "
                    "to them, or the chat as text"
                )
            parts += [Part(asked[len(done) :], False), Part(said[len(asked) :])]
            done = said
        return tuple(parts)


def build(
    folder: Path, files: Sequence[Path], template: str | None, encoder: Encoder, held_out: float, progress: Progress
) -> None:
    """Writes `folder` with train.bin, valid.bin, a file of marks for each, and tokens.json, whole or not at all."""
    dtype = np.dtype(np.uint16 if encoder.size <= 1 << 16 else np.uint32)
    counts = {"train": 0, "valid": 0}
    with whole(folder) as partial, ExitStack() as stack:
        partial.mkdir(parents=True)
        out = {part: [stack.enter_context((partial / name).open("wb")) for name in _files(part)] for part in counts}
        for done, path in enumerate(files):
            progress(done, len(files))
            found = _encoded(partial / "file", path, template, encoder, dtype)
            kept = len(found) - int(len(found) * held_out)
            for part, text in (("train", found.part(0, kept)), ("valid", found.part(kept, len(found)))):
                for values, file in zip((text.ids, text.marks), out[part], strict=True):
                    _copy(values, file)
                counts[part] += len(text)
        for name in _files("file"):
            (partial / name).unlink()
        facts = {"dtype": dtype.name, **counts, "files": [str(path) for path in files]}
        (partial / "tokens.json").write_text(json.dumps(facts, indent=1))
    progress(len(files), len(files))


def read(folder: Path, context: int, held_out: float) -> Tokens:
    """The parts of a token file that build() wrote, long enough for sequences of `context`."""
    try:
        facts = json.loads((folder / "tokens.json").read_text())
        parts = {part: _mapped(folder / part, facts["dtype"], facts[part]) for part in ("train", "valid")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"[data] {folder} is no token file, or damaged: {error}") from None
    if len(parts["train"]) < 2 * context:
        raise InvalidArgument(f"[data] {len(parts['train'])} tokens to train on, want {2 * context}: 2 x --context")
    if held_out and len(parts["valid"]) <= context:
        raise InvalidArgument(
            f"[data] {len(parts['valid'])} tokens held out, want more than --context {context}; or --held-out 0"
        )
    return Tokens(**parts)


def windows(text: Text, context: int, starts: Sequence[int]) -> Batch:
    """[len(starts), context + 1]: sequences and, one further, what they should say."""
    return rows(text, [(start, context + 1) for start in map(operator.index, starts)])


def rows(text: Text, segments: Sequence[tuple[int, int]]) -> Batch:
    """Segments, each from where and how long."""
    longest = max(count for _, count in segments)
    tokens, learned = np.zeros((len(segments), longest), np.int64), np.zeros((len(segments), longest), bool)
    for row, (start, count) in enumerate(segments):
        tokens[row, :count] = text.ids[start : start + count]
        learned[row, :count] = text.marks[start : start + count] & LEARNED
    return Batch(tokens, learned)


def segments(text: Text, context: int, shortest: int) -> np.ndarray:
    """[n, 2] where each begins and how many tokens it has, at least `shortest` and at most context + 1, one of which
    is learned: a document is cut where it is longer, each part with the first token of the next."""
    begins = np.flatnonzero(text.marks & FIRST)
    lengths = np.diff(np.append(begins, len(text)))
    parts = np.maximum(1, -(-(lengths - 1) // context))
    part = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
    starts = np.repeat(begins, parts) + part * context
    counts = np.minimum(context + 1, np.repeat(begins + lengths, parts) - starts)
    learned = np.concatenate([[0], np.cumsum(text.marks & LEARNED, dtype=np.int64)])
    kept = (counts >= shortest) & (learned[starts + counts] > learned[starts])
    return np.stack([starts[kept], counts[kept]], 1)


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


@dataclass(slots=True)
class Batches:
    """Which segments a step sees: all in each epoch, but for a rest, shuffled anew and then shared out so that those of
    a batch are about as long. A function of (seed, step) alone, as Order is."""

    segments: np.ndarray  # [n, 2], at least `batch`
    batch: int
    seed: int
    _epoch: int = -1
    _order: np.ndarray | None = None  # [batches of an epoch, batch] numbers of segments

    def at(self, step: int) -> np.ndarray:
        """[batch, 2] of the segments."""
        epoch, at = divmod(step, len(self.segments) // self.batch)
        if epoch != self._epoch or self._order is None:
            self._order, self._epoch = self._shuffled(np.random.default_rng([self.seed, epoch, 2])), epoch
        return self.segments[self._order[at]]

    def _shuffled(self, rng: np.random.Generator) -> np.ndarray:
        count = len(self.segments) // self.batch
        order = rng.permutation(len(self.segments))[: count * self.batch]
        for group in np.array_split(order, -(-count // _ALIKE)):  # a view of it
            group[:] = group[np.argsort(self.segments[group, 1], kind="stable")]
        return rng.permutation(order.reshape(count, self.batch))


def _encoded(scratch: Path, path: Path, template: str | None, encoder: Encoder, dtype: np.dtype) -> Text:
    """The tokens of one file, on disk: how many are held out is known at its end."""
    found = pieces(path, template, encoder.rendered)
    ids_file, marks_file = (scratch.with_name(name) for name in _files(scratch.name))
    with open(ids_file, "wb") as out, open(marks_file, "wb") as marks_out:
        while group := list(islice(found, _GROUP)):
            for ids, marks in encoder.encoded(group):
                out.write(np.asarray(ids, dtype).tobytes())
                marks_out.write(bytes(marks))
    return Text(np.memmap(ids_file, dtype, "r"), np.memmap(marks_file, np.uint8, "r"))


def _files(part: str) -> tuple[str, str]:
    return f"{part}.bin", f"{part}.marks"


def _copy(values: np.ndarray, file: Any) -> None:
    for at in range(0, len(values), _COPY):
        file.write(values[at : at + _COPY].tobytes())


def _mapped(path: Path, dtype: str, count: int) -> Text:
    ids, marks = (path.with_name(name) for name in _files(path.name))
    return Text(_mapped_file(ids, dtype, count), _mapped_file(marks, "uint8", count))


def _mapped_file(path: Path, dtype: str, count: int) -> np.ndarray:
    size = np.dtype(dtype).itemsize * count
    if path.stat().st_size != size:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes, want {size}")
    return np.memmap(path, dtype, "r") if count else np.empty(0, dtype)
