"""How much time scoring may take: a small share of decoding, a larger one while a search is young."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Progress

UNMEASURED = 0.1  # plain steps that scoring a token costs a pass of a plain step's price, before one was measured
_EAGER_TOKENS, _EAGER, _STEADY = 200, 0.045, 0.01  # shares of decoding time: at first, and later
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
    plain: float = 0.0  # seconds of a step, the text's part
    tokens: int = 0
    advanced: bool = False
    eager: float = _EAGER
    advance: float = _ADVANCE
    seconds: float = 0.0  # decoding of this text that was earned for
    generated: int = 1  # tokens of it

    def start(self) -> None:
        """A new text."""
        self.seconds, self.generated = 0.0, 1

    def follow(self, progress: Progress) -> int:
        """Earns for what the text has gone on by; returns its tokens. All texts of a round may search, so each earns
        for its part of the time."""
        tokens, share = progress.generated - self.generated, 1 / progress.together
        self._earn((progress.seconds - self.seconds) * share, tokens, progress.plain_seconds * share)
        self.seconds, self.generated = progress.seconds, progress.generated
        return tokens

    def _earn(self, seconds: float, tokens: int, plain: float) -> None:
        self.tokens += tokens
        self.plain = plain
        if self.tokens <= _EAGER_TOKENS:
            if plain > 0 and not self.advanced:
                self.advanced = True
                self.left += self.advance * plain
                self.ahead += self.advance * plain
            returned = min(self.ahead, self.eager * seconds)
            self.ahead -= returned
            self.left += self.eager * seconds - returned
            self.debt += (self.eager - _STEADY) * seconds
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
            self.left = max(self.left, 0.0) + self.advance * self.plain
            self.debt += self.advance * self.plain
