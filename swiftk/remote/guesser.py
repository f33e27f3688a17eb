"""Who guesses at the client: a small model, a head of the server's, or what the text repeats of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Protocol, runtime_checkable

import numpy as np

from .. import _core
from ..api import LM, load
from ..errors import InvalidArgument
from ..tokenizer import Tokenizer
from .features import Features


@runtime_checkable
class Guesser(Protocol):
    """Whoever guesses; a host may bring its own."""

    model: LM | None  # what can go on alone

    def begin(self, prompt: Sequence[int], sampling: Mapping[str, Any]) -> None:
        """Another text, with the server's temperature, seed and warpers."""

    def guess(self, text: Sequence[int], count: int) -> list[int]:
        """Up to `count` tokens behind prompt and `text`, new tokens whether verified or guessed before."""

    def close(self) -> None: ...


@runtime_checkable
class Reader(Guesser, Protocol):
    """One that reads states of the server's model."""

    tokenizer: Tokenizer  # of that model
    features: Features

    @property
    def known(self) -> int:
        """Leading tokens of the text, prompt included, whose features are here."""

    def know(self, first: int, rows: np.ndarray) -> None:
        """Features of tokens from `first` on; those that are here already may be among them."""


class SuffixGuesser:
    """What came behind the longest end of the text that was there before; no model, so that nothing can go on alone."""

    model = None

    def begin(self, prompt: Sequence[int], sampling: Mapping[str, Any]) -> None:
        self._prompt, self._sampling = list(prompt), sampling

    def guess(self, text: Sequence[int], count: int) -> list[int]:
        drafter = _core.drafters.Drafter("suffix")
        drafter.follow([*self._prompt, *text])
        at, found = drafter.root(), []
        while len(found) < count:
            _, tokens = drafter.propose(at)
            if not tokens:
                break
            found.append(tokens[0])
            at = drafter.step(at, tokens[0])
        return found

    def close(self) -> None:
        pass


class ModelGuesser:
    """A model of the same vocabulary. It draws with the server's seed: where both models find the same tokens likely
    they draw the same one, at any temperature."""

    def __init__(self, model: LM, owned: bool) -> None:
        self.model, self._owned = model, owned

    def begin(self, prompt: Sequence[int], sampling: Mapping[str, Any]) -> None:
        self._prompt, self._sampling = list(prompt), dict(sampling)

    def guess(self, text: Sequence[int], count: int) -> list[int]:
        known = [*self._prompt, *text]
        count = min(count, self.model.context - len(known))
        if count < 1:
            return []
        return self.model.generate(known, max_new_tokens=count, ignore_eos=True, **self._sampling).tokens

    def close(self) -> None:
        if self._owned:
            self.model.close()


def guesser(drafter: Any) -> Guesser:
    """drafter: "suffix", an LM, a model's folder, a Head, or a Guesser."""
    if drafter == "suffix":
        return SuffixGuesser()
    if isinstance(drafter, LM):
        return ModelGuesser(drafter, False)
    if isinstance(drafter, (str, PathLike)):
        return ModelGuesser(load(drafter, draft_weights="own"), True)
    if isinstance(drafter, Guesser):
        return drafter
    kinds = '"suffix", a model\'s folder, an LM, a Head, or a Guesser'
    raise InvalidArgument(f"[remote] drafter is {drafter!r}, want {kinds}")
