"""SWIFT's candidates (arXiv 2410.06916): random sets of sublayers, neighbours of the set that drafts, and what Bayesian
optimisation suggests."""

from __future__ import annotations

import random
from typing import Protocol

from ..draft.draft_spec import DraftSpec
from ..options.swift_settings import SwiftSettings
from . import tuned
from .base import Here, Proposal, Scorer
from .sublayers import skip_set, sublayers


class Suggestions(Protocol):
    """Points in [0, 1]^n that promise a high score (papers/bayes.py)."""

    def tell(self, point: list[float], score: float) -> None: ...

    def ask(self) -> None: ...

    def answer(self) -> list[float] | None: ...

    def close(self) -> None: ...


def local_move(skip: DraftSpec, n_layers: int, rng: random.Random) -> DraftSpec:
    """One to three sublayers more, fewer, or others; those at the exit most often."""
    skipped = set(sublayers(skip, n_layers))
    for _ in range(rng.choice((1, 1, 2, 3))):
        kept = [s for s in range(2 * n_layers) if s not in skipped]
        move = rng.randrange(3)
        if move == 0 and len(kept) > 1:
            skipped.add(rng.choice((kept[-1], rng.choice(kept))))
        elif move == 1 and skipped:
            cut = [s for s in sorted(skipped) if s > max(kept, default=0)]
            skipped.remove(rng.choice((*cut[:1], rng.choice(sorted(skipped)))))
        elif skipped and len(kept) > 1:
            skipped.remove(rng.choice(sorted(skipped)))
            skipped.add(rng.choice(kept))
    return skip_set(skipped, n_layers)


def random_set(count: int, n_layers: int, rng: random.Random) -> DraftSpec:
    """`count` sublayers at random, none of the first and the last layer (SWIFT section 4.1)."""
    inner = range(2, 2 * n_layers - 2)
    return skip_set(rng.sample(inner, min(count, len(inner))), n_layers)


class Moves:
    """Sets of any size: mostly neighbours of the set that drafts."""

    turns = tuned.MOVES

    def __init__(self, n_layers: int, seed: int = 0) -> None:
        self.n_layers, self._rng, self._made = n_layers, random.Random(seed), 0

    def cost(self, here: Here) -> float | None:
        return 0.0

    def propose(self, score: Scorer, here: Here) -> list[Proposal]:
        self._made += 1
        if self._made % tuned.MOVES:
            return [("move", local_move(here.skip, self.n_layers, self._rng), None)]
        count = self._rng.randint(1, max(1, 2 * self.n_layers - 4))
        return [("random", random_set(count, self.n_layers, self._rng), None)]

    def reopen(self) -> None:
        """It is ready for any text."""

    def learn(self, skip: DraftSpec, matchness: float, kept: bool) -> None:
        """Nothing: neighbours are those of whatever drafts."""


class Sets:
    """Sets of one size, none with the first or the last layer: random ones and neighbours by turns, and suggestions
    every `bayes_interval` steps. The paper's numbers end the search."""

    turns = 1

    def __init__(
        self, n_layers: int, settings: SwiftSettings, parameters: float = 0.0, suggestions: Suggestions | None = None
    ) -> None:
        """suggestions: over the sublayers from the third to the last but two."""
        self.n_layers, self.settings = n_layers, settings
        self.count = settings.skipped(n_layers, parameters)
        self.suggestions = suggestions if settings.bayes and self.count else None
        self._inner = range(2, 2 * n_layers - 2)  # sublayers that may be skipped
        self._rng = random.Random(settings.seed)
        self.steps = self._without_gain = 0
        self.stopped: str | None = None if self.count else "nothing to skip"  # why the search ended

    def next(self) -> tuple[str, DraftSpec]:
        """(where it comes from, the set) of the paper's next step. A suggestion that is not there in its turn is scored
        when it is."""
        self.steps += 1
        point = None
        if self.suggestions:
            if self.steps % self.settings.bayes_interval == 0:
                self.suggestions.ask()
            point = self.suggestions.answer()
        if point is not None:
            largest = sorted(range(len(point)), key=lambda i: -point[i])[: self.count]
            return "bayes", skip_set((self._inner[i] for i in largest), self.n_layers)
        return "random", skip_set(self._rng.sample(self._inner, self.count), self.n_layers)

    def swapped(self, skip: DraftSpec) -> DraftSpec:
        """One to three sublayers of the set for others; of the asked count, whatever the set had."""
        skipped = [s for s in self._inner if s in sublayers(skip, self.n_layers)]
        self._rng.shuffle(skipped)
        kept = [s for s in self._inner if s not in skipped]
        out = min(self._rng.choice((1, 1, 2, 3)), len(skipped), len(kept))
        stay = skipped[: min(len(skipped) - out, self.count)]
        others = self._rng.sample(kept, min(self.count - len(stay), len(kept)))
        return skip_set([*stay, *others], self.n_layers)

    def cost(self, here: Here) -> float | None:
        """None also while the set that drafts matches as much as the paper asks for."""
        self.check(0.0)
        s, live = self.settings, here.live
        enough = live.outcomes >= 4 * s.window and live.matchness > s.max_score
        return None if self.stopped or enough else 0.0

    def propose(self, score: Scorer, here: Here) -> list[Proposal]:
        kind, skip = self.next()
        if kind == "random" and self.steps % 2:
            kind, skip = "swap", self.swapped(here.skip)
        return [(kind, skip, None)]

    def reopen(self) -> None:
        """Another text begins the search again."""
        if self.stopped and self.count:
            self.stopped, self.steps, self._without_gain = None, 0, 0

    def learn(self, skip: DraftSpec, matchness: float, kept: bool) -> None:
        """The set that was scored; the authors' code registers the point that it was rounded from."""
        if self.suggestions:
            skipped = sublayers(skip, self.n_layers)
            self.suggestions.tell([float(i in skipped) for i in self._inner], matchness)
        self._without_gain = 0 if kept else self._without_gain + 1

    def check(self, best: float) -> None:
        """Ends the search where the paper does. best: the matchness of the set that drafts."""
        s = self.settings
        if best > s.max_score:
            self._stop(f"matchness {best:.3f}")
        elif self._without_gain > s.tolerance:
            self._stop(f"{self._without_gain} steps without gain")
        elif self.steps >= s.max_steps:
            self._stop(f"{self.steps} steps")

    def _stop(self, why: str) -> None:
        self.stopped = why
        if self.suggestions:
            self.suggestions.close()
