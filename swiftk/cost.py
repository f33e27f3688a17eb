"""What things cost here and now, from the clock. Pure: it is told seconds."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from .calibration import STAGE, STEPS

_DECAY = 0.2  # weight of the newest sample


@dataclass(slots=True)
class Mean:
    """Decayed mean that one outlier (a busy machine) moves little."""

    value: float = 0.0
    count: int = 0

    def add(self, x: float) -> None:
        if self.count >= 3:
            x = min(x, 2 * self.value)
        self.count += 1
        if self.count == 2:
            self.value = min(self.value, x)  # the first sample found cold caches
        else:
            self.value += max(_DECAY, 1 / self.count) * (x - self.value)


_ROW = 0.015  # share of a plain step per further row, before any was measured,
_FEW, _BEYOND = 8, 0.09  # up to so many; rows beyond all that were measured may be bound by arithmetic
_NEAR = 6  # rounds behind a plain one that are compared with it: a machine's speed drifts
_SAMPLES = 9  # of a row count
_KNOTS = np.array([2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 32, 48, 64])  # row counts that are told apart


def _nearest(rows: int) -> int:
    return int(np.abs(_KNOTS - rows).argmin())


class RowPrices:
    """What verifying n rows costs beyond one, in plain steps: v(n) - 1, never falling with n. Medians of samples that
    were taken beside a plain step: neither a busy machine nor one that changes its speed moves them far. Where there
    are none, of others, until the next plain step: what once stuttered is to be tried again."""

    def __init__(self) -> None:
        self._beside: list[deque[float]] = [deque(maxlen=_SAMPLES) for _ in _KNOTS]
        self._others: list[deque[float]] = [deque(maxlen=_SAMPLES) for _ in _KNOTS]
        self._plain, self._near = 0.0, 0

    def plain(self, seconds: float) -> None:
        """A plain step was measured."""
        for samples in self._others:
            samples.clear()
        self._plain, self._near = seconds, _NEAR

    def add(self, rows: int, seconds: float) -> None:
        """Rows were verified."""
        self._near -= 1
        if rows > 1 and self._plain > 0:
            samples = self._beside if self._near >= 0 else self._others
            samples[_nearest(rows)].append(seconds / self._plain - 1)

    def known(self, rows: int) -> float | None:
        """Of about so many rows, where they were measured."""
        at = _nearest(rows)
        samples = self._beside[at] or self._others[at]
        return median(samples) if samples else None

    def table(self) -> np.ndarray:
        """[64]: of 1..64 rows. Around what was measured a row costs what it is taken to cost before."""
        known = [beside or others for beside, others in zip(self._beside, self._others, strict=True)]
        knots = [knot for knot, samples in zip(_KNOTS, known, strict=True) if samples]
        price = [median(samples) for samples in known if samples]
        rows = np.arange(1, 65)
        rising = np.maximum.accumulate([0.0, *price])
        most = max([1, *knots])
        near, far = np.clip(rows, most, max(most, _FEW)) - most, np.maximum(0, rows - max(most, _FEW))
        slope = rising[-1] / (most - 1) if knots else _ROW
        beyond = max(slope, _ROW) * near + max(slope, _BEYOND) * far
        return np.maximum(np.interp(rows, [1, *knots], rising) + beyond, 1e-4 * (rows - 1))

    @property
    def marginal(self) -> float:
        """Of one more row in a tree of eight."""
        return float(self.table()[7]) / 7

    @property
    def stages(self) -> np.ndarray:
        """Of one more row, as forecast() takes it."""
        return stages(self.table())


def stages(rows: np.ndarray) -> np.ndarray:
    """[stages]: what a row costs in a chain that has grown by so many steps, from the prices of whole trees."""
    return np.diff(rows[: STEPS + 1 : STAGE]) / STAGE


@dataclass(frozen=True, slots=True)
class Prices:
    """What a gate goes by, in plain steps."""

    draft: float  # a draft step
    rows: np.ndarray  # [64] a tree of 1..64 nodes, beyond its root
    seconds: float = 0.0  # of a plain step


@dataclass(frozen=True, slots=True)
class Round:
    """One round as the clock saw it."""

    seconds: float
    draft_seconds: float = 0.0
    draft_steps: int = 0
    verify_seconds: float = 0.0
    verify_rows: int = 1
    tokens: int = 1
    accepted: int = 0  # draft tokens among them
    guessed: int = 0  # of these, by sources that cost no step

    @property
    def speculative(self) -> bool:
        return self.draft_steps > 0 or self.verify_rows > 1


def equation_6(mean_length: float, alpha: float, c: float) -> float:
    """SWIFT's expected speed-up: mean_length tokens a round (bonus included), acceptance alpha, draft step c."""
    below = (mean_length - 1) * c + alpha
    return mean_length * alpha / below if below > 0 else 0.0


def tokens_per_round(alpha: float, length: int) -> float:
    """Expected tokens of a round that drafts `length` tokens, each accepted with probability alpha."""
    return float(length + 1) if alpha >= 1 else (1 - alpha ** (length + 1)) / (1 - alpha)


def break_even(c: float, length: int, verify: float = 1.0) -> float | None:
    """Acceptance at which such rounds run as fast as plain decoding; None if even 1 does not."""
    cost = c * length + verify
    if cost > tokens_per_round(1.0, length):
        return None
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if tokens_per_round(middle, length) < cost else (low, middle)
    return high


@dataclass(slots=True)
class CostModel:
    """Seconds of a plain step and, for one draft plan, of a draft step and of verification by rows."""

    prior: float = 0.6  # draft step in plain steps, before it was measured
    plain: Mean = field(default_factory=Mean)  # shared by every plan of a model
    draft: Mean = field(default_factory=Mean)
    verify: Mean = field(default_factory=Mean)
    rows: RowPrices = field(default_factory=RowPrices)  # shared like the plain step
    drafted: Mean = field(default_factory=Mean)  # per round
    accepted: Mean = field(default_factory=Mean)

    def add(self, r: Round) -> None:
        if not r.speculative:
            self.plain.add(r.seconds)
            self.rows.plain(r.verify_seconds)
            return
        self.verify.add(r.verify_seconds)
        self.rows.add(r.verify_rows, r.verify_seconds)
        if r.draft_steps:
            self.draft.add(r.draft_seconds / r.draft_steps)
            self.drafted.add(r.draft_steps)
            self.accepted.add(r.accepted - r.guessed)

    @property
    def draft_cost(self) -> float:
        """c: a draft step in plain steps."""
        return self.draft.value / self.plain.value if self.draft.count and self.plain.value > 0 else self.prior

    def prices(self) -> Prices:
        return Prices(self.draft_cost, self.rows.table(), self.plain.value)

    @property
    def acceptance(self) -> float:
        return self.accepted.value / self.drafted.value if self.drafted.value > 0 else 0.0

    def usual(self, r: Round) -> float:
        """Seconds that such a round takes by what was measured so far."""
        rows = self.rows.known(r.verify_rows)
        verify = self.verify.value if rows is None else (1 + rows) * self.plain.value
        return r.draft_steps * self.draft.value + verify

    def explain(self) -> str:
        """Why drafting does not pay, in numbers."""
        length = max(1, round(self.drafted.value))
        verify = self.verify.value / self.plain.value if self.plain.value > 0 else 1.0
        even = break_even(self.draft_cost, length, verify)
        want = "out of reach" if even is None else f"{even:.2f}"
        return (
            f"draft step costs {self.draft_cost:.2f} of a target step; acceptance {self.acceptance:.2f}; "
            f"break-even {want}"
        )
