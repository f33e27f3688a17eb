"""Sources of tree nodes that cost no draft step: which there are, how often each is right, and what tokens cost while
they are asked. Pure policy: guesses come from csrc/drafters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .cost import Round
from .odds import Prior, odds

# In the order of csrc/drafters/registry.h.
NAMES = ("target", "plan", "suffix", "recycle", "lookup", "lookahead", "parallel", "template")
BUCKETS, RANKS = 16, 8
_MEMORY = 120  # outcomes that a bucket remembers
_CARRIED = 4.0  # of these, into the next text
_TIGHT = (0.15, 60.0)  # texts differ: their first tokens tell
_PACE = 0.94  # weight that the rounds before keep in the rate
_FASTEST = 12.0


@dataclass(frozen=True, slots=True)
class Drafter:
    """What proposes tokens, as callers name it."""

    plan: bool  # a draft plan does
    sources: tuple[str, ...]
    by_time: bool = True  # else as its paper has it: all that it guesses, whatever it costs


DRAFTERS = {
    "auto": Drafter(True, ("suffix", "recycle")),
    "plan": Drafter(True, ()),
    "suffix": Drafter(False, ("suffix",)),
    "recycle": Drafter(False, ("recycle",)),
    "lookup": Drafter(False, ("lookup",), by_time=False),
    "lookahead": Drafter(False, ("lookahead",), by_time=False),
    "parallel": Drafter(False, ("parallel",), by_time=False),
    "template": Drafter(False, ("template",), by_time=False),
}


_SURENESS = np.arange(BUCKETS, dtype=float)
# Suffixes by their length, recycled tokens by how sure the model was: in prose seldom right, in loops nearly always.
_PRIORS = {
    "suffix": Prior(-2.2, 0.5, tuple(0.05 * 0.4 ** (r - 1) for r in range(1, RANKS)), _TIGHT),
    "recycle": Prior(-1.2, 0.15, tuple(0.08 * 0.6 ** (r - 1) for r in range(1, RANKS)), _TIGHT),
}
_ONES = [[1.0] * RANKS] * BUCKETS

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
            prior = _PRIORS.get(NAMES[source])
            if prior is None:
                found.append((source, _ONES))
            else:
                hold, runner_up = odds(counts, _SURENESS, prior)
                found.append((source, np.concatenate([hold[:, None], runner_up], 1).tolist()))
        return tuple(found)
