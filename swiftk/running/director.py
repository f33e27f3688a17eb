"""Policies that live in Python, over a text that an engine steps: they receive what came of each round, may score plans
between two of them, and name the plan and the rule of the next one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from .. import _core
from ..draft.cost import Round
from ..draft.draft_spec import DraftSpec
from ..search.base import Optimizer, Progress, Score
from .engine import Ticket
from .policies import Policy
from .stats import Recorder


def native(skip: DraftSpec) -> _core.DraftSpec:
    """As the engine has it."""
    return _core.DraftSpec(**skip.arguments())


class EngineMeasured:
    """optimizers.base.Measured, by the planner of the engine that is in use."""

    def __init__(self, engine: Callable[[], Any]) -> None:
        """engine: a _core.Engine."""
        self._engine = engine

    @property
    def now(self) -> float:
        return float(self._engine().now)

    def price(self, skip: DraftSpec) -> float:
        return float(self._engine().price(native(skip)))

    def rates(self, skip: DraftSpec) -> Any:
        return self._engine().rates(native(skip))

    def learned(self, skip: DraftSpec, rates: Any) -> None:
        self._engine().learned(native(skip), rates)

    def no_rates(self, skip: DraftSpec) -> Any:
        return _core.AcceptanceRates(skip.thinned)

    def forecast(self, rates: Any, price: float) -> float:
        return float(self._engine().forecast(rates, price))

    @property
    def row(self) -> float:
        return float(self._engine().row_prices(8)[7]) / 7

    def usual(self, r: Round, skip: DraftSpec) -> float:
        return r.draft_steps * self.price(skip) + 1 + float(self._engine().row_prices(r.verify_rows)[-1])


class PassedOver(Exception):
    """The text gave its memory up, or found none to be scored in: a search goes on when it is back."""


class TextScorer:
    """optimizers.base.Scorer on a text under way."""

    def __init__(self, ticket: Ticket) -> None:
        self._engine, self._number = ticket.engine, ticket.number
        self.seconds = 0.0  # of all scores

    def __call__(self, skip: DraftSpec, window: int, end: int | None = None) -> Score:
        score = Score(*self._engine.score(self._number, native(skip), window, -1 if end is None else end))
        if not score.rows:
            raise PassedOver
        self.seconds += score.seconds
        return score

    def exits(self, layers: Sequence[int], window: int, end: int | None = None) -> list[Score]:
        last = -1 if end is None else end
        confidence, rank, seconds = self._engine.score_exits(self._number, list(layers), window, last)
        if not len(rank) or not len(rank[0]):
            raise PassedOver
        self.seconds += seconds
        return [Score(*outcomes, seconds / len(layers)) for outcomes in zip(confidence, rank, strict=True)]

    def propose(self, most: int) -> list[DraftSpec]:
        return [DraftSpec(attn, mlp) for attn, mlp in self._engine.propose_skips(self._number, most)]


class Director:
    """Directs the drafts of one text."""

    def __init__(self, policy: Policy, prompt: Sequence[int]) -> None:
        self._policy, self._prompt = policy, prompt
        self._reported: Any = None  # plan and rule of the next round, as the engine has them

    def begin(self, ticket: Ticket) -> None:
        """The prompt's pass is over."""
        self._ticket, self._scorer = ticket, TextScorer(ticket)
        if self._policy.optimizer:
            self._policy.optimizer.start(self._prompt)
        self._direct()

    def receive(self, turn: Any, r: Round, recorder: Recorder) -> None:
        """A round that was not the text's last."""
        if not self._policy.directed:
            return
        engine = self._ticket.engine
        began, scored = engine.now, self._scorer.seconds
        if self._policy.moving and turn.steps:
            self._policy.moving.observe(turn.outcomes, turn.steps)
        if self._policy.optimizer:
            self._search(self._policy.optimizer, turn, r, recorder)
        self._direct()
        spent = engine.now - began
        recorder.optimizer += spent
        recorder.decode += spent
        recorder.run += self._scorer.seconds - scored

    def _search(self, optimizer: Optimizer, turn: Any, r: Round, recorder: Recorder) -> None:
        engine, number = self._ticket.engine, self._ticket.number
        if turn.given_up and optimizer.give_up(turn.given_up):
            engine.go_on(number)
        if r.draft_steps and turn.plain:
            planned = replace(r, tokens=r.tokens - r.proposed)  # a plan gets no credit for what others gave
            optimizer.observe(planned, turn.plain)
        right = [rank == 0 for _, rank in turn.outcomes] if r.draft_steps else []
        plain = turn.plain or turn.verify  # in "always" none is ever measured
        so_far, together = (recorder.prompt_tokens, recorder.generated, recorder.decode), engine.last["sequences"]
        progress = Progress(*so_far, plain, turn.resting, r.tokens, right, max(1, together))
        with suppress(PassedOver):
            if optimizer.step(self._scorer, progress):
                engine.wake(number)
        if optimizer.unpaid:
            engine.charge(number, optimizer.unpaid)

    def _direct(self) -> None:
        policy = self._policy
        if not policy.directed:
            return
        skip = policy.optimizer.next().skip if policy.optimizer else policy.skips[0]
        rule = policy.moving.rule if policy.moving else policy.rule
        if (skip, rule) != self._reported:
            self._reported = (skip, rule)
            its = _core.TreeRule(**rule.arguments()) if rule else None
            self._ticket.engine.direct(self._ticket.number, native(skip), its)
