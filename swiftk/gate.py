"""How far and how wide to draft. Pure policy: it sees confidences, acceptances and costs, never the runtime."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

_NOTCHES = (0.0, 0.2, 0.4, 0.55, 0.7, 0.8, 0.9, 0.97)
_EPSILONS = np.array(_NOTCHES)
_LENGTHS = np.array([1, 2, 3, 4, 6, 8, 12, 16, 25, 40, 63])
_WINDOW = 64  # rounds that choices are replayed on: 64 x 8 x 11 small integers, 50 us once in _EVERY rounds
_EVERY = 8
_ENOUGH = 4  # rounds a choice must have been observable in
_MARGIN = 1.02  # a change must promise this much
# The r-th best token behind a rejected one is right about .25 / r of the time, worth about .14 / r plain steps:
# siblings are added up to the rank that pays for its row.
_SIBLING_WORTH = 0.14
_TREE_WORTH = 0.35  # plain steps that all rows of a tree may cost


@dataclass(frozen=True, slots=True)
class DraftRule:
    """SWIFT section 4.2: stop behind a token whose confidence is below epsilon; the less sure, the more siblings."""

    confidence: float = 0.8  # epsilon; 0 never stops early
    max_draft: int = 25  # spine tokens
    max_nodes: int = 64  # root, spine and siblings; the spine goes first
    tier: tuple[float, float, float] = (0.5, 0.8, 0.95)  # upper bounds of the first three widths
    width: tuple[int, int, int, int] = (10, 5, 3, 1)  # children of a spine node, by confidence

    def clipped(self, budget: int) -> DraftRule:
        """With at most `budget` spine tokens: drafting past the end of the text would be for nothing."""
        return self if self.max_draft <= budget else replace(self, max_draft=max(0, budget))

    def arguments(self) -> dict[str, Any]:
        """As Session.draft takes them."""
        return {
            "confidence": self.confidence,
            "max_draft": self.max_draft,
            "max_nodes": self.max_nodes,
            "tier": self.tier,
            "width": self.width,
        }


class Gate(Protocol):
    """How far and wide to draft in the next round, learned or not."""

    def choose(self, draft_cost: float, row_cost: float) -> DraftRule:
        """The rule of the next round, for a draft step and one more verified row priced in plain steps."""

    def observe(self, confidence: Sequence[float], accepted: int, sibling: bool) -> None:
        """One round: confidence of each spine token, how many of them held, whether a sibling saved the next."""


class FixedGate:
    """One rule, whatever happens."""

    def __init__(self, rule: DraftRule) -> None:
        self.rule = rule

    def choose(self, draft_cost: float, row_cost: float) -> DraftRule:
        return self.rule

    def observe(self, confidence: Sequence[float], accepted: int, sibling: bool) -> None:
        """Nothing to learn."""


class AutoGate:
    """Chooses epsilon and length by replaying recent rounds: a round drafted to depth n shows exactly what any stricter
    choice would have drafted and had accepted. Every eighth round drafts one notch further, to see past the choice."""

    def __init__(self, max_draft: int | None = None) -> None:
        self.limit = min(max_draft or 25, int(_LENGTHS[-1]))
        self._epsilon = int(np.searchsorted(_EPSILONS, 0.8))
        self._length = int(np.searchsorted(_LENGTHS, min(8, self.limit)))
        self._asked = (self._epsilon, self._length)
        self._rounds: deque[tuple[list[int], int, bool, tuple[int, int]]] = deque(maxlen=_WINDOW)
        self._count = 0

    def choose(self, draft_cost: float, row_cost: float) -> DraftRule:
        """The rule of the next round, for a draft step and one more verified row priced in plain steps."""
        if self._count % _EVERY == _EVERY - 1:
            self._replay(draft_cost, row_cost)
            self._asked = (max(0, self._epsilon - 1), min(len(_LENGTHS) - 1, self._length + 1))
        else:
            self._asked = (self._epsilon, self._length)
        length = min(self.limit, int(_LENGTHS[self._asked[1]]))
        row_cost = max(row_cost, 0.002)
        siblings = int(_SIBLING_WORTH / row_cost)
        return DraftRule(
            confidence=float(_EPSILONS[self._asked[0]]),
            max_draft=length,
            max_nodes=min(64, max(length + 1, 1 + int(_TREE_WORTH / row_cost))),
            width=tuple(min(w, 1 + siblings) for w in DraftRule().width),
        )

    def observe(self, confidence: Sequence[float], accepted: int, sibling: bool) -> None:
        """One round: confidence of each spine token, how many of them held, whether a sibling saved the next."""
        self._count += 1
        depth, open_ = [len(confidence)] * len(_NOTCHES), len(_NOTCHES)  # [epsilons] spine tokens under each
        for i, c in enumerate(confidence):
            above = bisect_right(_NOTCHES, c)
            for k in range(above, open_):
                depth[k] = i + 1
            open_ = min(open_, above)
        if depth[0]:
            self._rounds.append((depth, accepted, sibling, self._asked))

    def _replay(self, draft_cost: float, row_cost: float) -> None:
        if len(self._rounds) < _ENOUGH:
            return
        depth = np.array([r[0] for r in self._rounds])[:, :, None]  # [rounds, epsilons, 1]
        accepted = np.array([r[1] for r in self._rounds])[:, None, None]
        saved = np.array([r[2] for r in self._rounds])[:, None, None]
        epsilon = np.array([r[3][0] for r in self._rounds])[:, None, None]
        length = np.array([r[3][1] for r in self._rounds])[:, None, None]
        seen = (np.arange(len(_EPSILONS))[None, :, None] >= epsilon) & (
            np.arange(len(_LENGTHS))[None, None, :] <= length
        )  # choices this round can speak for
        drafted = np.minimum(depth, _LENGTHS[None, None, :])
        held = np.minimum(accepted, drafted)
        tokens = np.where(seen, held + 1 + (saved & (held < drafted)), 0).sum(0)
        cost = np.where(seen, drafted * (draft_cost + row_cost) + 1.0, 0).sum(0)
        rate = np.where(seen.sum(0) >= _ENOUGH, tokens / np.maximum(cost, 1e-9), 0)  # [epsilons, lengths]
        best = np.unravel_index(int(rate.argmax()), rate.shape)
        if rate[best] > _MARGIN * rate[self._epsilon, self._length]:
            self._epsilon, self._length = int(best[0]), int(best[1])


def make_gate(gate: Any, max_draft: int | None) -> FixedGate | AutoGate:
    """The policy that the options `gate` and `max_draft` name."""
    if isinstance(gate, DraftRule):
        return FixedGate(gate if max_draft is None else gate.clipped(max_draft))
    if gate == "auto":
        return AutoGate(max_draft)
    rule = DraftRule() if gate == "swift" else DraftRule(confidence=float(gate))
    return FixedGate(rule if max_draft is None else replace(rule, max_draft=max_draft))
