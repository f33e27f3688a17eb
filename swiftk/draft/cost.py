"""A round as the clock saw it, and what papers forecast from such figures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Round:
    """One round as the clock saw it."""

    seconds: float
    draft_seconds: float = 0.0
    draft_steps: int = 0
    verify_seconds: float = 0.0
    verify_rows: int = 1
    tokens: int = 1
    accepted: int = 0  # draft tokens among them
    proposed: int = 0  # of these, by sources that cost no step
    drafted: int = 0  # places of the text that the plan drafted
    cut: bool = False  # the text ended inside
    disk_seconds: float = 0.0  # of both: passes waited for weights from disk
    disk_bytes: int = 0  # that they read of them

    @property
    def speculative(self) -> bool:
        return self.draft_steps > 0 or self.verify_rows > 1


def equation_6(mean_length: float, alpha: float, c: float) -> float:
    """SWIFT's expected speed-up: mean_length tokens a round (bonus included), acceptance alpha, draft step c."""
    below = (mean_length - 1) * c + alpha
    return mean_length * alpha / below if below > 0 else 0.0


def tokens_per_round(alpha: float, length: int) -> float:
    """Expected tokens of a round that drafts `length` tokens, each accepted with probability alpha."""
    return float(length + 1) if alpha >= 1 else (1 - alpha ** (length + 1)) / (1 - alpha)


def break_even(c: float, length: int, verify: float = 1.0) -> float | None:
    """Acceptance at which such rounds run as fast as plain decoding; None if even 1 does not."""
    cost = c * length + verify
    if cost > tokens_per_round(1.0, length):
        return None
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if tokens_per_round(middle, length) < cost else (low, middle)
    return high


def best_round(alpha: float, step: float, verify: float, longest: int) -> tuple[float, int]:
    """(tokens a second, length) of the fastest rounds, where a draft step and a pass take so many seconds: the pass as
    many whatever it verifies, as where it waits for weights. longest: of a draft, in tokens; 0: plain decoding."""
    return max((tokens_per_round(alpha, n) / (n * step + verify), n) for n in range(longest + 1))
