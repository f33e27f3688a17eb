"""A head at the client that was trained for the server's model: the server sends the states that it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from .. import _core
from ..api import LM
from ..errors import CheckpointError, InvalidArgument
from ..files.model_files import open_model_files
from ..files.model_folder import find
from ..files.safetensors_io import write_folder
from ..options.generate_options import LoadOptions
from ..text.tokenizer import Tokenizer
from .features import read_by

_EMBEDDING, _NORM, _HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"


class Head:
    """An EAGLE head (1, 2 or 3), a block head, or a Mixture of Attentions with N = 0, on this machine's CPU. For one
    connection at a time."""

    def __init__(
        self,
        target: str | PathLike[str],
        head: str | PathLike[str],
        *,
        model: LM | None = None,
        features: str = "bfloat16",
        dtype: str = "auto",
        draft_weights: str | Sequence[str] = "auto",
        threads: int | None = None,
    ) -> None:
        """target: a folder with config.json, the tokenizer, embedding, last norm and vocabulary head of the server's
        model: the model's own folder (no layer is read) or one that cut() made. head: the head's folder. model: an LM
        of the same vocabulary that continues if the server is gone; a head cannot. features: dtype in which the states
        travel, "bfloat16" or "float32". dtype, draft_weights and threads: as in load()."""
        folder, own = find(target, "remote"), find(head, "remote", "drafter")
        if not (model is None or isinstance(model, LM)):
            raise InvalidArgument(f"[remote] model is {model!r}, want an LM or None")
        o = LoadOptions(device="cpu", dtype=dtype, draft_weights=draft_weights, threads=threads)
        self.model, self.tokenizer = model, Tokenizer(folder)
        if model is not None:
            self.tokenizer.must_equal(model.tokenizer)
        self._native = _core.RemoteHead(str(folder), str(own), o.dtype, o.draft_weights, o.threads or 0)
        native = self._native
        self.features = read_by(native.kind, native.taps, native.width, own, dtype=features)

    def begin(self, prompt: Sequence[int], sampling: Mapping[str, Any]) -> None:
        self._prompt = list(prompt)
        self._native.begin(_core.Sampling(**sampling), len(self._prompt))

    @property
    def known(self) -> int:
        """Number of leading tokens of the text, prompt included, whose features are here."""
        return self._native.known

    def know(self, first: int, rows: np.ndarray) -> None:
        """rows: [tokens, floats], features of tokens from `first` on, counted from the prompt's first."""
        self._native.know(first, rows)

    def propose(self, text: Sequence[int], count: int) -> list[int]:
        if self.known < len(self._prompt):
            return []  # the features have not arrived yet
        return self._native.propose([*self._prompt, *text], count)

    def close(self) -> None:
        """Does nothing: another connection may use the head next."""


def cut(target: str | PathLike[str], folder: str | PathLike[str]) -> Path:
    """Writes to `folder` the parts of a model that a Head needs: all but its layers. Returns the folder."""
    source, out = find(target, "remote"), Path(folder).expanduser()
    if out.exists() and out.samefile(source):
        raise InvalidArgument(f"[remote] {out} is the model's own folder, want another one")
    files = open_model_files(source)
    wanted = [_EMBEDDING, _NORM, *([] if files.config.get("tie_word_embeddings") else [_HEAD])]
    tensors = files.tensors()
    missing = next((name for name in wanted if name not in tensors), None)
    if missing is not None:
        raise CheckpointError(f"[remote] {source} has no tensor {missing}, want a model's folder")
    out.mkdir(parents=True, exist_ok=True)
    for name, content in files.settings().items():
        (out / name).write_bytes(content)
    for _ in write_folder(out, {name: tensors[name] for name in wanted}):
        pass
    return out
