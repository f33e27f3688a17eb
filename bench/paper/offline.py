"""Searches apart from what is measured: Self-SD's, by the clock; SWIFT's; and one over several texts at once, without
a clock."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

from swiftk import DraftSpec, _core
from swiftk.options.swift_settings import SwiftSettings
from swiftk.papers import self_sd
from swiftk.search.sublayers import skip_set

from ..harness import Study
from ..lanes import GREEDY, Way
from ..texts import Text

SAMPLES, TOKENS = 8, 32  # of Self-SD's search, as in its paper: texts, and tokens of each
SELF_SD = {
    "--self-sd-steps": {"type": int, "default": 50, "metavar": "N", "help": "of its search; default %(default)s"}
}
WINDOW = 63  # tokens of a score at most
NEW, EACH = 256, 8  # tokens of each text that SWIFT searches on, at most; and of a round, about


@dataclass(frozen=True, slots=True)
class Found:
    """The best set of a search, after so many candidates and seconds."""

    steps: int
    seconds: float
    skip: DraftSpec


def searched(study: Study, training: Sequence[Text], tokens: int = TOKENS) -> Found:
    """Self-SD's search: seconds of tokens generated under each candidate, proposed by Bayesian steps. As many steps as
    were asked for, however long that takes."""
    steps = 2 if study.quick else study.given.self_sd_steps
    options = {"steps": steps, "max_new_tokens": tokens, "ignore_eos": not study.eos}
    best, spent = DraftSpec.uniform(study.layers), 0.0
    prompts = [text.prompt for text in training]
    for step, candidate in enumerate(self_sd.search(study.lm, prompts, **options)):
        best, spent = candidate.skip if candidate.kept else best, spent + candidate.seconds
        study.progress(f"self-sd, step {step + 1} of {steps}")
    study.models.forget()
    return Found(steps, spent, best)


def swift_searched(study: Study, training: Sequence[Text], way: Way, scores: int, most: int = 1 << 30) -> Found:
    """SWIFT's search under a way, over the texts again and again: until so many candidates were scored, or so many
    tokens written. On the small model: which sets are found does not depend on how long a step takes, unless the way
    has a budget of time. SystemExit: no text is long enough for a single candidate."""
    asked = {"ignore_eos": not study.eos, **GREEDY, **way.options}
    window = way.options["swift"].get("window", SwiftSettings().window)
    skip, seconds, steps, written, idle = DraftSpec.uniform(study.layers), 0.0, 0, 0, 0
    study.small.forget()
    for text in cycle(training):
        enough = window + EACH * (scores - steps)  # the paper's schedule scores one each round
        result = study.small.generate(text.prompt, max_new_tokens=min(NEW, enough), **asked)
        new = result.trace.candidates[result.trace.earlier :]
        skip = next((one.skip for one in reversed(new) if one.kept), skip)
        seconds, steps = seconds + sum(one.seconds for one in new), steps + len(new)
        written, idle = written + len(result.tokens), 0 if new else idle + 1
        study.progress(f"{way.name}, {steps} candidates")
        if steps >= scores or written >= most or idle == len(training):
            break
    if not steps:
        raise SystemExit(f"[{study.results.name}] {way.name}: no text is longer than its window, so no set was scored")
    study.small.forget()
    return Found(steps, seconds, skip)


def evenly(layers: int, count: int) -> DraftSpec:
    """So many sublayers between the first and the last layer, at equal distances."""
    inner = 2 * layers - 4
    return skip_set((2 + int((i + 0.5) * inner / count) for i in range(count)), layers)


class Written:
    """What a model writes greedily after some prompts, for drafts to propose. No clock is in it: a model that was grown
    writes what the original does, so the original tells the same in a fraction of the time."""

    def __init__(self, study: Study, texts: Sequence[Text]) -> None:
        self._lm = lm = study.small
        self._sessions: list[tuple[Any, int]] = []  # and how many tokens of it are scored
        options = {"max_new_tokens": WINDOW + 1, "ignore_eos": not study.eos, "speculate": False, **GREEDY}
        for text in texts:
            tokens = lm.generate(text.prompt, **options).tokens
            if len(tokens) > 1:
                session = _core.Session(lm.model, context=len(text.prompt) + 2 * WINDOW)
                session.prefill(np.int32([*text.prompt, *tokens[:-1]]))
                self._sessions.append((session, len(tokens) - 1))

    def scores(self, skip: DraftSpec) -> tuple[np.ndarray, np.ndarray]:
        """Of each token, given the right ones before it: the draft's confidence, and the place of the right token among
        its best; -1: not among them."""
        every = [session.score(_core.DraftSpec(**skip.arguments()), window=n) for session, n in self._sessions]
        return np.concatenate([one[0] for one in every]), np.concatenate([one[1] for one in every])

    def matchness(self, skip: DraftSpec) -> float:
        """Share of the tokens that the draft gets right (SWIFT section 4.1)."""
        return float(np.mean(self.scores(skip)[1] == 0))

    def skipped(self, ratio: float | None = None) -> int:
        """Sublayers that a set of the ratio leaves out; None: SWIFT's."""
        return SwiftSettings(skip_ratio=ratio).skipped(self._lm.config["num_layers"], self._lm.model.weight_bytes / 2)

    def best(self, steps: int, ratio: float | None = None) -> DraftSpec:
        """The set that gets most right among so many of the ratio (None: SWIFT's): random ones, as in SWIFT's search,
        then the best with one sublayer exchanged. No Bayesian steps: the same texts always give the same set."""
        layers = self._lm.config["num_layers"]
        count = self.skipped(ratio)
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
