"""Searches before inference: Self-SD's, by the clock, and SWIFT's over several texts at once, without one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from runs import Part, sessions
from streams import Instance
from swiftk import LM, SkipSet
from swiftk.optimizers import self_sd
from swiftk.optimizers.base import Score
from swiftk.optimizers.proposals import skip_set
from swiftk.optimizers.swift_settings import SwiftSettings

TOKENS = 32  # of a text, as in its paper
WINDOW = 63  # tokens of a score at most


@dataclass(frozen=True, slots=True)
class Found:
    """The best set after so many steps, and the seconds they took."""

    steps: int
    seconds: float
    skip: SkipSet


def searched(lm: LM, training: Sequence[Instance], steps: int, part: Part) -> list[Found]:
    """Self-SD: seconds of tokens generated under each candidate, proposed by Bayesian steps. The best set after each
    step; the deadline ends the search early, behind one step at least."""
    prompts = [list(instance.turns[0]) for instance in training]
    found: list[Found] = []
    best, spent = SkipSet.uniform(lm.config["num_layers"]), 0.0
    for candidate in self_sd.search(lm, prompts, steps=steps, max_new_tokens=TOKENS):
        best = candidate.skip if candidate.kept else best
        spent += candidate.seconds
        found.append(Found(len(found) + 1, spent, best))
        if not part.go_on():
            break
    return found


class Texts:
    """What a model writes greedily behind some prompts, for drafts to guess. No clock is in it: a model that was grown
    writes what the original does, so the original tells the same in a fraction of the time."""

    def __init__(self, folder: Path, instances: Sequence[Instance]) -> None:
        lanes = sessions(folder, draft_weights="own")
        self._lms = [lanes[at] for at in range(len(instances))]
        for lm, instance in zip(self._lms, instances):
            written = {"max_new_tokens": WINDOW + 1, "ignore_eos": True, "temperature": 0.0, "speculate": False}
            prompt = list(instance.turns[0])
            lm.session.prefill(np.int32([*prompt, *lm.generate(prompt, **written).tokens[:-1]]))

    def __call__(self, skip: SkipSet) -> Score:
        """Score on all texts together; each token is guessed from the right ones before it."""
        every = [Score(*lm.session.score(**skip.arguments(), window=WINDOW)) for lm in self._lms]
        confidence, rank = (np.concatenate([getattr(s, name) for s in every]) for name in ("confidence", "rank"))
        return Score(confidence, rank, sum(s.seconds for s in every))

    def best(self, steps: int, ratio: float | None = None) -> SkipSet:
        """The set that guesses most among so many of the ratio (None: SWIFT's): random ones, as in SWIFT's search, then
        the best with one sublayer exchanged. No Bayesian steps: the same texts always give the same set."""
        layers = self._lms[0].config["num_layers"]
        count = SwiftSettings(skip_ratio=ratio).skipped(layers, self._lms[0].model.weight_bytes / 2)
        draw, inner = random.Random(0), range(2, 2 * layers - 2)
        best, most = frozenset[int](), -1.0
        for step in range(steps):
            if step < steps // 2 or not step:
                drawn = frozenset(draw.sample(inner, count))
            else:
                drawn = best - {draw.choice(sorted(best))} | {draw.choice(sorted(set(inner) - best))}
            found = self(skip_set(drawn, layers)).matchness
            if found > most:
                best, most = drawn, found
        return skip_set(best, layers)
