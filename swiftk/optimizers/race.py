"""Candidates against the set that drafts now, on the same tokens: successive halving by promised tokens per time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from ..calibration import Calibration, forecast
from ..skip import SkipSet
from ..way import Way
from .base import Score

_CLEAR = 1.25  # a lead over what the incumbent does live that needs no scoring of the incumbent on the same tokens
_TIE = 256  # outcomes after which an undecided race is dropped
_FIELD = 4  # undecided candidates at a time
PAYS = 1.02  # tokens per plain step from which drafting is worth while
_WINDOWS = 12  # of evidence that an arm keeps


@dataclass(slots=True, eq=False)
class Arm:
    """A candidate, and what was seen of it on each window of text."""

    way: Way
    kind: str
    windows: dict[int, Calibration] = field(default_factory=dict)
    promise: float = 0.0  # tokens per plain step, by all of them

    def add(self, window: int, score: Score) -> None:
        seen = Calibration()
        seen.add(zip(score.confidence.tolist(), score.rank.tolist(), strict=True))
        self.windows[window] = seen
        while len(self.windows) > _WINDOWS:
            del self.windows[min(self.windows)]

    def pooled(self, windows: Iterable[int]) -> Calibration:
        total = Calibration(prior=self.way.gate.calibration.prior)
        for window in windows:
            total.merge(self.windows[window])
        return total


class Race:
    """The incumbent and its challengers. `price`: of a draft step of a set; `rows`: of verified rows (forecast());
    `paired`: whether only scores on the same tokens tell who is better, as where sources guess the easy ones and drafts
    see the rest; `margin`: a lead counts once it exceeds this over the square root of the outcomes it was seen on."""

    def __init__(
        self,
        incumbent: Arm,
        price: Callable[[SkipSet], float],
        rows: Callable[[], np.ndarray],
        paired: Callable[[], bool],
        margin: float,
    ) -> None:
        self.incumbent, self.margin = incumbent, margin
        self.field: list[Arm] = []
        self._price, self._rows, self._paired = price, rows, paired
        self._leads: dict[int, tuple[float, float, bool]] = {}  # by id of the arm, until there is new evidence

    def promise(self, arm: Arm, seen: Calibration) -> float:
        """Tokens per plain step that a gate by time would reach."""
        return forecast(seen.tables(), self._price(arm.way.skip), self._rows()).rate

    def learn(self, arm: Arm, window: int, score: Score) -> None:
        """The arm was scored."""
        arm.add(window, score)
        arm.promise = self.promise(arm, arm.pooled(arm.windows))
        if arm is self.incumbent:
            self._leads.clear()
        self._leads.pop(id(arm), None)

    def lead(self, arm: Arm) -> tuple[float, float, bool]:
        """(promised rate over the incumbent's, outcomes behind it, whether both were scored on the same tokens)."""
        if id(arm) not in self._leads:
            self._leads[id(arm)] = self._lead(arm)
        return self._leads[id(arm)]

    def _lead(self, arm: Arm) -> tuple[float, float, bool]:
        common = arm.windows.keys() & self.incumbent.windows.keys()
        if common:
            seen = arm.pooled(common)
            return (
                self.promise(arm, seen) / self.promise(self.incumbent, self.incumbent.pooled(common)),
                seen.outcomes,
                True,
            )
        seen = arm.pooled(arm.windows)
        live = self.incumbent.way.gate.calibration
        return self.promise(arm, seen) / self.promise(self.incumbent, live), min(seen.outcomes, live.outcomes), False

    def missing(self, windows: list[int]) -> tuple[Arm, int] | None:
        """The score that decides most: of the leading challenger on a window it was not run on, or of the incumbent
        where only that makes them comparable. None: all that can be known on these windows is known."""
        kept = windows[-_WINDOWS:]  # older ones would be forgotten at once
        for arm in sorted(self.field, key=lambda arm: -self.lead(arm)[0]):
            unpaired = [window for window in kept if window in arm.windows and window not in self.incumbent.windows]
            if unpaired:
                return self.incumbent, unpaired[-1]
            new = [window for window in kept if window not in arm.windows]
            if new:
                return arm, next((window for window in new if window in self.incumbent.windows), new[-1])
        return None

    def judge(self, arm: Arm) -> bool | None:
        """True: it leads beyond doubt. False: it does not, or no longer matters. None: undecided."""
        lead, outcomes, paired = self.lead(arm)
        if arm.promise < PAYS:
            return False
        margin = self.margin / max(outcomes, 1.0) ** 0.5
        if not paired and self._paired():
            return None
        if not paired:
            return True if lead > _CLEAR + margin else False if lead < 1 / (_CLEAR + margin) else None
        if lead > 1 + margin:
            return True
        return False if lead < 1 - margin or outcomes > _TIE else None

    def enter(self, arm: Arm) -> None:
        """Joins the field; the one furthest behind leaves a full one."""
        self.field.append(arm)
        if len(self.field) > _FIELD:
            self.drop(min(self.field, key=lambda one: self.lead(one)[0]))

    def crown(self, arm: Arm) -> None:
        """It drafts from now on. Its gate starts with what its scores have shown."""
        if arm in self.field:
            self.field.remove(arm)
        gate = arm.way.gate
        if gate.calibration.outcomes == 0:
            gate.calibration.merge(arm.pooled(arm.windows))
        self.incumbent = arm
        self._leads.clear()

    def reopen(self) -> None:
        """What follows is another text."""
        self.field.clear()
        self._leads.clear()

    def drop(self, arm: Arm) -> None:
        self.field.remove(arm)
        self._leads.pop(id(arm), None)
