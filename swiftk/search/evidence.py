"""Candidates beside what drafts, on the same tokens: which score decides most, and what the scores so far decide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..draft.draft_spec import DraftSpec
from . import tuned
from .base import DraftConfig, Measured, Rates, Score, Window


class Evidence:
    """The incumbent, which drafts, and the undecided candidates."""

    def __init__(
        self,
        incumbent: DraftConfig,
        measured: Measured,
        price: Callable[[DraftSpec], float],
        forecast: Callable[[Rates, float], float],
    ) -> None:
        """price: of a draft step of a set. forecast: tokens per plain step, by rates and price."""
        self.incumbent = incumbent
        self.field: list[DraftConfig] = []
        self.resting = False  # drafting does, so that plain decoding is what others are to beat
        self.kept = 1.0  # share of promises that drafting brought when it was given up
        self._measured, self._price, self._forecast = measured, price, forecast
        self._leads: dict[int, tuple[float, float]] = {}  # by id, until there is new evidence

    def promise(self, one: DraftConfig, seen: Rates) -> float:
        """Tokens per plain step."""
        return one.kept * self._forecast(seen, self._price(one.skip))

    def pooled(self, one: DraftConfig, windows: Iterable[int]) -> Rates:
        total = self._measured.no_rates(one.skip)
        for window in windows:
            total.merge(one.windows[window])
        return total

    def learn(self, one: DraftConfig, window: Window, score: Score) -> None:
        seen = self._measured.no_rates(one.skip)
        seen.add(score.outcomes)
        one.scored(window.number, seen)
        one.promise = self.promise(one, self.pooled(one, one.windows))
        if one is self.incumbent:
            self._leads.clear()
        self._leads.pop(id(one), None)

    def lead(self, one: DraftConfig) -> tuple[float, float]:
        """(promised rate over the incumbent's on the same tokens, outcomes there; without such tokens, over what the
        incumbent does live, and 0). At rest: over plain decoding's, on all of its tokens."""
        if id(one) not in self._leads:
            self._leads[id(one)] = self._lead(one)
        return self._leads[id(one)]

    def _lead(self, one: DraftConfig) -> tuple[float, float]:
        if self.resting:
            seen = self.pooled(one, one.windows)
            return self.kept * self.promise(one, seen), seen.outcomes
        common = one.windows.keys() & self.incumbent.windows.keys()
        if not common:
            live = self._measured.rates(self.incumbent.skip)
            return self.promise(one, self.pooled(one, one.windows)) / self.promise(self.incumbent, live), 0.0
        seen = self.pooled(one, common)
        return self.promise(one, seen) / self.promise(
            self.incumbent, self.pooled(self.incumbent, common)
        ), seen.outcomes

    def ranked(self) -> list[DraftConfig]:
        return sorted(self.field, key=lambda one: -self.lead(one)[0])

    def missing(self, windows: Sequence[Window]) -> tuple[DraftConfig, Window] | None:
        """The score that decides most: of the leading candidate on a window it was not run on, or of the incumbent
        where only that makes them comparable. None: all that can be known on these windows is known."""
        for one in self.ranked():
            unpaired = [w for w in windows if w.number in one.windows and w.number not in self.incumbent.windows]
            if unpaired and not self.resting:
                return self.incumbent, unpaired[-1]
            new = [w for w in windows if w.number not in one.windows]
            if new:
                return one, next((w for w in new if w.number in self.incumbent.windows), new[-1])
        return None

    def judge(self, one: DraftConfig) -> bool | None:
        """True: it leads beyond doubt. False: it does not, or no longer matters. None: undecided."""
        lead, outcomes = self.lead(one)
        if not outcomes:
            return None if one.promise > tuned.PAYS or lead > 1 else False
        if lead <= 1:
            return False
        margin = tuned.MARGIN / outcomes**0.5
        if lead > 1 + margin:
            return True
        return False if outcomes > tuned.WINDOW * tuned.WINDOWS / 2 else None

    def enter(self, one: DraftConfig) -> DraftConfig | None:
        """Joins the field; the one furthest from the lead leaves a full one, and is returned."""
        self.field.append(one)
        if len(self.field) <= tuned.FIELD:
            return None
        last = self.ranked()[-1]
        self.drop(last)
        return last

    def rest(self, resting: bool) -> None:
        """Whether drafting does."""
        if resting != self.resting:
            self.resting = resting
            self._leads.clear()

    def crown(self, one: DraftConfig) -> None:
        """It drafts from now on. Its scores have shown what is known of it."""
        if one in self.field:
            self.field.remove(one)
        if self._measured.rates(one.skip).outcomes == 0:
            self._measured.learned(one.skip, self.pooled(one, one.windows))
        self.incumbent = one
        self._leads.clear()

    def reopen(self) -> None:
        """Other text follows."""
        self.field.clear()
        self._leads.clear()

    def drop(self, one: DraftConfig) -> None:
        self.field.remove(one)
        self._leads.pop(id(one), None)
