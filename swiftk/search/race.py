"""Candidates against the set that drafts now, on the same tokens: successive halving by promised tokens per time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..draft.draft_spec import DraftSpec
from .base import WINDOWS, DraftConfig, Measured, Rates, Score

_CLEAR = 1.25  # a lead over what the incumbent does live that needs no scoring of the incumbent on the same tokens
_TIE = 256  # outcomes after which an undecided race is dropped
_FIELD = 4  # undecided candidates at a time
PAYS = 1.02  # tokens per plain step from which drafting is worth while


class Race:
    """The incumbent and its challengers.

    price: of a draft step of a set. paired: whether only scores on the same tokens show who is better, as where sources
    propose the easy ones and drafts see the rest. margin: a lead counts once it exceeds this over the square root of
    the outcomes it was seen on.
    """

    def __init__(
        self,
        incumbent: DraftConfig,
        measured: Measured,
        price: Callable[[DraftSpec], float],
        paired: Callable[[], bool],
        margin: float,
    ) -> None:
        self.incumbent, self.margin = incumbent, margin
        self.field: list[DraftConfig] = []
        self._measured, self._price, self._paired = measured, price, paired
        self._leads: dict[int, tuple[float, float, bool]] = {}  # by id, until there is new evidence

    def promise(self, one: DraftConfig, seen: Rates) -> float:
        """Tokens per plain step that a gate by time would reach."""
        return self._measured.forecast(seen, self._price(one.skip))

    def pooled(self, one: DraftConfig, windows: Iterable[int]) -> Rates:
        total = self._measured.no_rates(one.skip)
        for window in windows:
            total.merge(one.windows[window])
        return total

    def learn(self, one: DraftConfig, window: int, score: Score) -> None:
        """It was scored."""
        seen = self._measured.no_rates(one.skip)
        seen.add(score.outcomes)
        one.scored(window, seen)
        one.promise = self.promise(one, self.pooled(one, one.windows))
        if one is self.incumbent:
            self._leads.clear()
        self._leads.pop(id(one), None)

    def lead(self, one: DraftConfig) -> tuple[float, float, bool]:
        """(promised rate over the incumbent's, outcomes after it, whether both were scored on the same tokens)."""
        if id(one) not in self._leads:
            self._leads[id(one)] = self._lead(one)
        return self._leads[id(one)]

    def _lead(self, one: DraftConfig) -> tuple[float, float, bool]:
        common = one.windows.keys() & self.incumbent.windows.keys()
        if common:
            seen = self.pooled(one, common)
            return (
                self.promise(one, seen) / self.promise(self.incumbent, self.pooled(self.incumbent, common)),
                seen.outcomes,
                True,
            )
        seen = self.pooled(one, one.windows)
        live = self._measured.rates(self.incumbent.skip)
        return self.promise(one, seen) / self.promise(self.incumbent, live), min(seen.outcomes, live.outcomes), False

    def missing(self, windows: list[int]) -> tuple[DraftConfig, int] | None:
        """The score that decides most: of the leading challenger on a window it was not run on, or of the incumbent
        where only that makes them comparable. None: all that can be known on these windows is known."""
        kept = windows[-WINDOWS:]  # older ones would be forgotten at once
        for one in sorted(self.field, key=lambda one: -self.lead(one)[0]):
            unpaired = [window for window in kept if window in one.windows and window not in self.incumbent.windows]
            if unpaired:
                return self.incumbent, unpaired[-1]
            new = [window for window in kept if window not in one.windows]
            if new:
                return one, next((window for window in new if window in self.incumbent.windows), new[-1])
        return None

    def judge(self, one: DraftConfig) -> bool | None:
        """True: it leads beyond doubt. False: it does not, or no longer matters. None: undecided."""
        lead, outcomes, paired = self.lead(one)
        if one.promise < PAYS:
            return False
        margin = self.margin / max(outcomes, 1.0) ** 0.5
        if not paired and self._paired():
            return None
        if not paired:
            return True if lead > _CLEAR + margin else False if lead < 1 / (_CLEAR + margin) else None
        if lead > 1 + margin:
            return True
        return False if lead < 1 - margin or outcomes > _TIE else None

    def enter(self, one: DraftConfig) -> None:
        """Joins the field; the one furthest behind leaves a full one."""
        self.field.append(one)
        if len(self.field) > _FIELD:
            self.drop(min(self.field, key=lambda one: self.lead(one)[0]))

    def crown(self, one: DraftConfig) -> None:
        """It drafts from now on. What its scores have shown is what is known of it."""
        if one in self.field:
            self.field.remove(one)
        if self._measured.rates(one.skip).outcomes == 0:
            self._measured.learned(one.skip, self.pooled(one, one.windows))
        self.incumbent = one
        self._leads.clear()

    def reopen(self) -> None:
        """What follows is another text."""
        self.field.clear()
        self._leads.clear()

    def drop(self, one: DraftConfig) -> None:
        self.field.remove(one)
        self._leads.pop(id(one), None)
