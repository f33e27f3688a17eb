"""What a client may draft with: a small model, a head of the server's model, or repetitions in the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Protocol, runtime_checkable

import numpy as np

from .. import _core
from ..api import LM, load
from ..errors import InvalidArgument
from ..text.tokenizer import Tokenizer
from .features import Features
from .tree import Tree

_UNVERIFIED = 256  # proposals at the end of a text that are walked at most; the server has verified those before


@runtime_checkable
class Proposer(Protocol):
    """Proposes tokens at the client. Host applications may write their own."""

    model: LM | None  # continues without the server; None: nothing can

    def begin(self, prompt: Sequence[int], sampling: Mapping[str, Any]) -> None:
        """Starts another text. prompt: token ids; sampling: the server's temperature, seed and warpers."""

    def propose(self, text: Sequence[int], count: int) -> list[int]:
        """Up to `count` tokens that may follow. text: new tokens so far, verified or proposed before."""

    def close(self) -> None: ...


@runtime_checkable
class Grower(Proposer, Protocol):
    """A proposer of trees."""

    def grow(self, text: Sequence[int]) -> Tree:
        """What may follow `text`, as propose() is given it."""


@runtime_checkable
class Reader(Proposer, Protocol):
    """A proposer that reads states of the server's model."""

    tokenizer: Tokenizer  # of that model
    features: Features

    @property
    def known(self) -> int:
        """Number of leading tokens of the text, prompt included, whose features are here."""

    def know(self, first: int, rows: np.ndarray) -> None:
        """rows: [tokens, floats], features of tokens from `first` on. Known tokens may be among them."""


class SuffixProposer:
    """Proposes the tokens that followed the longest earlier match of the text's end.

    Its automaton cannot shrink, so it takes in verified tokens alone. Own proposals at the text's end, which the server
    may still reject, are walked along.
    """

    model = None

    def begin(self, prompt: Sequence[int], sampling: Mapping[str, Any]) -> None:
        self._prompt, self._followed = list(prompt), []
        self._proposed: dict[int, int] = {}  # by place
        self._source = _core.sources.Source("suffix")

    def propose(self, text: Sequence[int], count: int) -> list[int]:
        whole = [*self._prompt, *text]
        if whole[: len(self._followed)] != self._followed:
            self.begin(self._prompt, {})
        end = len(whole)  # of the tokens that the server said: what follows, this source proposed
        while (
            len(whole) - end < _UNVERIFIED
            and end > len(self._followed)
            and self._proposed.get(end - 1) == whole[end - 1]
        ):
            end -= 1
        self._source.follow(whole[len(self._followed) : end])
        self._followed = whole[:end]
        at, found = self._source.root(), []
        for token in whole[end:]:
            at = self._source.step(at, token)
        while len(found) < count:
            _, tokens = self._source.propose(at)
            if not tokens:
                break
            found.append(tokens[0])
            at = self._source.step(at, tokens[0])
        self._proposed = dict(enumerate([*whole[end:], *found], end))
        return found

    def close(self) -> None:
        pass


class ModelProposer:
    """A model of the same vocabulary. It draws with the server's seed, so both models draw the same token if they find
    the same tokens likely, at any temperature."""

    def __init__(self, model: LM, owned: bool) -> None:
        self.model, self._owned = model, owned

    def begin(self, prompt: Sequence[int], sampling: Mapping[str, Any]) -> None:
        self._prompt = list(prompt)
        # A proposal may be short.
        self._sampling = {name: value for name, value in sampling.items() if name != "min_tokens"}

    def propose(self, text: Sequence[int], count: int) -> list[int]:
        known = [*self._prompt, *text]
        count = min(count, self.model.context - len(known))
        if count < 1:
            return []
        limits = {"max_new_tokens": len(text) + count, "continued_tokens": len(text), "ignore_eos": True}
        return self.model.generate(known, **limits, **self._sampling).tokens

    def close(self) -> None:
        if self._owned:
            self.model.close()


def proposer(drafter: Any) -> Proposer:
    """drafter: "suffix", an LM, a model's folder, a Head, or a Proposer."""
    if drafter == "suffix":
        return SuffixProposer()
    if isinstance(drafter, LM):
        return ModelProposer(drafter, False)
    if isinstance(drafter, (str, PathLike)):
        return ModelProposer(load(drafter, draft_weights="own", draft_vocab="all"), True)
    if isinstance(drafter, Proposer):
        return drafter
    kinds = '"suffix", a model\'s folder, an LM, a Head, or a Proposer'
    raise InvalidArgument(f"[remote] drafter is {drafter!r}, want {kinds}")
