"""How far and wide to draft. Pure policy: it sees confidences, acceptances and costs, never the runtime."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from .calibration import BUCKETS, EDGES, RANKS, THINNED, Calibration, forecast
from .cost import CostModel, Prices, stages
from .odds import Prior
from .sources import Sources, Table

_EVERY = 8  # rounds between two looks at the calibration: half a millisecond each
_PATIENCE = 64  # as many at most, where rounds are so short that looking would be felt
_LOOK = 0.005  # share of the decoding time that looking may take
_COST = 6e-4  # seconds of a look
_CHAIN = 3  # nodes of sources that a draft step reads at most: on a CPU, four rows of int4 cost what one does
_EAGER = 0.85  # of what a step must bring and of what rows cost, in one round of _EVERY: to see what lies behind


@dataclass(frozen=True, slots=True)
class Timed:
    """A tree by time (csrc/draft_rule.h): a node is worth the probability that it is accepted."""

    min_step_gain: float  # a draft step runs for nodes that are worth this much
    p_top1: tuple[float, ...]  # [16] probability that the draft's best token is right, by its confidence
    p_rank: tuple[tuple[float, ...], ...]  # [16][9] that its 2nd, 3rd, ... best is
    row_price: tuple[float, ...]  # [nodes] tokens that verifying so many nodes must bring
    sources: tuple[Table, ...] = ()  # that are asked, and how often they are right
    chain: int = 0  # nodes of theirs that a step reads beside the best,
    min_row_gain: float = 0.0  # each for at least this
    mean_p_top1: float = 1.0  # that the draft is right, whatever its confidence

    def arguments(self) -> dict[str, Any]:
        return {
            "min_step_gain": self.min_step_gain,
            "edges": _EDGES,
            "p_top1": self.p_top1,
            "p_rank": self.p_rank,
            "row_price": self.row_price,
            "sources": self.sources,
            "chain": self.chain,
            "min_row_gain": self.min_row_gain,
            "mean_p_top1": self.mean_p_top1,
        }


_EDGES = tuple(EDGES.tolist())
_NEVER = (0.0,) * BUCKETS
_NONE = ((0.0,) * (RANKS - 1),) * BUCKETS


@dataclass(frozen=True, slots=True)
class DraftRule:
    """SWIFT section 4.2: stop behind a token whose confidence is below epsilon; the less sure, the more siblings."""

    confidence: float = 0.8  # epsilon; 0 never stops early
    max_draft: int = 25  # spine tokens
    max_nodes: int = 64  # root, spine and siblings; the spine goes first
    tier: tuple[float, float, float] = (0.5, 0.8, 0.95)  # upper bounds of the first three widths
    width: tuple[int, int, int, int] = (10, 5, 3, 1)  # children of a spine node, by confidence
    timed: Timed | None = None  # by expected tokens per time instead
    max_depth: int = 63  # tokens on a path, whoever proposes them

    def clipped(self, budget: int, nodes: int = 64) -> DraftRule:
        """With at most `budget` tokens on a path, as drafting past the end of the text would be for nothing, and at
        most so many `nodes`."""
        if max(self.max_draft, self.max_depth) <= budget and self.max_nodes <= nodes:
            return self
        most = max(0, budget)
        return replace(
            self,
            max_draft=min(self.max_draft, most),
            max_depth=min(self.max_depth, most),
            max_nodes=min(self.max_nodes, nodes),
        )

    def arguments(self) -> dict[str, Any]:
        """As Session.draft takes them."""
        return {
            "confidence": self.confidence,
            "max_draft": self.max_draft,
            "max_depth": self.max_depth,
            "max_nodes": self.max_nodes,
            "tier": self.tier,
            "width": self.width,
            **(self.timed.arguments() if self.timed else {}),
        }


class Gate(Protocol):
    """How far and wide to draft in the next round, learned or not."""

    calibration: Calibration  # of what it was told

    def choose(self, costs: CostModel) -> DraftRule:
        """The rule of the next round."""

    def observe(self, outcomes: Iterable[tuple[float, int]], drafted: int) -> None:
        """One round of `drafted` steps: for each node drafted from that the text came through, the draft's confidence
        and the place of the right token among its candidates (0: the best; -1: none)."""


class FixedGate:
    """One rule, whatever happens. What it hears is for others to read."""

    def __init__(self, rule: DraftRule) -> None:
        self.rule = rule
        self.calibration = Calibration()

    def choose(self, costs: CostModel) -> DraftRule:
        return self.rule

    def observe(self, outcomes: Iterable[tuple[float, int]], drafted: int) -> None:
        self.calibration.add(outcomes)


class TimedGate:
    """Drafts as long as a further step pays, for a tree as wide as its rows pay (algorithms.md, section 0): acceptance
    is calibrated by confidence as texts are verified, prices come from the clock. With sources, what they guess for
    nothing counts, and a step runs for what they leave."""

    def __init__(self, max_draft: int | None = None, sources: Sources | None = None, prior: Prior = THINNED) -> None:
        self.limit = min(max_draft or 25, 63)
        self.sources = sources
        self.calibration = Calibration(prior=prior)
        self._rule: DraftRule | None = None
        self._eager: DraftRule | None = None
        self._rounds, self._due = 0, 0

    def choose(self, costs: CostModel) -> DraftRule:
        if self._rounds >= self._due:
            self._look(costs.prices())
        self._rounds += 1
        rule = self._eager if self._rounds % _EVERY == 0 else self._rule
        assert rule is not None
        return rule

    def observe(self, outcomes: Iterable[tuple[float, int]], drafted: int) -> None:
        self.calibration.add(outcomes)

    def _look(self, prices: Prices) -> None:
        timed = self._timed(prices)
        self._rule = DraftRule(confidence=0.0, max_draft=self.limit, timed=timed)
        self._eager = replace(self._rule, timed=_eagerly(timed))
        rounds = _COST / (_LOOK * prices.seconds) if prices.seconds > 0 else 0
        self._due = self._rounds + int(min(max(_EVERY, rounds), _PATIENCE))

    def _timed(self, prices: Prices) -> Timed:
        tables = self.calibration.tables()
        pace = self.sources.rate if self.sources else 1.0
        best = forecast(tables, prices.draft, stages(prices.rows), pace)
        # Where nothing but the plan proposes, whoever asks wants one step at least.
        step_gain = best.reach if best.rate == pace > 1 else min(best.reach, 1.0)
        timed = Timed(
            step_gain,
            tuple(tables[1].tolist()),
            tuple(map(tuple, tables[2].tolist())),
            tuple((best.rate * prices.rows).tolist()),
        )
        if self.sources is None:
            return timed
        right = float(tables[0] @ tables[1])
        # What a step of its own reads is worth the step, from `step_gain` on; what is read beside others, a row of a
        # tree that has about eight.
        further = float(prices.rows[11] - prices.rows[3]) / 8
        row_gain = step_gain * further / prices.draft if prices.draft > 0 else 0.0
        return replace(timed, sources=self.sources.tables(), chain=_CHAIN, min_row_gain=row_gain, mean_p_top1=right)


def _eagerly(timed: Timed) -> Timed:
    cheap = tuple(_EAGER * price for price in timed.row_price)
    return replace(
        timed,
        min_step_gain=_EAGER * timed.min_step_gain,
        min_row_gain=_EAGER * timed.min_row_gain,
        row_price=cheap,
    )


class SourceGate:
    """No draft step at all: what sources guess, as far as its rows pay; or, where a paper says so, all of it."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.calibration = Calibration()  # of a plan, which there is none of
        self._rule: DraftRule | None = None
        self._rounds = 0

    def choose(self, costs: CostModel) -> DraftRule:
        if self._rounds % _EVERY == 0 or self._rule is None:
            free = not self.sources.drafter.by_time
            price = 0.0 if free else self.sources.rate
            timed = Timed(
                1.0, _NEVER, _NONE, tuple((price * costs.prices().rows).tolist()), sources=self.sources.tables()
            )
            self._rule = DraftRule(confidence=0.0, max_draft=0, timed=timed)
        self._rounds += 1
        return self._rule

    def observe(self, outcomes: Iterable[tuple[float, int]], drafted: int) -> None:
        """There are no steps."""


def make_gate(
    gate: Any,
    max_draft: int | None,
    optimizer: str | None = "auto",
    sources: Sources | None = None,
    prior: Prior = THINNED,
) -> Gate:
    """The policy that the options `gate` and `max_draft` name."""
    if isinstance(gate, DraftRule):
        return FixedGate(gate if max_draft is None else gate.clipped(max_draft))
    if gate == "auto" and optimizer == "self-sd":
        from .self_sd_gate import SelfSdGate

        return SelfSdGate(max_draft)
    if gate == "auto" and optimizer != "swift":
        return TimedGate(max_draft, sources=sources, prior=prior)
    rule = DraftRule() if gate in ("auto", "swift") else DraftRule(confidence=float(gate))
    return FixedGate(rule if max_draft is None else replace(rule, max_draft=max_draft))
