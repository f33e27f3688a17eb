"""What was good for texts like this one: prompts are compared by their tokens, the nearest remembered one's set starts.

KNN-SSD (arXiv 2505.16162) compares prompts by hidden states; counts of hashed tokens show kinds of text apart, too, and
cost no pass of the model. Prompts are remembered one by one: means of several come to look like each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..draft.draft_spec import DraftSpec
from . import tuned

_BITS = 11
_SIZE = 1 << _BITS  # hashed token counts
_MOST = 32  # prompts that are remembered
_SCALE = 255  # saved features are integers up to this


def features(tokens: Sequence[int]) -> np.ndarray:
    """[_SIZE] float32 of length 1, or 0 of no tokens: damped counts, hashed."""
    ids = np.asarray(tokens[-1024:], np.uint64)
    hashed = (ids * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - _BITS)
    return _of_length_1(np.sqrt(np.bincount(hashed.astype(np.int64), minlength=_SIZE)))


def _of_length_1(values: np.ndarray) -> np.ndarray:
    return (values / max(float(np.linalg.norm(values)), 1e-9)).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Domain:
    """A prompt, and what drafted the text after it in the end."""

    features: np.ndarray  # [_SIZE]
    skip: DraftSpec
    rate: float  # tokens per plain step


@dataclass(slots=True)
class Domains:
    """Prompts met so far, the latest last."""

    known: list[Domain] = field(default_factory=list)
    _here: np.ndarray | None = None

    @property
    def best(self) -> DraftSpec | None:
        """The set of the latest text."""
        return self.known[-1].skip if self.known else None

    def enter(self, prompt: Sequence[int]) -> DraftSpec | None:
        """The set remembered for prompts like this; None where there was none. Among prompts that are about as
        near the latest counts, since sets get better."""
        self._here = features(prompt)
        alike = self._alike()
        nearest = max(alike, default=0.0)
        if nearest < tuned.ALIKE:
            return None
        return next(
            d.skip for d, cosine in zip(self.known[::-1], alike[::-1], strict=True) if cosine >= tuned.NEAR * nearest
        )

    def leave(self, skip: DraftSpec, rate: float) -> None:
        """The text ended, drafted by `skip`. A full memory forgets the prompt most like this one: others stay."""
        if self._here is None:
            return
        if len(self.known) >= _MOST:
            del self.known[int(np.argmax(self._alike()))]
        self.known.append(Domain(self._here, skip, rate))

    def to_list(self) -> list[dict[str, Any]]:
        """Features as [index, value] pairs: most are 0."""
        out = []
        for domain in self.known:
            values = (domain.features * _SCALE).round().astype(int)
            pairs = [[int(i), int(values[i])] for i in np.flatnonzero(values)]
            out.append({"features": pairs, "skip": domain.skip.to_dict(), "rate": round(domain.rate, 4)})
        return out

    def restore(self, values: Sequence[Mapping[str, Any]], n_layers: int, copies: Sequence[str] = ()) -> None:
        """What to_list() gave. ValueError, KeyError or TypeError where it is something else."""
        known = []
        for value in values:
            pairs = np.array(value["features"], np.int64).reshape(-1, 2)
            if len(pairs) and not (pairs.min() >= 0 and pairs[:, 0].max() < _SIZE and pairs[:, 1].max() <= _SCALE):
                raise ValueError(f"features of a prompt are outside of 0..{_SIZE - 1} and 0..{_SCALE}")
            features = np.zeros(_SIZE)
            features[pairs[:, 0]] = pairs[:, 1]
            skip = DraftSpec.from_dict(value["skip"]).check(n_layers, copies)
            known.append(Domain(_of_length_1(features), skip, float(value["rate"])))
        self.known = known[-_MOST:]

    def _alike(self) -> list[float]:
        """Cosine of each known prompt with this one."""
        return [float(domain.features @ self._here) for domain in self.known]
