"""SWIFT as its paper has it (arXiv 2410.06916, section 4.1): a step between two rounds scores a set of a fixed ratio,
random or suggested by Bayesian optimisation, and keeps the one that matches most tokens."""

from __future__ import annotations

from collections.abc import Sequence

from ..draft.draft_spec import DraftSpec
from ..search.base import Candidate, DraftConfig, Measured, Optimizer, Progress, Scorer
from ..search.swift import Sets


class Swift(Optimizer):
    """The paper's schedule: a candidate every `opt_interval` rounds while drafting goes on, until the search ends.

    As in the paper's code a text's first `window` generated tokens are what all of its candidates are scored on; the
    best score is kept from text to text, and nothing is known of the uniform set that drafts at first, so that any
    other replaces it. Its time is told to the loop, which rests where drafting does not pay for it.
    """

    def __init__(self, measured: Measured, sets: Sets) -> None:
        super().__init__(DraftConfig(DraftSpec.uniform(sets.n_layers), "uniform"), measured)
        self.sets, self.settings = sets, sets.settings
        self._rounds, self._best = 0, 0.0
        self._total, self._generated = 0, 1

    def start(self, prompt: Sequence[int]) -> None:
        self._generated, self._rounds = 1, 0

    def step(self, score: Scorer, progress: Progress) -> bool:
        s = self.settings
        self._total += progress.generated - self._generated
        self._generated = progress.generated
        self.unpaid = 0.0
        self.sets.check(self._best)
        if self.sets.stopped or progress.resting or progress.generated <= s.window:
            return False
        self._rounds += 1
        if self._rounds % (s.opt_interval or 1) == 0:
            self._try(score, progress.prompt + s.window)
        return False

    def _try(self, score: Scorer, end: int) -> None:
        began = self.measured.now
        kind, skip = self.sets.next()
        found = score(skip, self.settings.window, end)
        self.unpaid = max(self.measured.now - began, found.seconds)
        better = found.matchness > self._best
        if better:
            self._best, self.current = found.matchness, DraftConfig(skip, kind)
        self.sets.learn(skip, found.matchness, better)
        self.trace.append(Candidate(self._total, kind, skip, found.matchness, None, better, found.seconds))
        self.sets.check(self._best)
