"""What a draft step of any skip set costs: head, attention and MLP sublayers, priced by the clock of those played."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .skip import SkipSet

_TRUST = 0.05  # error of the prior, in plain steps for all sublayers of a kind; of a measurement: _NOISE
_NOISE = 0.02
_KEEP = 0.98  # weight that earlier measurements keep


class SublayerPrices:
    """Prices in plain steps: one head, L attention and L MLP sublayers make 1."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.n_layers = int(config["num_layers"])
        d = config["hidden_size"]
        heads = config["num_heads"] + config["num_kv_heads"]
        weights = np.array(  # read by a plain step: its time, where memory is the limit
            [
                d * config["vocab_size"],
                2 * self.n_layers * d * config["head_dim"] * heads,
                3 * self.n_layers * d * config["ffn"],
            ],
            float,
        )
        self._prior = weights / weights.sum()
        self._matrix = np.eye(3) / _TRUST**2  # of the least squares behind the estimate, the prior counted in
        self._vector = self._prior / _TRUST**2
        self._add(np.ones(3), 1.0, 1.0)

    def observe(self, skip: SkipSet, price: float) -> None:
        """A draft step of `skip` took `price` plain steps."""
        fresh = 1 - _KEEP
        prior = np.eye(3) / _TRUST**2
        self._matrix = _KEEP * self._matrix + fresh * prior
        self._vector = _KEEP * self._vector + fresh * prior @ self._prior
        self._add(np.ones(3), 1.0, fresh)
        self._add(self._shares(skip), price, 1.0)

    def price(self, skip: SkipSet) -> float:
        """Of a draft step."""
        estimate = np.maximum(np.linalg.solve(self._matrix, self._vector), 0.1 * self._prior)
        return float(estimate @ self._shares(skip))

    def _add(self, shares: np.ndarray, price: float, weight: float) -> None:
        self._matrix = self._matrix + weight * np.outer(shares, shares) / _NOISE**2
        self._vector = self._vector + weight * shares * price / _NOISE**2

    def _shares(self, skip: SkipSet) -> np.ndarray:
        """[head, attention, MLP]: what is left of each."""
        end = self.n_layers if skip.exit_layer is None else skip.exit_layer
        attention = end - sum(layer < end for layer in skip.attn)
        mlp = end - sum(layer < end for layer in skip.mlp)
        return np.array([1.0, attention / self.n_layers, mlp / self.n_layers])
