"""What the decoding loop asks of an optimizer, and what an optimizer may ask of the session. Pure policy: it is told
tokens, prices and scores, and never sees the runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ..cost import Round
from ..skip import SkipSet
from ..way import Way

_TRACED = 1024  # candidates of texts before that are kept for reports


@dataclass(frozen=True, slots=True)
class Score:
    """A candidate run in one pass over the last committed tokens, against the target's keys and values before them."""

    confidence: np.ndarray  # [rows] float32: probability of the candidate's best token
    rank: np.ndarray  # [rows] int32: place of the token that followed among the candidate's best; -1: not among them
    seconds: float

    @property
    def rows(self) -> int:
        return len(self.rank)

    @property
    def matchness(self) -> float:
        """Share of tokens that the candidate would have drafted (SWIFT section 4.1)."""
        return float(np.mean(self.rank == 0)) if len(self.rank) else 0.0


class Scorer(Protocol):
    """What an optimizer may ask of the session between two rounds. It takes time, which the loop accounts for."""

    def __call__(self, skip: SkipSet, window: int, end: int | None = None) -> Score:
        """Over `window` cached tokens, the last before position `end` of the text (None: of all)."""

    def exits(self, layers: Sequence[int], window: int, end: int | None = None) -> list[Score]:
        """Of every early exit among `layers`, rising, from one pass of the target, whose seconds they share."""

    def propose(self, most: int) -> list[SkipSet]:
        """For each count of skipped sublayers up to `most` (63 or less) the set that keeps the residual stream nearest
        to the target's (CLaSp, KnapSpec)."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a text stands."""

    prompt: int  # tokens
    generated: int  # tokens, the last of them not cached yet
    seconds: float  # of decoding, behind the first token
    plain_seconds: float  # of a plain step; 0 while unknown
    resting: bool = False  # drafting does
    tokens: int = 0  # of the last round
    right: Sequence[bool] = ()  # of the first of these: whether the plan's best guess was right


@dataclass(frozen=True, slots=True)
class Candidate:
    """One optimisation step, for reports."""

    tokens: int  # generated so far, over the optimizer's life
    kind: str  # "uniform", "random", "bayes", "exit", "swap", ...: where the set came from
    skip: SkipSet
    matchness: float
    rate: float | None  # tokens per plain step that it promises, where the optimizer goes by time
    kept: bool  # it became the set that drafts
    seconds: float


@dataclass(slots=True)
class Optimizer:
    """One way for ever; the learning ones override what they need."""

    current: Way
    trace: list[Candidate] = field(default_factory=list)
    unpaid: float = 0.0  # seconds of the last step that no budget holds down: drafting is to earn them

    def trim(self) -> int:
        """Between two texts: forgets the oldest candidates, if there are many. How many are left."""
        del self.trace[:-_TRACED]
        return len(self.trace)

    def start(self, prompt: Sequence[int]) -> None:
        """A new text begins."""

    def next(self) -> Way:
        """The way of the next round that drafts."""
        return self.current

    def observe(self, r: Round) -> None:
        """A round of the current way, priced by a known plain step."""
        self.current.observe(r)

    def give_up(self, rate: float) -> bool:
        """The current way loses against plain decoding: so many tokens per plain step lately. Returns whether another
        one is known to pay."""
        return False

    @property
    def untried(self) -> bool:
        """Whether there are ways whose worth is unknown yet."""
        return False

    def step(self, score: Scorer, progress: Progress) -> bool:
        """Between two rounds: may score candidates. Returns whether a way was found that pays where drafting rests."""
        return False

    def finish(self) -> None:
        """The text has ended."""
