"""Interfaces between a text's director, an optimizer with its sources of candidates, and the engine. Pure policy: it is
given tokens, prices and scores, and never sees the runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..draft.cost import Round
from ..draft.draft_spec import DraftSpec
from . import tuned

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
    def outcomes(self) -> list[tuple[float, int]]:
        return list(zip(self.confidence.tolist(), self.rank.tolist(), strict=True))

    @property
    def matchness(self) -> float:
        """Share of tokens that the candidate would have drafted (SWIFT section 4.1)."""
        return float(np.mean(self.rank == 0)) if len(self.rank) else 0.0


class Scorer(Protocol):
    """Scores that an optimizer may ask of the engine between two rounds. The director accounts for their time."""

    def __call__(self, skip: DraftSpec, window: int, end: int | None = None) -> Score:
        """Over `window` cached tokens, the last before position `end` of the text (None: of all)."""

    def exits(self, layers: Sequence[int], window: int, end: int | None = None) -> list[Score]:
        """Score of every early exit among `layers`, rising, from one pass of the target, whose seconds they share."""

    def propose(self, most: int) -> list[DraftSpec]:
        """For each count of skipped sublayers up to `most` (63 or less) the set that keeps the residual stream nearest
        to the target's (CLaSp, KnapSpec)."""


class Rates(Protocol):
    """How often a plan's candidates come true, by its confidence and their rank."""

    counts: Sequence[float]
    outcomes: float
    matchness: float  # share of best candidates that were right

    def add(self, outcomes: Sequence[tuple[float, int]]) -> None:
        """(confidence, rank of the right token, -1: none of the candidates)."""

    def merge(self, other: Any) -> None: ...

    def scale(self, by: float) -> None: ...

    def restore(self, counts: Sequence[float]) -> None:
        """InvalidArgument where they are none."""


class Measured(Protocol):
    """Measurements of the planner, from the clock and from verified text. Prices are in plain steps."""

    @property
    def now(self) -> float:
        """Seconds since some moment."""

    @property
    def row(self) -> float:
        """One more row in a tree of eight."""

    def price(self, skip: DraftSpec) -> float:
        """A draft step."""

    def rates(self, skip: DraftSpec) -> Rates: ...

    def learned(self, skip: DraftSpec, rates: Rates) -> None:
        """Was seen of the plan elsewhere."""

    def no_rates(self, skip: DraftSpec) -> Rates:
        """Before anything was seen."""

    def forecast(self, rates: Rates, price: float) -> float:
        """Tokens per plain step of the best rule."""

    def usual(self, r: Round, skip: DraftSpec) -> float:
        """Plain steps that such a round takes."""


@dataclass(slots=True, eq=False)
class DraftConfig:
    """A plan, and how it has done: live, and on windows of text that it was scored on."""

    skip: DraftSpec
    kind: str = ""  # where it came from
    tokens: float = 0.0
    steps: float = 0.0  # plain ones, that these tokens took
    rounds: int = 0
    windows: dict[int, Rates] = field(default_factory=dict)
    promise: float = 0.0  # tokens per plain step, by all of these
    kept: float = 1.0  # share of its promise that it brought when it drafted and lost

    @property
    def rate(self) -> float:
        """Tokens per plain step; plain decoding has 1."""
        return self.tokens / self.steps if self.steps > 0 else 0.0

    def observe(self, r: Round, plain_seconds: float) -> None:
        """A round that drafted like this."""
        self.tokens = tuned.MEMORY * self.tokens + r.tokens
        self.steps = tuned.MEMORY * self.steps + r.seconds / plain_seconds
        self.rounds += 1

    def forget(self) -> None:
        """What follows is another text: the rate so far is not its."""
        self.tokens, self.steps, self.rounds, self.kept = 0.0, 0.0, 0, 1.0

    def scored(self, window: int, rates: Rates) -> None:
        self.windows[window] = rates
        while len(self.windows) > tuned.WINDOWS:
            del self.windows[min(self.windows)]


@dataclass(frozen=True, slots=True)
class Window:
    """Generated tokens that candidates are scored on: it is these that a draft must get right."""

    number: int  # over the search's life
    tokens: int
    end: int  # position after the last of them


@dataclass(frozen=True, slots=True)
class Here:
    """What a source of candidates is asked for."""

    skip: DraftSpec  # that drafts
    live: Rates  # of it, by verified drafts
    window: Window  # that the candidates will be scored on


Proposal = tuple[str, DraftSpec, Score | None]  # its kind, for reports; its score where that came with it


class Source(Protocol):
    """Where candidates come from."""

    turns: int  # of one cycle through all sources

    def cost(self, here: Here) -> float | None:
        """Of the next proposals, in tokens scored by a pass of a plain step's price; None: there are none."""

    def propose(self, score: Scorer, here: Here) -> list[Proposal]: ...

    def reopen(self) -> None:
        """Another kind of text begins."""

    def learn(self, skip: DraftSpec, matchness: float, kept: bool) -> None:
        """A candidate's race is over. kept: it drafts now."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a text stands."""

    prompt: int  # tokens
    generated: int  # tokens, the last of them not cached yet
    seconds: float  # of decoding, after the first token
    plain_seconds: float  # of a plain step of the texts that decode together; 0 while unknown
    resting: bool = False  # drafting does
    tokens: int = 0  # of the last round
    right: Sequence[bool] = ()  # for the first of these, whether the plan's best token was right
    together: int = 1  # texts that decode in the same passes, and share their time


@dataclass(frozen=True, slots=True)
class Candidate:
    """One optimisation step, for reports."""

    tokens: int  # generated so far, over the optimizer's life
    kind: str  # "uniform", "random", "bayes", "exit", "swap", ...: where the set came from
    skip: DraftSpec
    matchness: float
    rate: float | None  # tokens per plain step that it promises, where the optimizer goes by time
    kept: bool  # it became the set that drafts
    seconds: float


@dataclass(slots=True)
class Optimizer:
    """One configuration for ever; the learning ones override what they need."""

    current: DraftConfig
    measured: Measured
    trace: list[Candidate] = field(default_factory=list)
    unpaid: float = 0.0  # seconds of the last step that no budget holds down: drafting is to earn them

    def trim(self) -> int:
        """Between two texts: forgets the oldest candidates, if there are many. How many are left."""
        del self.trace[:-_TRACED]
        return len(self.trace)

    def start(self, prompt: Sequence[int]) -> None:
        """A new text begins."""

    def next(self) -> DraftConfig:
        """That of the next round that drafts."""
        return self.current

    def observe(self, r: Round, plain_seconds: float) -> None:
        """A round of the current configuration. plain_seconds: of a plain step of the round's texts."""
        self.current.observe(r, plain_seconds)

    def give_up(self, rate: float) -> bool:
        """The current one loses against plain decoding: so many tokens per plain step lately. Returns whether another
        one is known to pay."""
        return False

    def step(self, score: Scorer, progress: Progress) -> bool:
        """Between two rounds: may score candidates. Returns whether one was found that pays where drafting rests."""
        return False

    def finish(self) -> None:
        """The text has ended."""

    def state(self) -> dict[str, Any]:
        """What another process can go on from, as JSON; empty: nothing."""
        return {}
