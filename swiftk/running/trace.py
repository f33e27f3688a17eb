"""The trace of one text, beside its sums (stats.py): each round, each token's text, the optimizer's candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..draft.cost import Round
    from ..draft.draft_spec import DraftSpec
    from ..search.base import Candidate


class TracedRound(NamedTuple):
    """One round, cheap to note down."""

    round: Round  # what was committed, where the block was cut
    skip: DraftSpec | None  # what the draft left out; None: nothing was drafted
    clock: float  # seconds of decoding at its end, since the first token
    why: str = ""  # with explain=True: what was weighed, what was taken, and what came of it


@dataclass(frozen=True, slots=True)
class Trace:
    """The first token is the prompt's pass; every other one belongs to a round, in order."""

    model: str  # name of its folder
    layers: int
    texts: tuple[str, ...]  # [tokens], together the text; may be empty
    rounds: tuple[TracedRound, ...]
    candidates: tuple[Candidate, ...] = ()  # over the optimizer's life, the latest of texts before
    earlier: int = 0  # candidates that were tried in texts before
    drafters: Mapping[str, str] = field(default_factory=dict)  # loaded beside the model: name to words

    def words(self, skip: DraftSpec) -> str:
        """What drafts by a plan, for people."""
        return skip.words(self.layers, self.drafters)

    @property
    def plans(self) -> dict[str, PlanStats]:
        """What each plan brought, in words, the most accepted first."""
        found: dict[str, PlanStats] = {}
        for skip, one in ((t.skip, t.round) for t in self.rounds if t.skip is not None and t.round.draft_steps):
            before = found.get(self.words(skip), PlanStats())
            planned = one.accepted - one.proposed
            found[self.words(skip)] = PlanStats(
                before.rounds + 1,
                before.steps + one.draft_steps,
                before.drafted + one.drafted,
                before.accepted + planned,
            )
        return dict(sorted(found.items(), key=lambda item: -item[1].accepted))


@dataclass(frozen=True, slots=True)
class PlanStats:
    """Of the rounds that one plan drafted."""

    rounds: int = 0
    steps: int = 0  # of drafting
    drafted: int = 0  # tokens, places of the text
    accepted: int = 0  # tokens that it drafted, of these
