"""How often ranked guesses are right, by how sure whoever guesses is: counts, completed where there are few of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_WEIGHT = 20.0  # outcomes that the line counts as, in a bucket
_MISSES = 12.0  # misses that a prior's runners-up count as
_STEPS = 4  # of Newton's method


def logit(p: np.ndarray) -> np.ndarray:
    return np.log(p / (1 - p))


@dataclass(frozen=True, slots=True)
class Prior:
    """What is believed before anything was seen: the best guess is right with the probability whose logit is level +
    slope * sureness, and the others take these shares of its misses."""

    level: float
    slope: float
    runners_up: tuple[float, ...]  # [ranks - 1]
    tight: tuple[float, float]  # inverse variances of level and slope


def odds(counts: np.ndarray, sureness: np.ndarray, prior: Prior) -> tuple[np.ndarray, np.ndarray]:
    """(hold [buckets], runner_up [buckets, ranks - 1]): the probabilities that the best guess and the others are right,
    from counts [bucket, rank of the right one, the last for none]. What was seen seldom is completed by the whole
    table: the best by a line through logits (Platt's scaling), the others as behind all misses."""
    seen, held = counts.sum(1), counts[:, 0]
    others = counts[:, 1:-1]
    hold = (held + _WEIGHT * _line(seen, held, sureness, prior)) / (seen + _WEIGHT)
    missed = (others.sum(0) + _MISSES * np.array(prior.runners_up)) / (seen.sum() - held.sum() + _MISSES)
    return hold, (others + _WEIGHT * (1 - hold[:, None]) * missed) / (seen + _WEIGHT)[:, None]


def _line(seen: np.ndarray, held: np.ndarray, sureness: np.ndarray, prior: Prior) -> np.ndarray:
    """[buckets]: the most likely line, given the prior."""
    basis = np.stack([np.ones(len(sureness)), sureness])
    first, tight = np.array([prior.level, prior.slope]), np.array(prior.tight)
    line = first
    for _ in range(_STEPS if seen.any() else 0):
        hold = 1 / (1 + np.exp(-(line @ basis)))
        uphill = basis @ (held - seen * hold) - tight * (line - first)
        bend = (basis * (seen * hold * (1 - hold))) @ basis.T + np.diag(tight)
        line = line + np.clip(np.linalg.solve(bend, uphill), -1.5, 1.5)
    return np.clip(1 / (1 + np.exp(-(line @ basis))), 0.01, 0.99)
