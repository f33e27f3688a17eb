"""SWIFT's search within a budget of time: what drafts is compared, on tokens that it drafted itself, with sets that are
scored on few tokens first, and on more the longer they lead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from ..draft.cost import Round
from ..draft.draft_spec import DraftSpec
from ..options.swift_settings import SwiftSettings
from ..search.base import Candidate, DraftConfig, Measured, Optimizer, Progress, Score, Scorer
from ..search.budget import UNMEASURED, Budget
from ..search.domains import Domains
from ..search.exits import chain_rate
from ..search.race import PAYS
from ..search.sublayers import LOOK_EVERY, SublayerPrices
from .swift import Sets

_STAGES = (8, 16, 32, 32)  # tokens of a candidate's scores: on a CPU eight rows cost little more than one
_SURE, _CLOSE = 2.0, 1.4  # leads, in deviations of chance, that decide after a stage, and after the last one
_LEAST = 24  # tokens of both before a lead counts
_MOVES = 2  # one candidate of so many is random, the others are neighbours of the set that drafts
_KNOWN = 256  # tokens back for which it is known whether the set that drafts was right
_LENGTHS = range(1, 26)  # of chains, which the paper's drafts are
_SLOW, _FALL = 0.03, 0.15  # weight of a round in what is usual; how far below it another kind of text begins


@dataclass(slots=True)
class Trial:
    """A candidate and what its scores have shown: `ahead` tokens that it alone had right, of those that both looked at,
    `behind` that it alone had wrong."""

    kind: str
    skip: DraftSpec
    price: float  # of a draft step, in plain steps
    low: int  # positions between which it was looked at
    high: int
    stage: int = 0
    right: int = 0
    rows: int = 0
    paired: int = 0
    ahead: int = 0
    behind: int = 0
    seconds: float = 0.0

    @property
    def matchness(self) -> float:
        return self.right / max(self.rows, 1)

    @property
    def held(self) -> float:
        """The same, as far as so few tokens tell."""
        return (self.right + 1) / (self.rows + 2)

    @property
    def lead(self) -> float:
        """Over the set that drafts, in deviations of what chance would do; the price of the two left out."""
        return (self.ahead - self.behind) / sqrt(max(self.ahead + self.behind, 1))

    def next_end(self, rows: int, first: int, last: int) -> int | None:
        """Where so many tokens end that it was not scored on, the newest if there are as many."""
        if last - rows >= self.high:
            return last
        return self.low if self.low - rows >= first else None

    def learn(self, found: Score, end: int, known: dict[int, bool]) -> None:
        """A score of the tokens before `end`; known: by position, whether the set that drafts was right there."""
        self.low, self.high, self.stage = min(self.low, end - found.rows), max(self.high, end), self.stage + 1
        right = found.rank == 0
        self.right += int(right.sum())
        self.rows += found.rows
        self.seconds += found.seconds
        for position, mine in zip(range(end - found.rows + 1, end + 1), right.tolist(), strict=True):
            if position in known:
                self.paired += 1
                self.ahead += mine and not known[position]
                self.behind += known[position] and not mine


class TimedSwift(Optimizer):
    """Random sets, neighbours of the set that drafts, and Bayesian suggestions, tried while the budget lasts.

    What live rounds show of the set that drafts is its side of every comparison, so it is never scored itself. While
    drafting rests a candidate is scored if it could pay, and wakes drafting once it does. What drafted a text is tried
    first on prompts of its kind; a prompt of another kind, or a text that goes worse than usual, begins a search that
    had ended again.
    """

    def __init__(
        self,
        n_layers: int,
        measured: Measured,
        prices: SublayerPrices,
        settings: SwiftSettings,
        parameters: float = 0.0,
    ) -> None:
        super().__init__(DraftConfig(DraftSpec.uniform(n_layers), "uniform"), measured)
        self.settings, self.domains = settings, Domains()
        self._sets = Sets(n_layers, settings.skipped(n_layers, parameters), settings)
        self._configs = {self.current.skip: self.current}
        self._former: DraftConfig | None = None
        self._prices = prices
        self._stages = [min(rows, settings.window) for rows in _STAGES]
        self._budget = Budget()
        self._rate = 0.0  # seconds that scoring a token takes a plan of a plain step's price
        self._trial: Trial | None = None
        self._known: dict[int, bool] = {}  # by position: whether the set that drafts was right
        self._usual = self._lately = 0.0  # share of its tokens that were right, when the search ended and now
        self._rounds = 0  # of the set that drafts
        self._kept = 1.0  # share of what a set had promised that it brought when it was given up
        self._hopeless = False  # that any set of this ratio pays
        self._total = 0  # tokens, over the optimizer's life
        self.steps = self._without_gain = 0
        self.stopped: str | None = None if self._sets.count else "nothing to skip"  # why the search ended

    def start(self, prompt: Sequence[int]) -> None:
        self._budget.start()
        self._trial, self._kept = None, 1.0
        self._known.clear()
        known = self.domains.enter(prompt)
        if known is not None:
            self._adopt(known)
        elif self.domains.known:
            self._search_again()

    def finish(self) -> None:
        if self.current.rounds:
            self.domains.leave(self.current.skip, self.current.rate)

    def observe(self, r: Round, plain_seconds: float) -> None:
        Optimizer.observe(self, r, plain_seconds)
        if self.current.rounds % LOOK_EVERY == 0:
            self._prices.observe(self.current.skip, self.measured.price(self.current.skip))

    def give_up(self, rate: float) -> bool:
        """The set before this one is gone back to, if that did pay; if not, others are believed by as much as this one
        keeps of what it had promised."""
        if self._former and self._former.rate > PAYS:
            self._adopt(self._former.skip)
            self._former = None
            return True
        self._kept = min(1.0, rate / max(self._promise(self.current.skip, self._live()), 1e-6))
        self._hopeless = self._kept * self._promise(self.current.skip, 1.0) <= PAYS
        return False

    def step(self, score: Scorer, progress: Progress) -> bool:
        self._total += self._budget.follow(progress)
        last = progress.prompt + progress.generated - 1  # the last token's position, after those that are cached
        self._remember(progress, last)
        if self.stopped is None and not progress.resting and self._matches():
            self._stop(f"matchness {self._live():.3f}")
        if self.stopped is not None or self._budget.left <= 0 or (progress.resting and self._hopeless):
            return False
        trial = self._trial = self._trial or self._propose(max(last - self._stages[0], progress.prompt))
        rows = self._stages[trial.stage]
        end = trial.next_end(rows, progress.prompt, last)  # only what the model itself has said is looked at
        cost = rows * trial.price
        if end is None or cost * (self._rate or UNMEASURED * progress.plain_seconds) > self._budget.left:
            return False
        found = score(trial.skip, rows, end)
        self._budget.spend(found.seconds)
        self._rate += (found.seconds / cost - self._rate) * (0.2 if self._rate else 1.0)
        trial.learn(found, end, self._known)
        return self._judge(trial, progress.resting)

    def _judge(self, trial: Trial, resting: bool) -> bool:
        """Whether drafting is to wake."""
        last = trial.stage == len(self._stages)
        verdict = self._would_pay(trial, last) if resting else self._leads(trial, last)
        self._trial = trial if verdict is None and not last else None
        if self._trial:
            return False
        self._sets.tell(trial.skip, trial.matchness)
        better = verdict is True
        one = Candidate(self._total, trial.kind, trial.skip, trial.matchness, None, better, trial.seconds)
        self.trace.append(one)
        self._without_gain = 0 if better else self._without_gain + 1
        if better:
            self._adopt(trial.skip)
            self._kept = 1.0
        elif self._without_gain > self.settings.tolerance:
            self._stop(f"{self._without_gain} steps without gain")
        if self.steps >= self.settings.max_steps:
            self._stop(f"{self.steps} steps")
        return better and resting

    def _leads(self, trial: Trial, last: bool) -> bool | None:
        """None: undecided."""
        if trial.lead < 0 or (trial.paired == 0 and last):
            return False
        if trial.paired < _LEAST or trial.lead < (_CLOSE if last else _SURE):
            return None
        live = self._live()  # on tokens that were drafted, which are not the hardest: the lead counts, not the share
        gained = (trial.ahead - trial.behind) / trial.paired
        return self._promise(trial.skip, min(live + gained, 1.0)) > self._promise(self.current.skip, live)

    def _would_pay(self, trial: Trial, last: bool) -> bool | None:
        if self._kept * self._promise(trial.skip, trial.held + 1 / sqrt(trial.rows)) < PAYS:
            return False
        enough = last or trial.rows >= _LEAST
        return True if enough and self._kept * self._promise(trial.skip, trial.held) > PAYS else None

    def _promise(self, skip: DraftSpec, held: float) -> float:
        return chain_rate(min(held, 1.0), self._prices.price(skip), self.measured.row, _LENGTHS)

    def _live(self) -> float:
        return self.measured.rates(self.current.skip).matchness

    def _matches(self) -> bool:
        live = self.measured.rates(self.current.skip)
        return live.outcomes >= 4 * self.settings.window and live.matchness > self.settings.max_score

    def _propose(self, start: int) -> Trial:
        self.steps += 1
        kind, skip = self._sets.next(self.steps)
        if kind == "random" and self.steps % _MOVES:
            kind, skip = "swap", self._sets.swapped(self.current.skip)
        return Trial(kind, skip, self._prices.price(skip), start, start)

    def _remember(self, progress: Progress, last: int) -> None:
        """The round drafted the places of its first tokens."""
        first = last + 1 - progress.tokens
        self._known.update(zip(range(first, last + 1), progress.right, strict=False))
        while len(self._known) > _KNOWN:
            del self._known[next(iter(self._known))]
        if progress.right:
            self._follow(sum(progress.right) / len(progress.right))

    def _follow(self, right: float) -> None:
        """Where drafts go far worse than when the search ended, another kind of text has begun."""
        self._rounds += 1
        self._lately += max(_SLOW, 1 / self._rounds) * (right - self._lately)
        if self.stopped is None:
            self._usual = self._lately
        elif self._lately < self._usual - _FALL:
            self._search_again()

    def _adopt(self, skip: DraftSpec) -> None:
        known = self._configs.setdefault(skip, DraftConfig(skip))
        if skip != self.current.skip:
            self._former, self.current = self.current, known
            self._known.clear()
            self._rounds = 0

    def _search_again(self) -> None:
        if self.stopped is not None and self._sets.count:
            self.stopped, self.steps, self._without_gain = None, 0, 0

    def _stop(self, why: str) -> None:
        self.stopped = why
        self._sets.close()
