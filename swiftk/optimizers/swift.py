"""SWIFT as its paper states it (arXiv 2410.06916, section 4): random search and Bayesian suggestions for the skip set
of a fixed ratio that matches most of the last tokens, while the text is generated."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..errors import InvalidArgument
from ..skip import SkipSet
from ..way import Way
from .base import Candidate, Optimizer, Progress, Scorer
from .bayes import Suggestions
from .proposals import skip_set, sublayers

_LARGE = 60  # layers from which models are skipped by half (appendix B.2: 34B and 70B)


@dataclass(frozen=True, slots=True)
class SwiftSettings:
    """The paper's numbers."""

    max_steps: int = 1000  # S
    bayes_interval: int = 25  # beta: every so many steps a Bayesian suggestion is scored
    window: int = 32  # gamma: tokens of context that a score looks at
    tolerance: int = 300  # steps without a better set that end the search
    max_score: float = 0.95  # matchness that ends it
    skip_ratio: float | None = None  # r; None: .45, or .5 from 60 layers on
    bayes: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low, high in (("max_steps", 0, 1 << 31), ("bayes_interval", 1, 1 << 31), ("window", 1, 4096)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise InvalidArgument(f"[swift] {name}={value!r}, want an integer in {low}..{high}")
        if isinstance(self.tolerance, bool) or not isinstance(self.tolerance, int) or self.tolerance < 1:
            raise InvalidArgument(f"[swift] tolerance={self.tolerance!r}, want an integer of 1 or more")
        for name in ("max_score", "skip_ratio"):
            value = getattr(self, name)
            if value is None and name == "skip_ratio":
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
                raise InvalidArgument(f"[swift] {name}={value!r}, want a number in (0, 1]")

    @classmethod
    def parse(cls, value: SwiftSettings | Mapping[str, Any] | None) -> SwiftSettings:
        """From a mapping of some fields. InvalidArgument names what is unknown."""
        if value is None or isinstance(value, SwiftSettings):
            return value or cls()
        if not isinstance(value, Mapping):
            raise InvalidArgument(f"[swift] got {value!r}, want SwiftSettings or a mapping of its fields")
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(value) - set(known))
        if unknown:
            raise InvalidArgument(f"[swift] unknown setting {unknown[0]!r}, want some of {', '.join(known)}")
        return cls(**value)

    def skipped(self, n_layers: int) -> int:
        """Sublayers left out, of the 2 (L - 2) between the first and the last layer."""
        ratio = self.skip_ratio if self.skip_ratio is not None else 0.5 if n_layers >= _LARGE else 0.45
        return int(2 * max(0, n_layers - 2) * ratio)


class Swift(Optimizer):
    """One candidate between two rounds, until the search ends.

    Scores of different contexts do not compare, so a context of `window` tokens is kept until as many new ones have
    come; then the set that drafts is scored on the new one first, as the uniform set is at the start.
    """

    def __init__(
        self, n_layers: int, make_way: Callable[[SkipSet], Way], settings: SwiftSettings | None = None
    ) -> None:
        super().__init__(make_way(SkipSet.uniform(n_layers)))
        self.n_layers, self.settings = n_layers, settings or SwiftSettings()
        self._make_way, self._rng = make_way, random.Random(self.settings.seed)
        self._inner = range(2, 2 * n_layers - 2)  # sublayers that may be skipped
        self._count = self.settings.skipped(n_layers)
        self._suggestions = Suggestions(len(self._inner), self.settings.seed) if self.settings.bayes else None
        self.steps = self._without_gain = 0
        self.stopped: str | None = None  # why the search ended
        self._best, self._end = 0.0, -1
        self._total, self._generated = 0, 1

    def start(self, prompt: Sequence[int]) -> None:
        self._end, self._generated = -1, 1

    def step(self, score: Scorer, progress: Progress) -> bool:
        s = self.settings
        self._total += progress.generated - self._generated
        self._generated = progress.generated
        if self.stopped is None and (self.steps >= s.max_steps or not self._count):
            self._stop(f"{self.steps} steps")
        if self.stopped is not None or progress.generated <= s.window:
            return False
        end = progress.prompt + progress.generated - 1
        if self._end < 0 or end - self._end >= s.window:
            self._end = end
            self._try(score, "uniform" if not self.trace else "again", self.current.skip)
        else:
            self.steps += 1
            self._try(score, *self._candidate())
        return False

    def finish(self) -> None:
        if self.stopped is not None and self._suggestions:
            self._suggestions.close()

    def _candidate(self) -> tuple[str, SkipSet]:
        if self._suggestions and self.steps % self.settings.bayes_interval == 0:
            self._suggestions.ask()
        point = self._suggestions.answer() if self._suggestions else None
        if point is not None:
            largest = sorted(range(len(point)), key=lambda i: -point[i])[: self._count]
            return "bayes", skip_set((self._inner[i] for i in largest), self.n_layers)
        return "random", skip_set(self._rng.sample(self._inner, self._count), self.n_layers)

    def _try(self, score: Scorer, kind: str, skip: SkipSet) -> None:
        found = score(skip, self.settings.window, self._end)
        if self._suggestions:  # the set that was scored, not the point that it was rounded from
            skipped = sublayers(skip, self.n_layers)
            self._suggestions.tell([float(i in skipped) for i in self._inner], found.matchness)
        incumbent = skip == self.current.skip
        better = not incumbent and found.matchness > self._best
        if better:
            self.current = self._make_way(skip)
        if incumbent or better:
            self._best = found.matchness
        self._without_gain = 0 if better else self._without_gain + (not incumbent)
        self.trace.append(Candidate(self._total, kind, skip, found.matchness, None, better, found.seconds))
        if self._best > self.settings.max_score:
            self._stop(f"matchness {self._best:.3f}")
        elif self._without_gain > self.settings.tolerance:
            self._stop(f"{self._without_gain} steps without gain")

    def _stop(self, why: str) -> None:
        self.stopped = why
        if self._suggestions:
            self._suggestions.close()
