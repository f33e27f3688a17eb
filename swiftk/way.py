"""A way of drafting: what is left out, how far and wide to draft, what it costs, and how it has done so far."""

from __future__ import annotations

from dataclasses import dataclass

from .cost import CostModel, Round
from .gate import Gate
from .skip import SkipSet

_MEMORY = 0.99  # weight that the rounds before keep


@dataclass(slots=True, eq=False)
class Way:
    """One way of drafting, and what was learned about it."""

    skip: SkipSet
    costs: CostModel
    gate: Gate
    tokens: float = 0.0
    price: float = 0.0  # plain steps that these tokens took
    rounds: int = 0

    @property
    def rate(self) -> float:
        """Tokens per plain step; plain decoding has 1."""
        return self.tokens / self.price if self.price > 0 else 0.0

    def observe(self, r: Round) -> None:
        """A round that drafted like this."""
        self.tokens = _MEMORY * self.tokens + r.tokens
        self.price = _MEMORY * self.price + r.seconds / self.costs.plain.value
        self.rounds += 1

    def forget(self) -> None:
        """What follows is another text: the rate so far is not its."""
        self.tokens, self.price, self.rounds = 0.0, 0.0, 0
