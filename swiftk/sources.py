"""Sources of tree nodes that cost no draft step: which there are, how often each is right, and what tokens cost while
they are asked. Pure policy: guesses come from csrc/sources."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .cost import Round

NAMES = ("target", "plan", "suffix", "recycle", "lookup", "lookahead", "parallel")  # csrc/sources/source.h: SourceId
BUCKETS, RANKS = 16, 8
_MEMORY = 120  # outcomes that a bucket remembers
_CARRIED = 12.0  # of these, into the next text
_PRIOR = 3.0  # outcomes that the guess below counts as
_PACE = 0.94  # weight that the rounds before keep in the rate
_FASTEST = 12.0


@dataclass(frozen=True, slots=True)
class Drafter:
    """What proposes tokens, as callers name it."""

    plan: bool  # a draft plan does
    sources: tuple[str, ...]
    by_time: bool = True  # else as its paper has it, whatever it costs


DRAFTERS = {
    "auto": Drafter(True, ("suffix", "recycle")),
    "plan": Drafter(True, ()),
    "suffix": Drafter(False, ("suffix",)),
    "recycle": Drafter(False, ("recycle",)),
    "lookup": Drafter(False, ("lookup",), by_time=False),
    "lookahead": Drafter(False, ("lookahead",), by_time=False),
    "parallel": Drafter(False, ("parallel",), by_time=False),
}


def _priors() -> dict[str, np.ndarray]:
    """[bucket, rank] before anything was seen: suffixes by their length, recycled tokens by how sure the model was."""
    tail = 0.4 ** np.arange(RANKS)
    suffix = np.minimum(0.9, 0.15 + 0.08 * np.arange(BUCKETS))
    recycle = np.minimum(0.7, 0.08 + 0.05 * np.arange(BUCKETS))
    return {
        "suffix": np.outer(suffix, tail) * np.where(np.arange(RANKS) > 0, (1 - suffix)[:, None], 1.0),
        "recycle": np.outer(recycle, tail),
    }


_PRIORS = _priors()
_ONES = np.ones((BUCKETS, RANKS))

Table = tuple[int, list[list[float]]]  # as Session.draft takes it: number of the source, [bucket][rank]


class Sources:
    """The sources of a drafter: calibrated at every token of the text, whether or not what they guessed became a node;
    and tokens per plain step lately, which is what a row or a step must beat."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        self.counts = {NAMES.index(name): np.zeros((BUCKETS, RANKS + 1)) for name in drafter.sources}
        self._tokens = self._steps = 0.0

    def start(self) -> None:
        """Another text: what was seen so far counts for little."""
        for counts in self.counts.values():
            seen = counts.sum(1, keepdims=True)
            counts *= np.minimum(1.0, _CARRIED / np.maximum(seen, 1e-9))
        self._tokens = self._steps = 0.0

    def add(self, guessed: Iterable[tuple[int, int, int]]) -> None:
        """(source, bucket, place of the right token in its list, -1: not in it) at each token of verified text."""
        for source, bucket, rank in guessed:
            row = self.counts[source][bucket]
            if row.sum() >= _MEMORY:
                row *= 1 - 1 / _MEMORY
            row[rank] += 1

    def observe(self, r: Round, plain_seconds: float) -> None:
        if plain_seconds > 0:
            self._tokens = _PACE * self._tokens + r.tokens
            self._steps = _PACE * self._steps + r.seconds / plain_seconds

    @property
    def rate(self) -> float:
        """Tokens per plain step lately, plain rounds included; 1 where nothing was seen yet."""
        return float(np.clip((self._tokens + 2.0) / (self._steps + 2.0), 1.0, _FASTEST))

    def tables(self) -> tuple[Table, ...]:
        """Of each source, in the order of their say: the probability that a guess is right."""
        found = []
        for source, counts in self.counts.items():
            prior = _PRIORS.get(NAMES[source], _ONES)
            chance = (counts[:, :RANKS] + _PRIOR * prior) / (counts.sum(1, keepdims=True) + _PRIOR)
            found.append((source, (chance if self.drafter.by_time else _ONES).tolist()))
        return tuple(found)
