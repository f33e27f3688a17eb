"""Early exits as candidates, as in DEL (arXiv 2504.05598): one pass of the target says what every exit would have
proposed for the tokens of a window."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..draft.draft_spec import DraftSpec
from .base import Here, Measured, Proposal, Scorer
from .sublayers import SublayerPrices

LENGTHS = range(19)  # of chains, as DEL has them


def chain_rate(held: float, draft: float, row: float, lengths: Iterable[int] = LENGTHS) -> float:
    """Tokens per plain step of chains of the best of these lengths, a draft token being right `held` of the times:
    DEL's TPL, at the prices of the clock."""
    n = np.array(list(lengths), float)
    tokens = n + 1 if held >= 1 else (1 - held ** (n + 1)) / (1 - held)
    return float((tokens / (1 + n * (draft + row))).max())


def exits_to_score(n_layers: int, head: float) -> list[int]:
    """Every exit in the first three quarters of the layers; evenly fewer where their heads cost more than the pass."""
    every = range(1, max(1, 3 * n_layers // 4) + 1) if n_layers > 1 else range(0)
    most = min(len(every), max(4, int(1 / max(head, 1e-6))))
    return [every[round((i + 0.5) * len(every) / most - 0.5)] for i in range(most)]


def pass_price(exits: int, head: float) -> float:
    """Price of a pass with so many heads, in passes of the target."""
    return 1 + (exits - 1) * head


class Exits:
    """Exits with their scores on a window, the one that drafts among them if it is one."""

    turns = 1

    def __init__(self, n_layers: int, measured: Measured, prices: SublayerPrices) -> None:
        self.n_layers, self.measured, self.prices = n_layers, measured, prices
        self._scored = -1  # number of the last window

    def cost(self, here: Here) -> float | None:
        layers = self._layers(here)
        if not layers or here.window.number == self._scored:
            return None
        return here.window.tokens * pass_price(len(layers), self._head())

    def propose(self, score: Scorer, here: Here) -> list[Proposal]:
        layers, window = self._layers(here), here.window
        self._scored = window.number
        found = dict(zip(layers, score.exits(layers, window.tokens, window.end), strict=True))
        return [("exit", DraftSpec.early_exit(layer), score) for layer, score in found.items()]

    def reopen(self) -> None:
        """It is ready for any text."""

    def learn(self, skip: DraftSpec, matchness: float, kept: bool) -> None:
        """Nothing: what an exit was seen to bring is the race's to know."""

    def _layers(self, here: Here) -> list[int]:
        layers = {*exits_to_score(self.n_layers, self._head())}
        own = here.skip.exit_layer
        return sorted(layers | {own} if own and here.skip == DraftSpec.early_exit(own) else layers)

    def _head(self) -> float:
        return self.prices.price(DraftSpec.early_exit(0))
