"""LayerSkip's formulas: how often each layer is dropped and how much each exit's loss weighs, as functions of the step.

Layers l count from 0 to L-1, steps t from 0 to T-1; exit l is the head after layer l. No torch here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..errors import InvalidArgument


def _ramp(i: int, n: int) -> float:
    """exp(i ln 2 / (n - 1)) - 1: 0 at the first of n, 1 at the last, rising faster and faster."""
    return math.exp(i * math.log(2) / (n - 1)) - 1 if n > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """p_max and e_scale 0 give plain training."""

    layers: int  # L
    steps: int  # T
    p_max: float = 0.1
    e_scale: float = 0.2
    curriculum: str = "rotational"
    rotation: int = 8  # R
    schedule: str = "constant"  # S(t): constant for a trained model, exp from scratch

    def __post_init__(self) -> None:
        if self.layers < 2:
            raise InvalidArgument(f"[train] the model has {self.layers} layer, want at least 2 to exit early")

    def drop_rates(self, t: int) -> list[float]:
        """[L] p = S(t) D(l) p_max, the probability that a sample's residual passes layer l unchanged. No rescaling."""
        s = 1.0 if self.schedule == "constant" else _ramp(t, self.steps)
        return [s * _ramp(layer, self.layers) * self.p_max for layer in range(self.layers)]

    def raw_weights(self) -> list[float]:
        """[L] e(l): e_scale times the sum of 0..l; the last has L-1 and what the one before it has."""
        sums = [layer * (layer + 1) / 2 for layer in range(self.layers)]
        return [self.e_scale * sums[layer] for layer in range(self.layers - 1)] + [
            self.layers - 1 + self.e_scale * sums[-2]
        ]

    def enabled(self, t: int) -> list[bool]:
        """[L] C(t, l). The last exit, which is the model, is always on: rotation alone would train it every R steps."""
        last = self.layers - 1
        if self.curriculum == "gradual":
            # Layer l comes after (last - l) intervals of T / (2 L); in whole numbers, so that no step is off by one.
            return [2 * self.layers * t >= (last - layer) * self.steps for layer in range(self.layers)]
        if self.curriculum == "rotational":
            return [(layer - t) % self.rotation == 0 or layer == last for layer in range(self.layers)]
        return [True] * self.layers

    def exit_weights(self, t: int) -> list[float]:
        """[L] C(t, l) e(l), scaled to a sum of 1. A weight of 0 needs no logits."""
        raw = [e if on else 0.0 for e, on in zip(self.raw_weights(), self.enabled(t))]
        return [e / sum(raw) for e in raw]

    def kept(self, t: int, seed: int, accumulate: int, batch: int) -> np.ndarray:
        """bool [accumulate, L, batch]: which samples run which layers at step t. A function of its arguments alone."""
        draws = np.random.default_rng([seed, t, 1]).random((accumulate, self.layers, batch))
        return draws >= np.asarray(self.drop_rates(t))[None, :, None]


def learning_rate(t: int, steps: int, peak: float, warmup: int, end: float) -> float:
    """Linear up to the peak, then half a cosine down to ``end`` times the peak at the last step."""
    if t < warmup:
        return peak * (t + 1) / warmup
    through = (t - warmup) / max(1, steps - 1 - warmup)
    return peak * (end + (1 - end) * (1 + math.cos(math.pi * min(1.0, through))) / 2)
