"""Sublayers by number; and the cost of a draft step with any skip set: head, attention and MLP sublayers, priced by the
clock of those played."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..draft.draft_spec import DraftSpec
from . import tuned


def sublayers(skip: DraftSpec, n_layers: int) -> frozenset[int]:
    """Skipped sublayers by number: attention of layer i is 2 i, its MLP 2 i + 1."""
    end = n_layers if skip.exit_layer is None else skip.exit_layer
    return frozenset({2 * i for i in skip.attn} | {2 * i + 1 for i in skip.mlp} | set(range(2 * end, 2 * n_layers)))


def skip_set(skipped: Iterable[int], n_layers: int) -> DraftSpec:
    """The set that leaves these sublayers out; whole layers left out at the end are an early exit."""
    left_out = set(skipped)
    end = n_layers
    while end > 0 and {2 * end - 2, 2 * end - 1} <= left_out:
        end -= 1
    inside = sorted(s for s in left_out if s < 2 * end)
    return DraftSpec(
        [s // 2 for s in inside if s % 2 == 0],
        [s // 2 for s in inside if s % 2],
        None if end == n_layers else end,
    )


class SublayerPrices:
    """Prices in plain steps: one head, L attention and L MLP sublayers make 1; those of copies are prices of their own.

    copies: name of each copy of the weights -> bytes that are read of it, as a share of the model's own."""

    def __init__(self, config: Mapping[str, Any], copies: Mapping[str, float] | None = None) -> None:
        self.n_layers = int(config["num_layers"])
        self._forms = {name: 3 * i for i, name in enumerate(["own", *(copies or {})])}
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
        self.parameters = float(weights.sum())  # about: embeddings that are no head, norms and biases left out
        self._prior = np.concatenate([size * weights / weights.sum() for size in (1.0, *(copies or {}).values())])
        self._plain = np.zeros(len(self._prior))
        self._plain[:3] = 1.0
        self._matrix = np.eye(len(self._prior)) / tuned.TRUST**2  # least squares after the estimate, prior included
        self._vector = self._prior / tuned.TRUST**2
        self._add(self._plain, 1.0, 1.0)

    def observe(self, skip: DraftSpec, price: float) -> None:
        """A draft step of `skip` took `price` plain steps."""
        fresh = 1 - tuned.MEMORY
        prior = np.eye(len(self._prior)) / tuned.TRUST**2
        self._matrix = tuned.MEMORY * self._matrix + fresh * prior
        self._vector = tuned.MEMORY * self._vector + fresh * prior @ self._prior
        self._add(self._plain, 1.0, fresh)
        self._add(self._shares(skip), price, 1.0)

    def price(self, skip: DraftSpec) -> float:
        """Cost of a draft step with this set."""
        estimate = np.maximum(np.linalg.solve(self._matrix, self._vector), 0.1 * self._prior)
        return float(estimate @ self._shares(skip))

    def _add(self, shares: np.ndarray, price: float, weight: float) -> None:
        self._matrix = self._matrix + weight * np.outer(shares, shares) / tuned.NOISE**2
        self._vector = self._vector + weight * shares * price / tuned.NOISE**2

    def _shares(self, skip: DraftSpec) -> np.ndarray:
        """[form: head, attention, MLP]: what is read of each."""
        n = self.n_layers
        end = n if skip.exit_layer is None else skip.exit_layer
        shares = np.zeros(len(self._prior))
        if isinstance(skip.weights, str):
            at = self._forms[skip.weights]
            shares[at + 1] = (end - sum(layer < end for layer in skip.attn)) / n
            shares[at + 2] = (end - sum(layer < end for layer in skip.mlp)) / n
        else:
            for layer, form in enumerate(skip.weights[:end]):
                shares[self._forms[form] + 1] += (layer not in skip.attn) / n
                shares[self._forms[form] + 2] += (layer not in skip.mlp) / n
            at = self._forms[skip.weights[-1]]
        shares[at] = 1.0
        return shares
