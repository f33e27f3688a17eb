"""SWIFT as its paper has it (arXiv 2410.06916, section 4.1): a step between two rounds scores a set of a fixed ratio,
random or suggested by Bayesian optimisation, and keeps the one that matches most tokens."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ..draft.draft_spec import DraftSpec
from ..options.swift_settings import SwiftSettings
from ..search.base import Candidate, DraftConfig, Measured, Optimizer, Progress, Scorer
from ..search.proposals import skip_set, sublayers
from .bayes import Suggestions


class Sets:
    """Skip sets of one ratio, none with the first or the last layer: random ones, and in their turn suggestions."""

    def __init__(self, n_layers: int, count: int, settings: SwiftSettings) -> None:
        self.n_layers, self.count, self._settings = n_layers, count, settings
        self._inner = range(2, 2 * n_layers - 2)  # sublayers that may be skipped
        self._rng = random.Random(settings.seed)
        s = settings
        bayesian = s.bayes and count > 0
        self._suggestions = Suggestions(len(self._inner), s.seed, s.alpha, s.kappa, s.waits) if bayesian else None

    def next(self, step: int) -> tuple[str, DraftSpec]:
        """(where it comes from, the set) of a step of the search, the first one being 1. A suggestion that is not there
        in its turn is scored when it is."""
        suggestions, s = self._suggestions, self._settings
        point = None
        if suggestions:
            if step % s.bayes_interval == 0:
                suggestions.ask()
            point = suggestions.answer()
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

    def tell(self, skip: DraftSpec, matchness: float) -> None:
        """The set that was scored; the authors' code registers the point that it was rounded from."""
        if self._suggestions:
            skipped = sublayers(skip, self.n_layers)
            self._suggestions.tell([float(i in skipped) for i in self._inner], matchness)

    def close(self) -> None:
        if self._suggestions:
            self._suggestions.close()


class Swift(Optimizer):
    """The paper's schedule: a candidate every `opt_interval` rounds while drafting goes on, until the search ends.

    As in the paper's code a text's first `window` generated tokens are what all of its candidates are scored on; the
    best score is kept from text to text, and nothing is known of the uniform set that drafts at first, so that any
    other replaces it. Its time is told to the loop, which rests where drafting does not pay for it.
    """

    def __init__(self, n_layers: int, measured: Measured, settings: SwiftSettings, parameters: float = 0.0) -> None:
        super().__init__(DraftConfig(DraftSpec.uniform(n_layers), "uniform"), measured)
        self.settings = settings
        self._sets = Sets(n_layers, settings.skipped(n_layers, parameters), settings)
        self.steps = self._without_gain = self._rounds = 0
        self.stopped: str | None = None if self._sets.count else "nothing to skip"  # why the search ended
        self._best = 0.0
        self._total, self._generated = 0, 1

    def start(self, prompt: Sequence[int]) -> None:
        self._generated, self._rounds = 1, 0

    def step(self, score: Scorer, progress: Progress) -> bool:
        s = self.settings
        self._total += progress.generated - self._generated
        self._generated = progress.generated
        self.unpaid = 0.0
        if self.stopped is None and self.steps >= s.max_steps:
            self._stop(f"{self.steps} steps")
        if self.stopped is not None or progress.resting or progress.generated <= s.window:
            return False
        self._rounds += 1
        if self._rounds % (s.opt_interval or 1) == 0:
            self._try(score, progress.prompt + s.window)
        return False

    def _try(self, score: Scorer, end: int) -> None:
        began = self.measured.now
        self.steps += 1
        kind, skip = self._sets.next(self.steps)
        found = score(skip, self.settings.window, end)
        self.unpaid = max(self.measured.now - began, found.seconds)
        self._sets.tell(skip, found.matchness)
        better = found.matchness > self._best
        if better:
            self._best, self.current = found.matchness, DraftConfig(skip, kind)
        self._without_gain = 0 if better else self._without_gain + 1
        self.trace.append(Candidate(self._total, kind, skip, found.matchness, None, better, found.seconds))
        if self._best > self.settings.max_score:
            self._stop(f"matchness {self._best:.3f}")
        elif self._without_gain > self.settings.tolerance:
            self._stop(f"{self._without_gain} steps without gain")

    def _stop(self, why: str) -> None:
        self.stopped = why
        self._sets.close()
