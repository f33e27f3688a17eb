"""How much time scoring may take: a small share of decoding."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Progress

UNMEASURED = 0.1  # plain steps that scoring a token costs a pass of a plain step's price, before one was measured
# A text that cannot be drafted loses no more. With .045 for the first 200 tokens and four plain steps in advance, short
# answers of SmolLM2, which was not trained for skipping, lost 4 to 13 %.
_SHARE = 0.02


@dataclass(slots=True)
class Budget:
    """Seconds that scoring may take."""

    left: float = 0.0
    seconds: float = 0.0  # decoding of this text that was earned for
    generated: int = 1  # tokens of it

    def start(self) -> None:
        """A new text."""
        self.seconds, self.generated = 0.0, 1

    def follow(self, progress: Progress) -> int:
        """Earns for what the text has gone on by; returns its tokens. All texts of a round may search, so each earns
        for its part of the time."""
        tokens = progress.generated - self.generated
        self.left += _SHARE * (progress.seconds - self.seconds) / progress.together
        self.seconds, self.generated = progress.seconds, progress.generated
        return tokens

    def spend(self, seconds: float) -> None:
        self.left -= seconds
