"""Whether to draft in the next round: what drafting loses against plain decoding is kept small, by the clock. Pure: it
is told rounds, it answers yes or no."""

from __future__ import annotations

import numpy as np

from .cost import CostModel, Round

_REPLAIN = 64  # rounds of drafting between two plain ones, which keep the plain step's price fresh,
_DOUBTFUL, _SOON = 1.2, 16  # and where the rate is below the one: so many
_OPENING = 1.5  # plain steps that drafting may lose before it was worth anything,
_GUESSING = 0.5  # and where sources are all that drafts: most of their rounds cost a tenth of a step
_EARNED = 0.005  # more for every token
_PURSE = 8.0  # and no more at once, whatever was gained: a change for the worse shows soon
_RISK = 1.0  # of it, that a tree of sources alone may lose: larger ones gain less than they cost
_MOST = 64  # nodes of a tree
_MEMORY = 0.97  # weight that the rounds before keep, in the rate that decides
_BACKOFF = 64  # plain tokens before drafting is tried again; doubles with every failure
_BACKOFF_MAX = 8192


class Pacer:
    """Says before each round whether to draft.

    What drafting may lose against plain decoding is in a purse, in plain steps: a little at first, more with every
    token and with all that drafting gains. Once the purse is empty the plain step is measured afresh, and if the loss
    stands, drafting rests, longer each time. Another way may take over once, with half of what the first one had; if
    that loses, too, drafting rests nevertheless. Sources that cost no step go on meanwhile, and rest in their turn once
    they lose; where they are all that drafts, a tree is no larger than what the purse may lose of it at once.
    """

    def __init__(self, costs: CostModel, mode: bool | str = True, plan: bool = True) -> None:
        self.costs = costs
        self.mode = mode  # True: where it pays; "always"; False
        self.plan = plan  # drafts, and not sources alone
        self.reason_off: str | None = None
        self.rate = 1.0  # tokens per plain step of the rounds before drafting was questioned last
        self._opening = _OPENING if plan else _GUESSING
        self._purse = self._opening
        self._tokens, self._seconds = 0.0, 0.0  # of the last rounds that drafted
        self._failed = False  # the last way that drafted
        self._since_plain = 0
        self._want_plain = 2  # plain rounds to run before the next decision
        self._confirm = False
        self._resting, self._backoff = 0, _BACKOFF
        self._quiet = 0  # tokens for which sources rest, too

    def start(self) -> None:
        """A new text: its plain step may cost something else."""
        self._want_plain = max(self._want_plain, 1 if self.costs.plain.count else 2)

    def draft_next(self) -> bool:
        if self.mode is not True:
            return self.mode == "always"
        return self._resting == 0 and self._measured

    def guess_next(self) -> bool:
        """Where there is no draft: whether sources may propose."""
        return self.mode is True and self.plan and self._quiet == 0 and self._measured

    def most_nodes(self) -> int:
        """Of the next tree, its root included."""
        if self.mode is not True or self.plan:
            return _MOST
        return max(1, int(np.searchsorted(self.costs.rows.table(), min(self._purse, _RISK), side="right")))

    @property
    def _measured(self) -> bool:
        doubtful = self._tokens * self.costs.plain.value < _DOUBTFUL * self._seconds
        return self._want_plain == 0 and self._since_plain < (_SOON if doubtful else _REPLAIN)

    def switch(self, costs: CostModel) -> None:
        """Another way of drafting takes over; what the one before it lost is not held against it."""
        if costs is not self.costs:
            self.costs = costs
            self._tokens = self._seconds = 0.0
            self._another_chance()

    def observe(self, r: Round) -> bool:
        """One round. True when drafting by the current way was just given up: settle() says what follows."""
        self.costs.add(r)
        if self.mode is not True:
            return False
        self._put_by(_EARNED * r.tokens)
        self._rest(r.tokens)
        if r.speculative:
            self._after_draft(r)
            return False
        return self._after_plain(r)

    def _rest(self, tokens: int) -> None:
        self._quiet = max(0, self._quiet - tokens)
        if self._resting == 0:
            return
        self._resting = max(self._resting - tokens, 1 if self._purse <= 0 else 0)
        if self._resting == 0:
            self._tokens = self._seconds = 0.0
            self._purse = min(self._purse, self._opening)  # what sources gained is not for drafts to lose

    @property
    def resting(self) -> bool:
        return self._resting > 0

    def charge(self, seconds: float) -> None:
        """Spent for drafts, outside of a round."""
        if self.mode is True and not self.resting and seconds > 0:
            self._put_by(-seconds / self.costs.plain.value)
            self._seconds += seconds

    def wake(self) -> None:
        """A way was found that promises to pay."""
        self._resting, self._backoff = 0, _BACKOFF
        self.reason_off = None
        self._another_chance()

    def settle(self, another: bool = False, untried: bool = False) -> None:
        """Rests, unless another way is known to pay; for no longer than usual while there are untried ways."""
        go_on = another and not self._failed
        self._failed = True
        self.reason_off = None if go_on else self.costs.explain()
        self._resting = 0 if go_on else self._backoff
        self._another_chance()  # another way, or sources without a draft
        self._backoff = _BACKOFF if go_on or untried else min(2 * self._backoff, _BACKOFF_MAX)

    def _after_draft(self, r: Round) -> None:
        plain = self.costs.plain.value
        seconds = min(r.seconds, 1.5 * self.costs.usual(r))
        self._since_plain += 1
        self._tokens = _MEMORY * self._tokens + r.tokens
        self._seconds = _MEMORY * self._seconds + seconds
        self._put_by(r.tokens - seconds / plain)
        if r.draft_steps and self._purse == _PURSE:
            self._backoff, self._failed = _BACKOFF, False
            self.reason_off = None
        if self._purse <= 0:
            self._confirm, self._want_plain = True, 2

    def _put_by(self, steps: float) -> None:
        self._purse = min(self._purse + steps, _PURSE)

    def _another_chance(self) -> None:
        self._purse = max(self._purse, self._opening / 2)

    def _after_plain(self, r: Round) -> bool:
        self._since_plain = 0
        self._want_plain = max(0, self._want_plain - 1)
        if not self._confirm or self._want_plain > 0:
            return False
        loses = self._seconds > self._tokens * self.costs.plain.value
        self.rate = self._tokens * self.costs.plain.value / self._seconds if self._seconds else 1.0
        self._confirm = False
        if loses:
            self._tokens = self._seconds = 0.0
        else:
            self._another_chance()
        if loses and self._resting:
            self._quiet = _BACKOFF
            return False
        return loses
