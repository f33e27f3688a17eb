"""How often a draft is right, learned from verified texts: by its confidence, and for each of its runners-up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .odds import Prior, logit, odds

EDGES = np.array([0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.87, 0.92, 0.95, 0.975, 0.99])
BUCKETS, RANKS = len(EDGES) + 1, 10
_MEMORY = 300  # outcomes that a bucket remembers
_SURENESS = logit((np.append(0.005, EDGES) + np.append(EDGES, 0.999)) / 2)

# On the streams of bench/paper, greedy and sampled: a draft without some of its sublayers; and a copy of the weights in
# fewer bits, which agrees with the model where neither is sure of anything.
THINNED = Prior(0.8, 0.4, tuple(0.25 / r for r in range(1, RANKS)), (1.5, 20.0))
WHOLE = Prior(3.7, 0.3, tuple(0.75 * 0.2 ** (r - 1) for r in range(1, RANKS)), (2.0, 20.0))


@dataclass(slots=True)
class Calibration:
    """Counts of outcomes: [bucket of confidence, rank of the right token, the last one for none of them]."""

    counts: np.ndarray = field(default_factory=lambda: np.zeros((BUCKETS, RANKS + 1)))
    prior: Prior = THINNED

    def add(self, outcomes: Iterable[tuple[float, int]]) -> None:
        """Outcomes (confidence, rank) of nodes that were drafted from; rank -1: none of the candidates was right, which
        is what ranks behind the table's count as."""
        for confidence, rank in outcomes:
            b = int(np.searchsorted(EDGES, confidence))
            if self.counts[b].sum() >= _MEMORY:
                self.counts[b] *= 1 - 1 / _MEMORY
            self.counts[b, min(rank, RANKS)] += 1

    def to_dict(self) -> dict[str, Any]:
        return {"counts": self.counts.round(2).tolist()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Calibration:
        """ValueError where it does not hold what to_dict() wrote."""
        counts = np.array(values["counts"], float)
        if counts.shape != (BUCKETS, RANKS + 1):
            raise ValueError(f"calibration has the shape {counts.shape}")
        if not (np.isfinite(counts).all() and counts.min() >= 0):
            raise ValueError("calibration has counts that are no counts")
        return cls(counts)

    def merge(self, other: Calibration) -> None:
        self.counts = self.counts + other.counts

    @property
    def matchness(self) -> float:
        """Share of best candidates that were right."""
        return float(self.counts[:, 0].sum() / max(self.counts.sum(), 1e-9))

    @property
    def outcomes(self) -> float:
        return float(self.counts.sum())

    def tables(self) -> Tables:
        """(weight [buckets], hold [buckets], runner_up [buckets, ranks - 1]): how often a confidence occurs, and the
        probabilities that the best and the other candidates are right under it."""
        seen = self.counts.sum(1)
        return (seen + 0.5) / (seen.sum() + 0.5 * BUCKETS), *odds(self.counts, _SURENESS, self.prior)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What drafting is worth under a calibration, if every round drafts as long as it pays."""

    rate: float  # tokens per plain step
    reach: float  # a draft step pays behind nodes that are accepted with at least this probability; above 1: never


# Probabilities that all so far was accepted. What drafting on brings is nearly linear in them, where it pays.
_GRID = np.arange(1, 49) / 48
STEPS = 25  # that a forecast looks ahead
STAGE = 5  # of them whose rows have one price

Tables = tuple[np.ndarray, np.ndarray, np.ndarray]


def forecast(tables: Tables, draft_cost: float, row_cost: float | np.ndarray, pace: float = 1.0) -> Forecast:
    """The best rate of a chain with siblings, and its rule, for a draft step and a verified row priced in plain steps:
    one price, or [stages] prices, each for the rows of STAGE steps, the last one for all behind.

    Optimal stopping: with f_i(p) the tokens beyond their price at `rate` that drafting on still brings behind step i if
    all so far is accepted with probability p, f_i(p) = max(0, gain_i(p) - rate * draft_cost + mean over confidences of
    f_i+1(p * hold)), and the best rate is the one at which a round earns nothing: 1 + f_0(1) = rate (algorithms.md,
    section 0). Where tokens come at a higher pace by other means, time is worth that: the rule is the one at this rate.
    """
    weight, hold, _ = tables
    onward = _interpolation(weight, hold)
    prices = np.atleast_1d(np.asarray(row_cost, float))
    stages = [min(step // STAGE, len(prices) - 1) for step in range(STEPS)]
    candidates = _Candidates(tables)
    rate = pace
    for _ in range(6):  # Newton's method: what rounds earn falls with the rate, by the price of a round
        gained, rows = candidates.taken(rate * prices)
        cost = draft_cost + prices[:, None] * rows  # [stages, grid]
        gain = gained - rate * cost
        value = price = np.zeros(len(_GRID))
        onwards = []  # the last step first
        for stage in reversed(stages):
            onwards.append(gain[stage] + onward @ value)
            value = np.maximum(0.0, onwards[-1])
            price = np.where(onwards[-1] > 0, cost[stage] + onward @ price, 0.0)
        step = (1.0 + value[-1] - rate) / (1.0 + price[-1])
        if rate + step <= pace:
            break
        rate += float(step)
        if step < 1e-3:
            break
    return Forecast(rate, _usual_stop(onwards[::-1], float(weight @ hold)))


class _Candidates:
    """What a step proposes: the best token and its runners-up under all confidences, in the order of their chances."""

    def __init__(self, tables: Tables) -> None:
        weight, hold, runner_up = tables
        chances = np.concatenate([hold[:, None], runner_up], 1)  # [buckets, ranks]
        weights = np.broadcast_to(weight[:, None], chances.shape).ravel()
        order = np.argsort(-chances.ravel())
        self._falling = -chances.ravel()[order]
        self._chance = np.append(0.0, np.cumsum((weights * chances.ravel())[order]))
        self._count = np.append(0.0, np.cumsum(weights[order]))

    def taken(self, least: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """([prices, grid] tokens, [prices, grid] rows) of a step, whose candidates are taken if worth more."""
        many = np.searchsorted(self._falling, -least[:, None] / _GRID)
        return _GRID * self._chance[many], self._count[many]


def _usual_stop(onwards: list[np.ndarray], usual: float) -> float:
    """Behind which probability a step still pays. Rows get dearer from step to step, so this is where drafts of the
    usual acceptance end; none of their steps before that one is to be left out."""
    likely = before = 1.0
    for values in onwards:
        reach = _first_root(values) if (values > 0).any() else 1.5
        if likely < reach:
            return min(reach, before * usual**0.5) if likely < 1 else reach
        before, likely = likely, likely * usual
    return min(reach, before)


def _first_root(values: np.ndarray) -> float:
    """Where a function on the grid becomes positive."""
    i = int((values > 0).argmax())
    below = values[i - 1] if i else min(0.0, 2 * values[0] - values[1])
    return float(_GRID[i] - (_GRID[1] - _GRID[0]) * values[i] / (values[i] - below))


def _interpolation(weight: np.ndarray, hold: np.ndarray) -> np.ndarray:
    """[grid, grid]: the mean over confidences of a function on the grid, taken at p * hold; below the grid it is 0."""
    at = _GRID[:, None] * hold * len(_GRID) - 1  # [grid, buckets]
    low = np.floor(at).astype(int)
    part = at - low
    matrix = np.zeros((len(_GRID), len(_GRID)))
    rows = np.broadcast_to(np.arange(len(_GRID))[:, None], at.shape)
    for index, share in ((low, 1 - part), (low + 1, part)):
        inside = (index >= 0) & (index < len(_GRID))
        np.add.at(matrix, (rows[inside], index[inside]), (np.broadcast_to(weight, at.shape) * share)[inside])
    return matrix
