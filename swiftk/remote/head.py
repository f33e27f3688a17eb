"""A head at the client that was trained for the server's model: the server sends the states that it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from .. import _core
from ..api import LM
from ..draft.tree_rule import TreeRule
from ..errors import CheckpointError, InvalidArgument
from ..files.model_files import open_model_files
from ..files.model_folder import find
from ..files.safetensors_io import write_folder
from ..options.generate_options import LoadOptions
from ..text.tokenizer import Tokenizer
from .features import read_by
from .tree import Tree

_RULE = TreeRule(beam=8, max_draft=6, max_nodes=32)
_EMBEDDING, _NORM, _HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"


class Head:
    """An EAGLE head (1, 2 or 3), a block head, or a Mixture of Attentions, on this machine's CPU. For one connection at
    a time."""

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
        model, and the last N layers for a Mixture of Attentions with "target_layer_inference" N: the model's own folder
        (no other layer is read) or one that cut() made. head: the head's folder. model: an LM of the same vocabulary
        that continues if the server is gone; without it a Mixture of Attentions does, and other heads cannot. features:
        dtype in which the states travel, "bfloat16" or "float32". dtype, draft_weights and threads: as in load()."""
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

    @property
    def context(self) -> int:
        return self._native.context

    @property
    def alone(self) -> bool:
        """Whether next() can go on: it needs a Mixture of Attentions, and what it reads of one token at least."""
        return self._native.alone and self.known > 0

    def next(self, text: Sequence[int]) -> int:
        """The token after `text`, which from `known` on no server verifies: it counts as it is, until begin()."""
        return self._native.next([*self._prompt, *text])

    def close(self) -> None:
        """Does nothing: another connection may use the head next."""


class TreeHead(Head):
    """A Head whose proposals are trees, by EAGLE-2's rule."""

    def __init__(
        self,
        target: str | PathLike[str],
        head: str | PathLike[str],
        *,
        rule: TreeRule = _RULE,
        suffix: bool = False,
        **options: Any,
    ) -> None:
        """rule: its beam, steps (max_draft) and nodes. suffix: whether what followed the text's end before is in the
        tree, too. options: a Head's."""
        super().__init__(target, head, **options)
        if not (isinstance(rule, TreeRule) and rule.beam > 0):
            raise InvalidArgument(f"[remote] rule is {rule!r}, want a TreeRule with a beam")
        self._rule, self._repeats = rule, suffix

    def begin(self, prompt: Sequence[int], sampling: Mapping[str, Any]) -> None:
        super().begin(prompt, sampling)
        self._source, self._followed = _core.sources.Source("suffix"), 0

    def grow(self, text: Sequence[int]) -> Tree:
        if self.known < len(self._prompt):
            return Tree()
        whole = [*self._prompt, *text]
        tree = Tree(*self._native.grow(whole, _core.TreeRule(**self._rule.arguments())))
        if self._repeats:
            tree.add(self._repeated(whole, self._rule.max_draft))
        return tree

    def _repeated(self, whole: list[int], count: int) -> list[int]:
        """What followed the text's end before. The source cannot forget, so it takes in the server's tokens alone."""
        settled = self.known + 1
        self._source.follow(whole[self._followed : settled])
        self._followed = settled
        at, found = self._source.root(), list[int]()
        for token in whole[settled:]:
            at = self._source.step(at, token)
        while len(found) < count and (tokens := self._source.propose(at)[1]):
            found.append(tokens[0])
            at = self._source.step(at, tokens[0])
        return found


def cut(target: str | PathLike[str], folder: str | PathLike[str], layers: int = 0) -> Path:
    """Writes to `folder` the parts of a model that a Head needs: all but its layers, of which the last `layers` are
    kept. Returns the folder."""
    source, out = find(target, "remote"), Path(folder).expanduser()
    if out.exists() and out.samefile(source):
        raise InvalidArgument(f"[remote] {out} is the model's own folder, want another one")
    files = open_model_files(source)
    wanted = [_EMBEDDING, _NORM, *([] if files.config.get("tie_word_embeddings") else [_HEAD])]
    tensors = files.tensors()
    every = files.config["num_hidden_layers"]
    if not 0 <= layers < every:
        raise InvalidArgument(f"[remote] layers is {layers!r}, want 0..{every - 1}")
    kept = tuple(f"model.layers.{i}." for i in range(every - layers, every))
    wanted += [name for name in tensors if name.startswith(kept)]
    missing = next((name for name in wanted if name not in tensors), None)
    if missing is not None:
        raise CheckpointError(f"[remote] {source} has no tensor {missing}, want a model's folder")
    out.mkdir(parents=True, exist_ok=True)
    for name, content in files.settings().items():
        (out / name).write_bytes(content)
    for _ in write_folder(out, {name: tensors[name] for name in wanted}):
        pass
    return out
