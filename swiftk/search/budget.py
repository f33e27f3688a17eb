"""The time that scoring may take: a small share of decoding; and what scoring has been seen to cost."""

from __future__ import annotations

from dataclasses import dataclass

from . import tuned
from .base import Progress


@dataclass(slots=True)
class Budget:
    """Seconds that scoring may take. A cost is in tokens scored by a pass of a plain step's price."""

    left: float = 0.0
    seconds: float = 0.0  # decoding of this text that was earned for
    generated: int = 1  # tokens of it
    _rate: float = 0.0  # seconds of a cost of 1
    _thinking: float = 0.0  # seconds of judging what a score says

    def start(self) -> None:
        """A new text."""
        self.seconds, self.generated = 0.0, 1

    def follow(self, progress: Progress) -> int:
        """Earns for what the text has gone on by; returns its tokens. All texts of a round may search, so each earns
        for its part of the time."""
        tokens = progress.generated - self.generated
        self.left += tuned.SHARE * (progress.seconds - self.seconds) / progress.together
        self.seconds, self.generated = progress.seconds, progress.generated
        return tokens

    def affords(self, cost: float, plain_seconds: float) -> bool:
        rate = self._rate or tuned.UNMEASURED * plain_seconds
        return self.left > 0 and cost * rate + self._thinking <= self.left

    def spend(self, cost: float, scoring: float, whole: float) -> None:
        """scoring: seconds of the scores; whole: of these and of judging them."""
        rate = scoring / max(cost, 1e-9)
        self._rate += (rate - self._rate) * (tuned.FAST if self._rate else 1.0)
        self._thinking += (max(0.0, whole - scoring) - self._thinking) * tuned.FAST
        self.left -= max(scoring, whole)
