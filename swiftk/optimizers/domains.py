"""What was good for texts like this one: prompts are compared by their tokens, the nearest remembered one's set starts.

KNN-SSD (arXiv 2505.16162) compares prompts by hidden states; counts of hashed tokens tell kinds of text apart, too, and
cost no pass of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..skip import SkipSet

_SIZE = 512  # hashed token counts
_ALIKE, _ALIKE_ALONE = 0.3, 0.2  # cosine with prompts of one kind: with the mean of several, and with one or two
_SEVERAL = 3
_MOST = 32
_SCALE = 255  # saved features are integers up to this


def features(tokens: Sequence[int]) -> np.ndarray:
    """[_SIZE] float32 of length 1: damped counts of tokens, hashed."""
    ids = np.asarray(tokens[-1024:], np.uint64)
    hashed = (ids * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(55)
    counts = np.sqrt(np.bincount(hashed.astype(np.int64), minlength=_SIZE)).astype(np.float32)
    return counts / max(float(np.linalg.norm(counts)), 1e-9)


@dataclass(frozen=True, slots=True)
class Domain:
    """A kind of prompt."""

    features: np.ndarray  # [_SIZE] sum over its prompts
    prompts: int
    skip: SkipSet
    rate: float  # tokens per plain step

    def likeness(self, features: np.ndarray) -> float:
        """Cosine; 0 where it is too small to mean anything."""
        cosine = float(self.features @ features) / max(float(np.linalg.norm(self.features)), 1e-9)
        return cosine if cosine >= (_ALIKE if self.prompts >= _SEVERAL else _ALIKE_ALONE) else 0.0


@dataclass(slots=True)
class Domains:
    """Kinds of prompts met so far, the latest last."""

    known: list[Domain] = field(default_factory=list)
    _here: np.ndarray | None = None

    @property
    def best(self) -> SkipSet | None:
        """Of the latest text."""
        return self.known[-1].skip if self.known else None

    def enter(self, prompt: Sequence[int]) -> SkipSet | None:
        """The set remembered for prompts like this; None where there was none."""
        self._here = features(prompt)
        near = self._nearest(self._here)
        return near.skip if near else None

    def leave(self, skip: SkipSet, rate: float) -> None:
        """The text ended, drafted by `skip`."""
        if self._here is None:
            return
        near = self._nearest(self._here)
        if near is None:
            near = Domain(self._here, 1, skip, rate)
        else:
            self.known = [domain for domain in self.known if domain is not near]
            near = Domain(near.features + self._here, near.prompts + 1, skip, rate)
        self.known = [*self.known, near][-_MOST:]

    def to_list(self) -> list[dict[str, Any]]:
        return [
            {
                "features": (domain.features * _SCALE / np.linalg.norm(domain.features)).round().astype(int).tolist(),
                "prompts": domain.prompts,
                "skip": domain.skip.to_dict(),
                "rate": round(domain.rate, 4),
            }
            for domain in self.known
        ]

    def restore(self, values: Sequence[Mapping[str, Any]], n_layers: int) -> None:
        """What to_list() gave. ValueError or KeyError where it is something else."""
        known = []
        for value in values:
            features, prompts = np.array(value["features"], np.float32), int(value["prompts"])
            if features.shape != (_SIZE,) or not np.isfinite(features).all() or prompts < 1:
                raise ValueError(f"a kind of prompt has {prompts} prompts and features of shape {features.shape}")
            skip = SkipSet.from_dict(value["skip"]).check(n_layers)
            known.append(Domain(features * (prompts / _SCALE), prompts, skip, float(value["rate"])))
        self.known = known[-_MOST:]

    def _nearest(self, here: np.ndarray) -> Domain | None:
        near = max(self.known, key=lambda domain: domain.likeness(here), default=None)
        return near if near is not None and near.likeness(here) > 0 else None
