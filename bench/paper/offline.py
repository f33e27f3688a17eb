"""Self-SD's search before inference: seconds of tokens generated under each candidate, proposed by Bayesian steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runs import Part
from streams import Instance
from swiftk import LM, SkipSet
from swiftk.optimizers import self_sd

TOKENS = 32  # of a text, as in its paper


@dataclass(frozen=True, slots=True)
class Found:
    """The best set after so many steps, and the seconds they took."""

    steps: int
    seconds: float
    skip: SkipSet


def searched(lm: LM, training: Sequence[Instance], steps: int, part: Part) -> list[Found]:
    """The best set after each step; the deadline ends the search early, behind one step at least."""
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
