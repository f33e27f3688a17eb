"""Whether to draft in the next round: what drafting loses against plain decoding is kept small, by the clock. Pure: it
is told rounds, it answers yes or no."""

from __future__ import annotations

from .cost import CostModel, Round

_REPLAIN = 64  # rounds of drafting between two plain ones, which keep the plain step's price fresh,
_DOUBTFUL, _SOON = 1.2, 16  # and where the rate is below the one: so many
_ALLOWANCE = 2.0  # plain steps that an episode of drafting may lose before it is questioned,
_ROUNDS = 1.5  # or so many rounds' price: long drafts lose and gain more at a time
_GUESSING = 1.5  # the same where sources are all that drafts: where they pay, they soon pay more
_CREDIT = 6.0  # plain steps of gain that may offset later losses: a change for the worse shows soon
_MEMORY = 0.97  # weight that the rounds before keep, in the rate that decides
_FAILURES = 2  # in a row that make the allowance smaller
_BACKOFF = 64  # plain tokens before drafting is tried again; doubles with every failure
_BACKOFF_MAX = 8192


class Pacer:
    """Says before each round whether to draft.

    What drafting loses against plain decoding is summed; past an allowance of a few plain steps the plain step is
    measured afresh, and if the loss stands, drafting rests, longer each time. Another way may take over once, on half
    the allowance; if that loses, too, drafting rests nevertheless. Sources that cost no step go on meanwhile, and rest
    in their turn once they lose.
    """

    def __init__(self, costs: CostModel, mode: bool | str = True, plan: bool = True) -> None:
        self.costs = costs
        self.mode = mode  # True: where it pays; "always"; False
        self.plan = plan  # drafts, and not sources alone
        self.reason_off: str | None = None
        self.rate = 1.0  # tokens per plain step of the rounds before drafting was questioned last
        self._regret = 0.0  # seconds lost in this episode, gains beyond _CREDIT forgotten
        self._tokens, self._seconds = 0.0, 0.0  # of the last rounds that drafted
        self._failures = 0  # episodes given up in a row
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

    @property
    def _measured(self) -> bool:
        doubtful = self._tokens * self.costs.plain.value < _DOUBTFUL * self._seconds
        return self._want_plain == 0 and self._since_plain < (_SOON if doubtful else _REPLAIN)

    def switch(self, costs: CostModel) -> None:
        """Another way of drafting takes over; what the one before it lost is not held against it."""
        if costs is not self.costs:
            self.costs = costs
            self._regret = self._tokens = self._seconds = 0.0

    def observe(self, r: Round) -> bool:
        """One round. True when drafting by the current way was just given up: settle() says what follows."""
        self.costs.add(r)
        if self.mode is not True:
            return False
        if 0 < self._resting <= r.tokens:
            self._regret = self._tokens = self._seconds = 0.0  # what sources gained is no credit for drafts
        self._resting, self._quiet = max(0, self._resting - r.tokens), max(0, self._quiet - r.tokens)
        if r.speculative:
            self._after_draft(r)
            return False
        return self._after_plain(r)

    @property
    def resting(self) -> bool:
        return self._resting > 0

    def charge(self, seconds: float) -> None:
        """Spent for drafts, outside of a round."""
        if self.mode is True and not self.resting:
            self._regret += seconds
            self._seconds += seconds

    def wake(self) -> None:
        """A way was found that promises to pay."""
        self._resting, self._backoff = 0, _BACKOFF
        self.reason_off = None

    def settle(self, another: bool = False, untried: bool = False) -> None:
        """Rests, unless another way is known to pay; for no longer than usual while there are untried ways."""
        go_on = another and self._failures == 0
        self._failures = min(self._failures + 1, _FAILURES)
        self.reason_off = None if go_on else self.costs.explain()
        self._resting = 0 if go_on else self._backoff
        self._backoff = _BACKOFF if go_on or untried else min(2 * self._backoff, _BACKOFF_MAX)

    def _after_draft(self, r: Round) -> None:
        plain = self.costs.plain.value
        seconds = min(r.seconds, 1.5 * self.costs.usual(r))
        self._since_plain += 1
        self._tokens = _MEMORY * self._tokens + r.tokens
        self._seconds = _MEMORY * self._seconds + seconds
        self._regret = max(self._regret + seconds - r.tokens * plain, -_CREDIT * plain)
        if r.draft_steps and self._regret <= -_CREDIT * plain:
            self._backoff, self._failures = _BACKOFF, 0
            self.reason_off = None
        if self._regret > self._allowance() / (1 + self._failures):
            self._confirm, self._want_plain = True, 2

    def _allowance(self) -> float:
        """Seconds."""
        if not self.plan:
            return _GUESSING * self.costs.plain.value
        round_ = self.costs.drafted.value * self.costs.draft.value + self.costs.verify.value
        return max(_ALLOWANCE * self.costs.plain.value, _ROUNDS * round_)

    def _after_plain(self, r: Round) -> bool:
        self._since_plain = 0
        self._want_plain = max(0, self._want_plain - 1)
        if not self._confirm or self._want_plain > 0:
            return False
        loses = self._seconds > self._tokens * self.costs.plain.value
        self.rate = self._tokens * self.costs.plain.value / self._seconds if self._seconds else 1.0
        self._confirm = False
        self._regret = 0.0
        if loses:
            self._tokens = self._seconds = 0.0
        if loses and self._resting:
            self._quiet = _BACKOFF
            return False
        return loses
