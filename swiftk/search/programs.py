"""Candidates by dynamic programming (CLaSp, arXiv 2505.24196): for a number of skipped sublayers the set that keeps the
residual stream of the last token nearest to the target's."""

from __future__ import annotations

from ..draft.draft_spec import DraftSpec
from . import tuned
from .base import Here, Proposal, Scorer
from .sublayers import sublayers


class Programs:
    """As many sublayers out as the set that drafts leaves out, two fifths and three fifths of those that may be."""

    turns = 1

    def __init__(self, n_layers: int) -> None:
        self.n_layers = n_layers

    def cost(self, here: Here) -> float | None:
        return tuned.DP_WIDTH / 2 if self._counts(here) else None

    def propose(self, score: Scorer, here: Here) -> list[Proposal]:
        counts = self._counts(here)
        sets = score.propose(max(counts))
        return [("dp", sets[n - 1], None) for n in sorted(counts, reverse=True)] if sets else []

    def reopen(self) -> None:
        """It is ready for any text."""

    def learn(self, skip: DraftSpec, matchness: float, kept: bool) -> None:
        """Nothing: each proposal follows from the text alone."""

    def _counts(self, here: Here) -> set[int]:
        inner = 2 * self.n_layers - 4
        asked = {len(sublayers(here.skip, self.n_layers)), round(0.4 * inner), round(0.6 * inner)}
        return {n for n in asked if 0 < n <= min(tuned.DP_WIDTH, inner)}
