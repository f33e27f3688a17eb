"""The default where the model has no copies of its weights: the set that promises most tokens per time, raced on the
text's own tokens within a budget of time."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from ..draft.cost import Round
from ..draft.draft_spec import DraftSpec
from .base import Candidate, DraftConfig, Measured, Optimizer, Progress, Score, Scorer
from .budget import UNMEASURED, Budget
from .domains import Domains
from .exits import exits_to_score, most_promising, pass_price
from .proposals import PROGRAM, first_candidates, sublayers, without_end
from .race import PAYS, Race
from .sublayers import LOOK_EVERY, SublayerPrices

_WINDOW = 32  # tokens that candidates are scored on
_FIRST = 20  # tokens of a text's first window
_DP_WIDTH = 24  # sublayers that a proposal by dynamic programming leaves out at most
_EXITS = ("exits", None)  # in the queue: those that one pass finds best
_DP = 0.5  # scored tokens that one of them costs
_DRIFT, _ALARM = 0.2, 12.0  # loss a round that is tolerated, and tokens of loss beyond it that re-open the search
_AGAIN = 256  # tokens after which a search that found nothing may begin again
_PROOF, _DISPROVED = 60, 0.92  # rounds after which a set must have kept its lead, live, over the one before
_TRIED = 4  # rounds after which the one before it is gone back to, rather than to none
_SHARED = 0.1  # share of tokens by sources, beyond which live drafts do not see what scores see
_MOST, _PROVEN = 200, 4
_MARGIN = 0.6  # the race's: a lead counts beyond this over the root of the outcomes


class Auto(Optimizer):
    """Searches skip sets and early exits while it drafts with the best one found; again when the text changes."""

    def __init__(self, n_layers: int, measured: Measured, prices: SublayerPrices, seed: int = 0) -> None:
        self.n_layers, self.prices = n_layers, prices
        self.domains = Domains()
        self._rng = random.Random(seed)
        self._configs: dict[DraftSpec, DraftConfig] = {}
        self._queue: deque[tuple[str, DraftSpec | None]] = deque(first_candidates(n_layers))
        kind, first = self._queue.popleft()
        super().__init__(self._config(kind, first or DraftSpec.uniform(n_layers)), measured)
        self._race = Race(self.current, measured, prices.price, self._shared, _MARGIN)
        self._budget = Budget()
        self._windows: list[tuple[int, int]] = []  # (number, end) in this text
        self._since = self._end = self._window_count = 0  # positions from where text is scored, and after it
        self._total = self._opened = 0  # tokens, over the optimizer's life; when the last search began
        self._rate = 0.0  # seconds of scoring a token, for a plan of a plain step's price
        self._thinking = 0.0  # seconds of judging what a score says
        self._proposed = 0.0  # share of tokens that sources proposed, lately
        self._loss, self._usual, self._rounds = 0.0, 0.0, 0
        self._before = (self.current, 0.0)  # the incumbent before this one, and its live rate
        self._proven: list[DraftConfig] = []  # that had drafted for a while at a gain
        self._moves = without_end(lambda: self.current.skip, n_layers, self._rng)

    def start(self, prompt: Sequence[int]) -> None:
        self._budget.start()
        self._windows, self._since = [], 0
        known = self.domains.enter(prompt)
        if known is not None and known != self.current.skip:
            self._adopt(self._config("remembered", known))

    def _shared(self) -> bool:
        return self._proposed > _SHARED

    def observe(self, r: Round, plain_seconds: float) -> None:
        Optimizer.observe(self, r, plain_seconds)
        skip = self.current.skip
        self._proposed += 0.1 * (r.proposed / (r.tokens + r.proposed) - self._proposed)
        if self._rounds % LOOK_EVERY == 0:
            self.prices.observe(skip, self.measured.price(skip))
        gained = r.tokens - self.measured.usual(r, skip)  # a machine that stutters is no change of text
        self._rounds += 1
        if self._rounds == _PROOF and self.current.rate < _DISPROVED * self._before[1]:
            self._race.incumbent.windows.clear()
            self._adopt(self._before[0])
            return
        self._usual += (gained - self._usual) * max(0.01, 1 / self._rounds)
        self._loss = max(0.0, self._loss + self._usual - _DRIFT - gained) if self._rounds > 24 else 0.0
        if self._loss > _ALARM:
            self._reopen()

    def give_up(self, rate: float) -> bool:
        """Others are believed by as much as the incumbent keeps of what it had promised."""
        live = self.measured.rates(self.current.skip)
        kept = rate / max(self._race.promise(self._race.incumbent, live), 1e-6)
        others = [config for config in self._configs.values() if config.windows and config is not self._race.incumbent]
        best = max(others, key=lambda config: config.promise, default=None)
        former, _ = self._before
        if former is not self._race.incumbent and former.rounds >= _TRIED and former.rate > PAYS:
            self._race.incumbent.windows.clear()
            best = former
        elif best is None or kept * best.promise < PAYS:
            if self._total - self._opened >= _AGAIN:
                self._reopen(_FIRST)
            return False
        self._adopt(best)
        return True

    def step(self, score: Scorer, progress: Progress) -> bool:
        self._total += self._budget.follow(progress)
        self._open_window(progress)
        if not self._windows or self._budget.left <= 0:
            return False
        began = self.measured.now
        job = self._race.missing([number for number, _ in self._windows]) or self._fresh(score)
        found, better = 0.0, False
        if job and self._affordable(*job, progress.plain_seconds):
            config, number = job
            found = self._run(score, config, number) if config else self._run_exits(score, number)
            better = self._decide()
            self._thinking += (self.measured.now - began - found - self._thinking) / 4
        self._budget.spend(max(found, self.measured.now - began))
        return better

    def _affordable(self, config: DraftConfig | None, number: int, plain: float) -> bool:
        price = self.prices.price(config.skip) if config else pass_price(len(self._exits()), self._head())
        if price * self._window(number)[0] * (self._rate or UNMEASURED * plain) + self._thinking <= self._budget.left:
            return True
        if config is None:
            self._queue.appendleft(_EXITS)
        elif not config.windows and config is not self._race.incumbent:
            self._queue.appendleft((config.kind, config.skip))
        return False

    def _exits(self) -> list[int]:
        return exits_to_score(self.n_layers, self._head())

    def _head(self) -> float:
        return self.prices.price(DraftSpec.early_exit(0))

    def finish(self) -> None:
        if self.current.rounds:
            self.domains.leave(self.current.skip, self.current.rate)

    def state(self) -> dict[str, Any]:
        """What another process can go on from; nothing before a text has ended."""
        if not self.domains.known:
            return {}
        known = {domain.skip for domain in self.domains.known}
        rates = [
            {"skip": skip.to_dict(), "counts": [round(n, 2) for n in self.measured.rates(skip).counts]}
            for skip in known & self._configs.keys()
        ]
        return {"domains": self.domains.to_list(), "rates": rates}

    def restore(self, state: Mapping[str, Any]) -> None:
        """What state() gave. ValueError, KeyError or TypeError, with nothing taken over, where it is something else."""
        found = []
        for known in state["rates"]:
            skip = DraftSpec.from_dict(known["skip"]).check(self.n_layers, ())
            rates = self.measured.no_rates(skip)
            rates.restore([float(n) for n in known["counts"]])
            found.append((skip, rates))
        self.domains.restore(state["domains"], self.n_layers, ())
        for skip, rates in found:
            self._config("remembered", skip)
            self.measured.learned(skip, rates)
        if self.domains.best:
            self._adopt(self._config("remembered", self.domains.best))

    def _run(self, score: Scorer, config: DraftConfig, number: int) -> float:
        """Seconds of the score."""
        found = score(config.skip, *self._window(number))
        self._price_scores(found.seconds, found.rows * self.prices.price(config.skip))
        self._enter(config, number, found)
        return found.seconds

    def _run_exits(self, score: Scorer, number: int) -> float:
        """Seconds of one pass for all exits, of which the most promising join the race."""
        layers = self._exits()
        found = dict(zip(layers, score.exits(layers, *self._window(number)), strict=True))
        seconds, rows = sum(one.seconds for one in found.values()), found[layers[0]].rows
        self._price_scores(seconds, rows * pass_price(len(layers), self._head()))
        seen = {layer: (one.matchness * one.rows, one.rows) for layer, one in found.items()}
        for layer in most_promising(seen, self.prices.price, self.measured.row):
            self._enter(self._config("exit", DraftSpec.early_exit(layer)), number, found[layer])
        return seconds

    def _window(self, number: int) -> tuple[int, int]:
        """(tokens, end)"""
        return _FIRST if number == self._windows[0][0] else _WINDOW, dict(self._windows)[number]

    def _price_scores(self, seconds: float, of: float) -> None:
        rate = seconds / max(of, 1e-9)
        self._rate = rate if not self._rate else 0.8 * self._rate + 0.2 * rate

    def _enter(self, config: DraftConfig, number: int, found: Score) -> None:
        """What a score has shown."""
        self._race.learn(config, number, found)
        if config is not self._race.incumbent and config not in self._race.field:
            self._race.enter(config)
        self._note(config, found.seconds, False)

    def _decide(self) -> bool:
        """Whether a better way was found."""
        for one in sorted(self._race.field, key=lambda config: -self._race.lead(config)[0]):
            verdict = self._race.judge(one)
            if verdict:
                self._adopt(one)
                self._note(one, 0.0, True)
                return one.promise > PAYS
            if verdict is False:
                self._race.drop(one)
        return False

    def _open_window(self, progress: Progress) -> None:
        """Scored tokens are generated ones: it is these that a draft must get right."""
        self._end = progress.prompt + progress.generated - 1
        last = self._windows[-1][1] if self._windows else max(progress.prompt, self._since)
        if self._end - last >= (_WINDOW if self._windows else _FIRST):
            self._windows.append((self._window_count, self._end))
            self._window_count += 1

    def _fresh(self, score: Scorer) -> tuple[DraftConfig | None, int] | None:
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
            config = self._config(kind, skip)
            if newest not in config.windows and config is not self._race.incumbent:
                return config, newest
        return None

    def _by_programming(self, score: Scorer) -> list[tuple[str, DraftSpec]]:
        """As many sublayers out as the incumbent leaves out, two fifths and three fifths of those that may be."""
        inner = 2 * self.n_layers - 4
        count = len(sublayers(self.current.skip, self.n_layers))
        counts = {n for n in (count, round(0.4 * inner), round(0.6 * inner)) if 0 < n <= min(_DP_WIDTH, inner)}
        sets = score.propose(max(counts)) if counts else []
        return [("dp", sets[n - 1]) for n in counts] if sets else []

    def _adopt(self, config: DraftConfig) -> None:
        former = self._race.incumbent
        proven = former.rounds >= _PROOF // 2
        self._before = (former, former.rate if proven else 0.0)
        if proven and former.rate > PAYS:
            self._prove(former)
        self._race.crown(config)
        self.current = config
        self._loss, self._usual, self._rounds = 0.0, 0.0, 0

    def _prove(self, config: DraftConfig) -> None:
        """Latest first."""
        self._proven = [config, *(other for other in self._proven if other is not config)][:_PROVEN]

    def _reopen(self, recent: int = 0) -> None:
        """Sets that were good before are tried first. What was seen of them so far says nothing about what follows, of
        which there are `recent` tokens already."""
        self._opened = self._total
        self._loss, self._rounds = 0.0, 0
        first, *others = first_candidates(self.n_layers)
        again = [*((config.kind, config.skip) for config in self._proven), first, *others, PROGRAM]
        self._queue = deque({skip or kind: (kind, skip) for kind, skip in again}.values())
        self._race.reopen()
        for config in self._configs.values():
            config.windows.clear()
            config.forget()
        self._before = (self._race.incumbent, 0.0)
        self._windows, self._since = [], self._end - recent

    def _config(self, kind: str, skip: DraftSpec) -> DraftConfig:
        if skip not in self._configs:
            if len(self._configs) >= _MOST:
                self._forget()
            self._configs[skip] = DraftConfig(skip, kind)
        return self._configs[skip]

    def _forget(self) -> None:
        """Makes room: the least promising quarter goes."""
        playing = [self._race.incumbent, self._before[0], *self._race.field, *self._proven]
        idle = [skip for skip, config in self._configs.items() if config not in playing]
        for skip in sorted(idle, key=lambda skip: self._configs[skip].promise)[: _MOST // 4]:
            del self._configs[skip]

    def _note(self, config: DraftConfig, seconds: float, kept: bool) -> None:
        """A score, or the adoption that it led to."""
        seen = self._race.pooled(config, config.windows)
        one = Candidate(self._total, config.kind, config.skip, seen.matchness, config.promise, kept, seconds)
        self.trace.append(one)
