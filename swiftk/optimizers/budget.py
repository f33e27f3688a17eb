"""Seconds that a search may take while a text is decoded."""

from __future__ import annotations

from dataclasses import dataclass

_EAGER_TOKENS, _EAGER, _STEADY = 200, 0.045, 0.01  # shares of decoding time that scoring may take: at first, and later
_REPAYING = 0.001
_ADVANCE = 4.0  # plain steps that scoring may take ahead of that share
_CREDIT = 6.0  # plain steps of debt with which a new search may still take that much ahead


@dataclass(slots=True)
class Budget:
    """Seconds that scoring may take: a share of decoding time, a larger one for the first tokens of a search, which is
    made up for later by a smaller one until the usual share has caught up."""

    left: float = 0.0
    ahead: float = 0.0  # taken out of what the first tokens will earn
    debt: float = 0.0
    plain: float = 0.0  # seconds of a step
    tokens: int = 0
    advanced: bool = False

    def earn(self, seconds: float, tokens: int, plain: float) -> None:
        self.tokens += tokens
        self.plain = plain
        if self.tokens <= _EAGER_TOKENS:
            if plain > 0 and not self.advanced:
                self.advanced = True
                self.left += _ADVANCE * plain
                self.ahead += _ADVANCE * plain
            returned = min(self.ahead, _EAGER * seconds)
            self.ahead -= returned
            self.left += _EAGER * seconds - returned
            self.debt += (_EAGER - _STEADY) * seconds
        elif self.debt > 0:
            self.left += _REPAYING * seconds
            self.debt -= (_STEADY - _REPAYING) * seconds
        else:
            self.left += _STEADY * seconds

    def spend(self, seconds: float) -> None:
        self.left -= seconds

    def reopen(self) -> None:
        """A new search: at full pace if those before it are made up for; if not, what is urgent, on credit."""
        if self.debt <= 0:
            self.tokens, self.advanced = 0, False
        elif self.debt <= _CREDIT * self.plain:
            self.left = max(self.left, 0.0) + _ADVANCE * self.plain
            self.debt += _ADVANCE * self.plain
