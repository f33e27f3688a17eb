"""Which sublayers to skip, learned from the clock while texts are generated. Pure: it is told tokens and their price.

Each way of drafting is played for a few rounds at a time; what counts is tokens per plain step of all its rounds, so
the draft's cost, its acceptance, the verified rows and the gate that it learned are all in one number.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from .cost import CostModel
from .gate import AutoGate, FixedGate
from .optimizers.base import Candidate
from .skip import SkipSet

_BLOCK = 5  # rounds between two choices
_START = 2  # blocks of the first way before others are tried: a short text sees no experiment
_BONUS = 0.3  # how much better than measured a way may be that was played for one block
_MEMORY = 0.99  # weight that the rounds before keep
_PAYS = 1.02  # tokens per plain step
_LOST = 0.97  # at most that of a way just given up


@dataclass(slots=True)
class Way:
    """One way of drafting, and what was learned about it."""

    skip: SkipSet
    costs: CostModel
    gate: FixedGate | AutoGate
    tokens: float = 0.0
    price: float = 0.0  # plain steps that these tokens took
    rounds: int = 0

    @property
    def rate(self) -> float:
        """Tokens per plain step; plain decoding has 1."""
        return self.tokens / self.price if self.price > 0 else 0.0


class Optimizer:
    """Plays the way with the best upper estimate. One way alone is played for ever."""

    def __init__(self, ways: list[Way]) -> None:
        self.ways = ways
        self.trace: list[Candidate] = []
        self.current = ways[0]
        self._left = _BLOCK * _START

    def next(self) -> Way:
        """The way of the next round that drafts."""
        if self._left <= 0 and len(self.ways) > 1:
            self.current = max(self.ways, key=_estimate)
            self._left = _BLOCK
        return self.current

    def observe(self, tokens: int, price: float) -> None:
        """A round of the current way: its tokens, and its seconds in plain steps."""
        way = self.current
        way.tokens = _MEMORY * way.tokens + tokens
        way.price = _MEMORY * way.price + price
        way.rounds += 1
        self._left -= 1

    def give_up(self) -> bool:
        """The current way loses against plain decoding. Returns whether another one is known to pay."""
        self._left = 0
        way = self.current
        if way.rate > _LOST:  # it was good until lately
            way.tokens, way.price = _LOST * _BLOCK, float(_BLOCK)
        return any(way.rate >= _PAYS for way in self.ways if way is not self.current)

    @property
    def untried(self) -> bool:
        return any(way.rounds == 0 for way in self.ways)


def _estimate(way: Way) -> float:
    return inf if way.rounds == 0 else way.rate * (1 + _BONUS * (_BLOCK / way.rounds) ** 0.5)


def candidates(n_layers: int) -> list[SkipSet]:
    """SWIFT's uniform start, then early exits: models trained with LayerSkip are best cut, others best thinned."""
    exits = [SkipSet.early_exit(n) for n in (n_layers // 4, 3 * n_layers // 8, n_layers // 2) if 0 < n < n_layers]
    return list(dict.fromkeys([SkipSet.uniform(n_layers), *exits]))
