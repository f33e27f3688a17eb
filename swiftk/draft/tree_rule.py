"""How far and wide papers draft: SWIFT's thresholds on confidence, Self-SD's, which moves, and EAGLE-2's beam."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MAX_DRAFT = 63  # a tree has 64 nodes, the root among them

_TARGET = 0.9  # acceptance that Self-SD's threshold is steered to
_STEP = 0.01
_SLOW_RATE, _SLOW_THRESHOLD = 0.5, 0.9  # its beta 1 and beta 2
_START, _MOST = 0.6, 12  # its threshold at first, its draft steps


@dataclass(frozen=True, slots=True)
class TreeRule:
    """SWIFT section 4.2: stop after a token of confidence below epsilon. Lower confidence gives more siblings."""

    confidence: float = 0.8  # epsilon; 0 never stops early
    max_draft: int = 25  # spine tokens
    max_nodes: int = 64  # root, spine and siblings; the spine goes first
    tier: tuple[float, float, float] = (0.5, 0.8, 0.95)  # upper bounds of the first three widths
    width: tuple[int, int, int, int] = (10, 5, 3, 1)  # children of a spine node, by confidence
    # EAGLE-2's tree instead (arXiv 2406.16858, section 4), if not 0: each of max_draft steps reads so many of the last
    # level, at most 10; then the likeliest max_nodes of all, read or not, make up the tree. The paper has 10, 6 and 60.
    beam: int = 0

    def arguments(self) -> dict[str, Any]:
        """As _core.TreeRule takes them."""
        swift = {"confidence": self.confidence, "tier": self.tier, "width": self.width}
        grows = {"beam": self.beam} if self.beam else swift
        return {"max_draft": self.max_draft, "max_nodes": self.max_nodes, **grows}


class SelfSdRule:
    """Draft & Verify's adaptive threshold (arXiv 2309.08168, section 3.3): chains without siblings, ended by a
    confidence that rises while acceptance is below its target."""

    def __init__(self, max_draft: int | None = None) -> None:
        self.threshold = _START
        self._limit = min(max_draft or _MOST, MAX_DRAFT)
        self._acceptance = 0.0

    @property
    def rule(self) -> TreeRule:
        return TreeRule(confidence=self.threshold, max_draft=self._limit, width=(1, 1, 1, 1))

    def observe(self, outcomes: Sequence[tuple[float, int]], drafted: int) -> None:
        """One round of `drafted` steps: for each node drafted from that the text came through, the draft's confidence
        and the place of the right token among its candidates (0: the best; -1: none)."""
        accepted = sum(rank == 0 for _, rank in outcomes)
        self._acceptance = _SLOW_RATE * self._acceptance + (1 - _SLOW_RATE) * accepted / max(drafted, 1)
        if self._acceptance < _TARGET:
            aim = self.threshold + _STEP
        elif drafted == self._limit:
            aim = self.threshold
        else:
            aim = self.threshold - _STEP
        self.threshold = min(1.0, max(0.0, _SLOW_THRESHOLD * self.threshold + (1 - _SLOW_THRESHOLD) * aim))
