"""Draft & Verify's adaptive draft-exit threshold (arXiv 2309.08168, section 3.3)."""

from __future__ import annotations

from collections.abc import Iterable

from .calibration import Calibration
from .cost import CostModel
from .gate import DraftRule

_TARGET = 0.9  # acceptance that the threshold is steered to
_STEP = 0.01
_SLOW_RATE, _SLOW_THRESHOLD = 0.5, 0.9  # beta 1 and beta 2
_START = 0.6
_MOST = 12  # draft steps


class SelfSdGate:
    """Chains without siblings, ended by a threshold on confidence that rises while acceptance is below its target."""

    def __init__(self, max_draft: int | None = None) -> None:
        self.calibration = Calibration()
        self.threshold = _START
        self._limit = min(max_draft or _MOST, 63)
        self._acceptance = 0.0

    def choose(self, costs: CostModel) -> DraftRule:
        return DraftRule(confidence=self.threshold, max_draft=self._limit, max_nodes=64, width=(1, 1, 1, 1))

    def observe(self, outcomes: Iterable[tuple[float, int]], drafted: int) -> None:
        seen = list(outcomes)
        self.calibration.add(seen)
        accepted = sum(rank == 0 for _, rank in seen)
        self._acceptance = _SLOW_RATE * self._acceptance + (1 - _SLOW_RATE) * accepted / max(drafted, 1)
        if self._acceptance < _TARGET:
            aim = self.threshold + _STEP
        elif drafted == self._limit:
            aim = self.threshold
        else:
            aim = self.threshold - _STEP
        self.threshold = min(1.0, max(0.0, _SLOW_THRESHOLD * self.threshold + (1 - _SLOW_THRESHOLD) * aim))
