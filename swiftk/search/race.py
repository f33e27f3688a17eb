"""The racer: candidates of several sources are scored beside what drafts, on the text's own tokens and within a budget
of time; the best drafts, until it loses or the text changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any

from ..draft.cost import Round
from ..draft.draft_spec import DraftSpec
from . import tuned
from .base import Candidate, DraftConfig, Here, Measured, Optimizer, Progress, Score, Scorer, Source, Window
from .budget import Budget
from .domains import Domains
from .evidence import Evidence
from .sublayers import SublayerPrices

_MOST = 200  # configurations that are remembered
_TRIES = 20  # proposals that are known already, in a row


class Race(Optimizer):
    """Successive halving by promised tokens per time, for ever: a change of text begins it again."""

    def __init__(
        self,
        measured: Measured,
        prices: SublayerPrices,
        sources: Sequence[Source],
        first: tuple[str, DraftSpec],
        forecast: Callable[[Any, float], float] | None = None,
        window: int = tuned.WINDOW,
    ) -> None:
        """first: kind and set that draft before anything is known. forecast: tokens per plain step, by rates and price;
        None: the planner's. window: tokens that candidates are scored on."""
        super().__init__(DraftConfig(first[1], first[0]), measured)
        self.prices, self.domains, self._sources, self._first, self._window = prices, Domains(), sources, first, window
        self._configs = {self.current.skip: self.current}
        self._evidence = Evidence(self.current, measured, prices.price, forecast or measured.forecast)
        self._budget = Budget()
        self._queue: deque[tuple[str, DraftSpec]] = deque()
        self._order = self._turns()
        self._asked = next(self._order)  # the source whose turn it is
        self._windows: list[Window] = []  # of this text
        self._since = self._end = self._window_count = 0  # positions from where text is scored, and after it
        self._total = self._opened = 0  # tokens, over the search's life; when it last began
        self._loss, self._usual, self._rounds = 0.0, 0.0, 0
        self._before = (self.current, 0.0)  # what drafted before, and its live rate
        self._proven: list[DraftConfig] = []  # that had drafted for a while at a gain, latest first

    def start(self, prompt: Sequence[int]) -> None:
        self._budget.start()
        self._evidence.kept = (1.0 + self._evidence.kept) / 2  # half of the doubt was about the text
        self._windows, self._since = [], 0
        known = self.domains.enter(prompt)
        if known is not None and known != self.current.skip:
            self._adopt(self._config("remembered", known))
        elif known is None and self.domains.known:
            self._reopen_sources()

    def observe(self, r: Round, plain_seconds: float) -> None:
        Optimizer.observe(self, r, plain_seconds)
        skip = self.current.skip
        self.prices.observe(skip, self.measured.price(skip))
        gained = r.tokens - self.measured.usual(r, skip)  # a machine that stutters is no change of text
        self._rounds += 1
        kept = 1 - tuned.MARGIN / tuned.PROOF**0.5  # what chance may take of a rate in so many rounds
        if self._rounds == tuned.PROOF and self.current.rate < kept * self._before[1]:
            self._disprove(self.current.rate)
            self._adopt(self._before[0])
            return
        self._usual += (gained - self._usual) * max(1 - tuned.MEMORY, 1 / self._rounds)
        loss = self._loss + self._usual - tuned.DRIFT - gained
        self._loss = max(0.0, loss) if self._rounds > tuned.FIRST else 0.0
        if self._loss > tuned.ALARM:
            self._reopen()

    def give_up(self, rate: float) -> bool:
        """Others are believed by as much as what drafts keeps of what it had promised, as far as its rounds show."""
        live = self.current
        promised = live.steps * self._evidence.promise(live, self.measured.rates(live.skip))
        kept = self._evidence.kept * min(1.0, (live.tokens + tuned.WINDOW) / (promised + tuned.WINDOW))
        others = [one for one in self._configs.values() if one.windows and one is not self.current]
        best = max(others, key=lambda one: one.promise, default=None)
        former, _ = self._before
        if former is not self.current and former.rate > tuned.PAYS:
            best = former
        elif best is None or kept * best.promise < tuned.PAYS:
            self._evidence.kept = kept
            if self._total - self._opened >= tuned.WINDOW * tuned.WINDOWS:
                self._reopen(tuned.FIRST)
            return False
        self._disprove(rate)
        self._adopt(best)
        return True

    def _disprove(self, rate: float) -> None:
        """What drafts brought so few tokens per plain step: its scores, which promised more, count for as much less."""
        self.current.kept = min(1.0, rate / max(self.current.promise, 1.0))
        self.current.windows.clear()

    def step(self, score: Scorer, progress: Progress) -> bool:
        self._total += self._budget.follow(progress)
        self._open_window(progress)
        self._evidence.rest(progress.resting)
        if not self._windows:
            return False
        job = self._evidence.missing(self._windows[-tuned.WINDOWS :]) or self._fresh(score)
        if job is None:
            return False
        what, window = job
        cost = self._cost(what, window)
        if not self._budget.affords(cost, progress.plain_seconds):
            return False
        began = self.measured.now
        if isinstance(what, DraftConfig):
            if self._queue and self._queue[0][1] == what.skip:
                self._queue.popleft()
            found = score(what.skip, window.tokens, window.end)
            self._learn(what, window, found)
            seconds = found.seconds
        else:
            seconds = self._ask(what, score, window)
        better = self._decide()
        self._budget.spend(cost, seconds, self.measured.now - began)
        return better

    def finish(self) -> None:
        if self.current.rounds:
            self.domains.leave(self.current.skip, self.current.rate)

    def state(self) -> dict[str, Any]:
        """What another process can go on from; nothing before a text has ended."""
        known = {domain.skip for domain in self.domains.known}
        rates = [
            {"skip": skip.to_dict(), "counts": [round(n, 2) for n in self.measured.rates(skip).counts]}
            for skip in known & self._configs.keys()
        ]
        return {"domains": self.domains.to_list(), "rates": rates} if known else {}

    def restore(self, state: Mapping[str, Any], n_layers: int) -> None:
        """What state() gave. ValueError, KeyError or TypeError, with nothing taken over, where it is something else."""
        found = []
        for known in state["rates"]:
            skip = DraftSpec.from_dict(known["skip"]).check(n_layers, ())
            rates = self.measured.no_rates(skip)
            rates.restore([float(n) for n in known["counts"]])
            found.append((skip, rates))
        self.domains.restore(state["domains"], n_layers, ())
        for skip, rates in found:
            self._config("remembered", skip)
            self.measured.learned(skip, rates)
        if self.domains.best:
            self._adopt(self._config("remembered", self.domains.best))

    def _turns(self) -> Any:
        """The sources: each once, and then in cycles, as often as its turns say."""
        yield from self._sources
        yield from cycle([source for source in reversed(self._sources) for _ in range(source.turns)])

    def _here(self, window: Window) -> Here:
        return Here(self.current.skip, self.measured.rates(self.current.skip), window)

    def _cost(self, what: DraftConfig | Source, window: Window) -> float:
        if isinstance(what, DraftConfig):
            return self.prices.price(what.skip) * window.tokens
        return what.cost(self._here(window)) or 0.0

    def _open_window(self, progress: Progress) -> None:
        """Scored tokens are generated ones: it is these that a draft must get right."""
        self._end = progress.prompt + progress.generated - 1
        last = self._windows[-1].end if self._windows else max(progress.prompt, self._since)
        tokens = self._window if self._windows else min(tuned.FIRST, self._window)
        if self._end - last >= tokens:
            self._windows.append(Window(self._window_count, tokens, self._end))
            self._window_count += 1

    def _fresh(self, score: Scorer) -> tuple[DraftConfig | Source, Window] | None:
        """A candidate that was not scored on this text, on a late window that what drafts was scored on; or a source of
        some, on the newest."""
        newest = self._windows[-1]
        late = [window for window in self._windows[-tuned.WINDOWS :] if window.number in self.current.windows]
        idle = 0
        for _ in range(_TRIES):
            while self._queue:
                config = self._config(*self._queue[0])
                window = next((w for w in reversed(late) if w.number not in config.windows), newest)
                if window.number not in config.windows and config is not self.current:
                    return config, window
                self._queue.popleft()
            cost = self._asked.cost(self._here(newest))
            if cost:
                return self._asked, newest
            if cost is None:
                idle += 1
                if idle > sum(source.turns for source in self._sources):
                    return None
            else:
                self._ask(self._asked, score, newest)
                continue
            self._asked = next(self._order)
        return None

    def _ask(self, source: Source, score: Scorer, window: Window) -> float:
        """Seconds of scores that came with the proposals, of which the best race. The next source has its turn."""
        seconds, scored = 0.0, []
        for kind, skip, found in source.propose(score, self._here(window)):
            if found is None:
                self._queue.append((kind, skip))
            else:
                seconds += found.seconds
                scored.append(self._config(kind, skip))
                self._evidence.learn(scored[-1], window, found)
        scored.sort(key=lambda one: one.promise, reverse=True)
        for one in scored[: tuned.FIELD]:
            self._join(one, seconds / len(scored))
        self._asked = next(self._order)
        return seconds

    def _learn(self, config: DraftConfig, window: Window, found: Score) -> None:
        self._evidence.learn(config, window, found)
        self._join(config, found.seconds)

    def _join(self, config: DraftConfig, seconds: float) -> None:
        if config is not self.current and config not in self._evidence.field:
            self._end_race(self._evidence.enter(config))
        self._note(config, seconds, False)

    def _decide(self) -> bool:
        """Whether a better way was found."""
        for one in self._evidence.ranked():
            verdict = self._evidence.judge(one)
            if verdict is not None:
                self._evidence.drop(one)
                self._end_race(one, verdict)
            if verdict:
                self._adopt(one)
                self._note(one, 0.0, True)
                return one.promise > tuned.PAYS
        return False

    def _end_race(self, one: DraftConfig | None, kept: bool = False) -> None:
        """Its race is over."""
        if one is not None:
            matchness = self._evidence.pooled(one, one.windows).matchness
            for source in self._sources:
                source.learn(one.skip, matchness, kept)

    def _adopt(self, config: DraftConfig) -> None:
        former = self.current
        proven = former.rounds >= tuned.PROOF // 2
        self._before = (former, former.rate if proven else 0.0)
        if proven and former.rate > tuned.PAYS:
            self._proven = [former, *(one for one in self._proven if one is not former)][: tuned.FIELD]
        self.current = config
        self._evidence.crown(config)
        self._loss, self._usual, self._rounds = 0.0, 0.0, 0

    def _reopen(self, recent: int = 0) -> None:
        """What was good before is tried first. What was seen so far says nothing about what follows, of which there are
        `recent` tokens already."""
        self._opened = self._total
        self._loss, self._rounds = 0.0, 0
        self._queue = deque([*((config.kind, config.skip) for config in self._proven), self._first])
        self._evidence.reopen()
        for config in self._configs.values():
            config.windows.clear()
            config.forget()
        self._before = (self.current, 0.0)
        self._windows, self._since = [], self._end - recent
        self._reopen_sources()

    def _reopen_sources(self) -> None:
        for source in self._sources:
            source.reopen()
        self._order = self._turns()
        self._asked = next(self._order)

    def _config(self, kind: str, skip: DraftSpec) -> DraftConfig:
        if skip not in self._configs:
            if len(self._configs) >= _MOST:
                self._forget()
            self._configs[skip] = DraftConfig(skip, kind)
        return self._configs[skip]

    def _forget(self) -> None:
        """Makes room: the least promising quarter goes."""
        playing = [self.current, self._before[0], *self._evidence.field, *self._proven]
        idle = [one for one in self._configs.values() if one not in playing]
        for one in sorted(idle, key=lambda one: one.promise)[: _MOST // 4]:
            del self._configs[one.skip]

    def _note(self, config: DraftConfig, seconds: float, kept: bool) -> None:
        """A score, or the adoption that it led to."""
        seen = self._evidence.pooled(config, config.windows)
        one = Candidate(self._total, config.kind, config.skip, seen.matchness, config.promise, kept, seconds)
        self.trace.append(one)
