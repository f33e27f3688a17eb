"""The default: the set that promises most tokens per time, raced on the text's own tokens within a budget of time."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

from ..calibration import Calibration
from ..cost import Round
from ..skip import SkipSet
from ..sublayers import LOOK_EVERY, SublayerPrices
from ..way import Way
from .base import Candidate, Optimizer, Progress, Score, Scorer
from .budget import UNMEASURED, Budget
from .domains import Domains
from .exits import exits_to_score, most_promising, pass_price
from .proposals import PROGRAM, by_promise, first_candidates, sublayers, without_end
from .race import PAYS, Arm, Race

_WINDOW = 32  # tokens that candidates are scored on
_FIRST = 20  # of a text's first window
_DP_WIDTH = 24  # sublayers that a proposal by dynamic programming leaves out at most
_EXITS = ("exits", None)  # in the queue: those that one pass finds best
_DP = 0.5  # scored tokens that one of them costs
_DRIFT, _ALARM = 0.2, 12.0  # loss a round that is tolerated, and tokens of loss beyond it that re-open the search
_AGAIN = 256  # tokens behind which a search that found nothing may begin again
_PROOF, _DISPROVED = 60, 0.92  # rounds behind which a set must have kept its lead, live, over the one before
_TRIED = 4  # rounds behind which the one before it is gone back to, rather than to none
_SHARED = 0.1  # of tokens, by sources: what live drafts have seen is then not what scores see
_MOST_ARMS, _PROVEN = 200, 4
_MARGIN, _STRICT = 0.6, 1.0  # of the race; the latter where a whole copy drafts, beside which leads are small
_FRUGAL = {"eager": 0.02, "advance": 1.5}  # where a whole copy drafts, there is less left to find


class Auto(Optimizer):
    """Searches skip sets and early exits while it drafts with the best one found; again when the text changes."""

    def __init__(
        self,
        n_layers: int,
        make_way: Callable[[SkipSet], Way],
        prices: SublayerPrices,
        seed: int = 0,
        copies: Sequence[str] = (),
    ) -> None:
        self.n_layers, self.prices = n_layers, prices
        self.copies = by_promise(copies)  # of the weights, that drafts may read
        self.domains = Domains()
        self._make_way, self._rng = make_way, random.Random(seed)
        self._arms: dict[SkipSet, Arm] = {}
        self._queue: deque[tuple[str, SkipSet | None]] = deque(first_candidates(n_layers, self.copies))
        kind, first = self._queue.popleft()
        arm = self._arm(kind, first or SkipSet.uniform(n_layers))
        super().__init__(arm.way)
        margin = _STRICT if copies else _MARGIN
        self._race = Race(arm, prices.price, lambda: self.current.costs.rows.stages, self._shared, margin)
        self._budget = Budget(**_FRUGAL) if copies else Budget()
        self._windows: list[tuple[int, int]] = []  # (number, end) in this text
        self._since = self._end = self._window_count = 0  # positions from where text is scored, and behind it
        self._total = self._opened = 0  # tokens, over the optimizer's life; when the last search began
        self._rate = 0.0  # seconds of scoring a token, for a plan of a plain step's price
        self._thinking = 0.0  # seconds of judging what a score says
        self._guessed = 0.0  # share of tokens that sources proposed, lately
        self._loss, self._usual, self._rounds = 0.0, 0.0, 0
        self._before = (arm, 0.0)  # the incumbent before this one, and its live rate
        self._proven: list[Arm] = []  # that had drafted for a while at a gain
        self._moves = without_end(lambda: self.current.skip, n_layers, self._rng, self.copies)

    def start(self, prompt: Sequence[int]) -> None:
        self._budget.start()
        self._windows, self._since = [], 0
        known = self.domains.enter(prompt)
        if known is not None and known != self.current.skip:
            self._adopt(self._arm("remembered", known))

    def _shared(self) -> bool:
        return self._guessed > _SHARED

    def observe(self, r: Round) -> None:
        way = self.current
        way.observe(r)
        self._guessed += 0.1 * (r.guessed / (r.tokens + r.guessed) - self._guessed)
        if self._rounds % LOOK_EVERY == 0:
            self.prices.observe(way.skip, way.costs.draft_cost)
        gained = r.tokens - way.costs.usual(r) / way.costs.plain.value  # a machine that stutters is no change of text
        self._rounds += 1
        if self._rounds == _PROOF and way.rate < _DISPROVED * self._before[1]:
            self._race.incumbent.windows.clear()
            self._adopt(self._before[0])
            return
        self._usual += (gained - self._usual) * max(0.01, 1 / self._rounds)
        self._loss = max(0.0, self._loss + self._usual - _DRIFT - gained) if self._rounds > 24 else 0.0
        if self._loss > _ALARM:
            self._reopen()

    def give_up(self, rate: float) -> bool:
        """Others are believed by as much as the incumbent keeps of what it had promised."""
        live = self.current.gate.calibration
        kept = rate / max(self._race.promise(self._race.incumbent, live), 1e-6)
        others = [arm for arm in self._arms.values() if arm.windows and arm is not self._race.incumbent]
        best = max(others, key=lambda arm: arm.promise, default=None)
        former, _ = self._before
        if former is not self._race.incumbent and former.way.rounds >= _TRIED and former.way.rate > PAYS:
            self._race.incumbent.windows.clear()
            best = former
        elif best is None or kept * best.promise < PAYS:
            if self._total - self._opened >= _AGAIN:
                self._reopen(_FIRST)
            return False
        self._adopt(best)
        return True

    @property
    def untried(self) -> bool:
        return any(kind in ("exits", "exit") for kind, _ in self._queue)

    def step(self, score: Scorer, progress: Progress) -> bool:
        self._total += self._budget.follow(progress)
        self._open_window(progress)
        if not self._windows or self._budget.left <= 0:
            return False
        began = perf_counter()
        job = self._race.missing([number for number, _ in self._windows]) or self._fresh(score)
        found, better = 0.0, False
        if job and self._affordable(*job, progress.plain_seconds):
            arm, number = job
            found = self._run(score, arm, number) if arm else self._run_exits(score, number)
            better = self._decide()
            self._thinking += (perf_counter() - began - found - self._thinking) / 4
        self._budget.spend(max(found, perf_counter() - began))
        return better

    def _affordable(self, arm: Arm | None, number: int, plain: float) -> bool:
        price = self.prices.price(arm.way.skip) if arm else pass_price(len(self._exits()), self._head())
        if price * self._window(number)[0] * (self._rate or UNMEASURED * plain) + self._thinking <= self._budget.left:
            return True
        if arm is None:
            self._queue.appendleft(_EXITS)
        elif not arm.windows and arm is not self._race.incumbent:
            self._queue.appendleft((arm.kind, arm.way.skip))
        return False

    def _exits(self) -> list[int]:
        return exits_to_score(self.n_layers, self._head())

    def _head(self) -> float:
        return self.prices.price(SkipSet.early_exit(0))

    def finish(self) -> None:
        if self.current.rounds:
            self.domains.leave(self.current.skip, self.current.rate)

    def state(self) -> dict[str, Any]:
        """What another process can go on from."""
        known = {domain.skip for domain in self.domains.known}
        gates = [
            {"skip": skip.to_dict(), "calibration": self._arms[skip].way.gate.calibration.to_dict()}
            for skip in known & self._arms.keys()
        ]
        return {"domains": self.domains.to_list(), "gates": gates}

    def restore(self, state: Mapping[str, Any]) -> None:
        """What state() gave. ValueError, KeyError or TypeError, with nothing taken over, where it is something else."""
        gates = [
            (
                SkipSet.from_dict(gate["skip"]).check(self.n_layers, self.copies),
                Calibration.from_dict(gate["calibration"]),
            )
            for gate in state["gates"]
        ]
        self.domains.restore(state["domains"], self.n_layers, self.copies)
        for skip, calibration in gates:
            self._arm("remembered", skip).way.gate.calibration.merge(calibration)
        if self.domains.best:
            self._adopt(self._arm("remembered", self.domains.best))

    def _run(self, score: Scorer, arm: Arm, number: int) -> float:
        """Seconds of the score."""
        found = score(arm.way.skip, *self._window(number))
        self._price_scores(found.seconds, found.rows * self.prices.price(arm.way.skip))
        self._enter(arm, number, found)
        return found.seconds

    def _run_exits(self, score: Scorer, number: int) -> float:
        """Seconds of one pass for all exits, of which the most promising join the race."""
        layers = self._exits()
        found = dict(zip(layers, score.exits(layers, *self._window(number)), strict=True))
        seconds, rows = sum(one.seconds for one in found.values()), found[layers[0]].rows
        self._price_scores(seconds, rows * pass_price(len(layers), self._head()))
        seen = {layer: (one.matchness * one.rows, one.rows) for layer, one in found.items()}
        weights = self.copies[0] if self.copies else "own"

        def price(skip: SkipSet) -> float:
            return self.prices.price(replace(skip, weights=weights))

        for layer in most_promising(seen, price, self.current.costs.rows.marginal):
            skip = SkipSet.early_exit(layer)
            if self.copies:  # what the pass has read is not what such a draft would read
                self._queue.append(("exit", replace(skip, weights=weights)))
            else:
                self._enter(self._arm("exit", skip), number, found[layer])
        return seconds

    def _window(self, number: int) -> tuple[int, int]:
        """(tokens, end)"""
        return _FIRST if number == self._windows[0][0] else _WINDOW, dict(self._windows)[number]

    def _price_scores(self, seconds: float, of: float) -> None:
        rate = seconds / max(of, 1e-9)
        self._rate = rate if not self._rate else 0.8 * self._rate + 0.2 * rate

    def _enter(self, arm: Arm, number: int, found: Score) -> None:
        """What a score has shown."""
        self._race.learn(arm, number, found)
        if arm is not self._race.incumbent and arm not in self._race.field:
            self._race.enter(arm)
        self._note(arm, found.seconds, False)

    def _decide(self) -> bool:
        """Whether a better way was found."""
        for one in sorted(self._race.field, key=lambda arm: -self._race.lead(arm)[0]):
            verdict = self._race.judge(one)
            if verdict:
                self._adopt(one)
                self._note(one, 0.0, True)
                return one.promise > PAYS
            if verdict is False:
                self._race.drop(one)
        return False

    def _open_window(self, progress: Progress) -> None:
        """Scored tokens are generated ones: it is these that a draft must guess."""
        self._end = progress.prompt + progress.generated - 1
        last = self._windows[-1][1] if self._windows else max(progress.prompt, self._since)
        if self._end - last >= (_WINDOW if self._windows else _FIRST):
            self._windows.append((self._window_count, self._end))
            self._window_count += 1

    def _fresh(self, score: Scorer) -> tuple[Arm | None, int] | None:
        """A candidate that was not scored on this text, on its newest window; None in its place: all exits at once."""
        newest = self._windows[-1][0]
        for _ in range(20):
            if not self._queue:
                self._queue.append(next(self._moves))
            kind, skip = self._queue.popleft()
            if kind == "exits":
                return None, newest
            if skip is None:
                if _DP * _DP_WIDTH * self._rate > self._budget.left:
                    self._queue.appendleft((kind, skip))
                    return None
                self._queue.extendleft(self._by_programming(score))
                continue
            arm = self._arm(kind, skip)
            if newest not in arm.windows and arm is not self._race.incumbent:
                return arm, newest
        return None

    def _by_programming(self, score: Scorer) -> list[tuple[str, SkipSet]]:
        """As many sublayers out as the incumbent leaves out, two fifths and three fifths of those that may be."""
        inner = 2 * self.n_layers - 4
        count = len(sublayers(self.current.skip, self.n_layers))
        counts = {n for n in (count, round(0.4 * inner), round(0.6 * inner)) if 0 < n <= min(_DP_WIDTH, inner)}
        sets = score.propose(max(counts)) if counts else []
        return [("dp", replace(sets[n - 1], weights=self.current.skip.weights)) for n in counts]

    def _adopt(self, arm: Arm) -> None:
        former = self._race.incumbent
        proven = former.way.rounds >= _PROOF // 2
        self._before = (former, former.way.rate if proven else 0.0)
        if proven and former.way.rate > PAYS:
            self._prove(former)
        self._race.crown(arm)
        self.current = arm.way
        self._loss, self._usual, self._rounds = 0.0, 0.0, 0

    def _prove(self, arm: Arm) -> None:
        """Latest first."""
        self._proven = [arm, *(one for one in self._proven if one is not arm)][:_PROVEN]

    def _reopen(self, recent: int = 0) -> None:
        """Sets that were good before are tried first. What was seen of them so far says nothing about what follows, of
        which there are `recent` tokens already."""
        self._budget.reopen()
        self._opened = self._total
        self._loss, self._rounds = 0.0, 0
        first, *others = first_candidates(self.n_layers, self.copies)
        again = [*((arm.kind, arm.way.skip) for arm in self._proven), first, *others, PROGRAM]
        self._queue = deque({skip or kind: (kind, skip) for kind, skip in again}.values())
        self._race.reopen()
        for arm in self._arms.values():
            arm.windows.clear()
            arm.way.forget()
        self._before = (self._race.incumbent, 0.0)
        self._windows, self._since = [], self._end - recent

    def _arm(self, kind: str, skip: SkipSet) -> Arm:
        if skip not in self._arms:
            if len(self._arms) >= _MOST_ARMS:
                self._forget()
            self._arms[skip] = Arm(self._make_way(skip), kind)
        return self._arms[skip]

    def _forget(self) -> None:
        """Makes room: the least promising quarter goes."""
        playing = [self._race.incumbent, self._before[0], *self._race.field, *self._proven]
        idle = [skip for skip, arm in self._arms.items() if arm not in playing]
        for skip in sorted(idle, key=lambda skip: self._arms[skip].promise)[: _MOST_ARMS // 4]:
            del self._arms[skip]

    def _note(self, arm: Arm, seconds: float, kept: bool) -> None:
        """A score, or the adoption that it led to."""
        seen = arm.pooled(arm.windows)
        self.trace.append(Candidate(self._total, arm.kind, arm.way.skip, seen.matchness, arm.promise, kept, seconds))
