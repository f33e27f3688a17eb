"""Searches before inference: Self-SD's, by the clock, and SWIFT's over several texts at once, without one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from swiftk import LM, DraftSpec, _core
from swiftk.options.swift_settings import SwiftSettings
from swiftk.papers import self_sd
from swiftk.search.proposals import skip_set

from ..harness import Study
from ..lanes import GREEDY
from ..texts import Text

TOKENS = 32  # of a text, as in Self-SD's paper
WINDOW = 63  # tokens of a score at most


@dataclass(frozen=True, slots=True)
class Found:
    """The best set after so many steps, and the seconds they took."""

    steps: int
    seconds: float
    skip: DraftSpec


def searched(study: Study, training: Sequence[Text], steps: int, of: float = 0.5) -> list[Found]:
    """Self-SD's, in this share of the part's time: seconds of tokens generated under each candidate, proposed by
    Bayesian steps. The best set after each step."""
    candidates = self_sd.search(study.lm, [text.prompt for text in training], steps=steps, max_new_tokens=TOKENS)
    found, best, spent = [], DraftSpec.uniform(study.layers), 0.0
    for step in study.each(range(steps), of):
        candidate = next(candidates)
        best, spent = candidate.skip if candidate.kept else best, spent + candidate.seconds
        found.append(Found(step + 1, spent, best))
    return found


class Written:
    """What a model writes greedily after some prompts, for drafts to propose. No clock is in it: a model that was grown
    writes what the original does, so the original tells the same in a fraction of the time."""

    def __init__(self, lm: LM, texts: Sequence[Text]) -> None:
        self._lm, self._sessions = lm, []
        options = {"max_new_tokens": WINDOW + 1, "ignore_eos": True, "speculate": False, **GREEDY}
        for text in texts:
            tokens = lm.generate(text.prompt, **options).tokens
            self._sessions.append(_core.Session(lm.model, context=len(text.prompt) + 2 * WINDOW))
            self._sessions[-1].prefill(np.int32([*text.prompt, *tokens[:-1]]))

    def scores(self, skip: DraftSpec) -> tuple[np.ndarray, np.ndarray]:
        """Of each token, given the right ones before it: the draft's confidence, and the place of the right token among
        its best; -1: not among them."""
        every = [session.score(_core.DraftSpec(**skip.arguments()), window=WINDOW) for session in self._sessions]
        return np.concatenate([one[0] for one in every]), np.concatenate([one[1] for one in every])

    def matchness(self, skip: DraftSpec) -> float:
        """Share of the tokens that the draft gets right (SWIFT section 4.1)."""
        return float(np.mean(self.scores(skip)[1] == 0))

    def best(self, steps: int, ratio: float | None = None) -> DraftSpec:
        """The set that gets most right among so many of the ratio (None: SWIFT's): random ones, as in SWIFT's search,
        then the best with one sublayer exchanged. No Bayesian steps: the same texts always give the same set."""
        layers = self._lm.config["num_layers"]
        count = SwiftSettings(skip_ratio=ratio).skipped(layers, self._lm.model.weight_bytes / 2)
        draw, inner = random.Random(0), range(2, 2 * layers - 2)
        best, most = frozenset[int](), -1.0
        for step in range(steps):
            if step < steps // 2 or not step:
                drawn = frozenset(draw.sample(inner, count))
            else:
                drawn = best - {draw.choice(sorted(best))} | {draw.choice(sorted(set(inner) - best))}
            found = self.matchness(skip_set(drawn, layers))
            if found > most:
                best, most = drawn, found
        return skip_set(best, layers)
