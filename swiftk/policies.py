"""What a model's drafting goes by, from call to call: one pacer and one optimizer for each way in which callers ask."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from .calibration import THINNED, WHOLE
from .cost import CostModel, Mean, RowPrices
from .gate import DraftRule, FixedGate, SourceGate, make_gate
from .learned import LearnedFile
from .optimizers.auto import Auto
from .optimizers.base import Optimizer
from .optimizers.exits import Exits
from .optimizers.swift_settings import SwiftSettings
from .options import GenerateOptions
from .pacing import Pacer
from .skip import SkipSet
from .sources import DRAFTERS, Sources
from .sublayers import SublayerPrices
from .way import Way

_log = logging.getLogger("swiftk")
_MOST = 32  # kept in memory
_PLANNER = "planner"  # in the file
_SAVE = 30.0  # seconds between two writes of what was learned, unless another set drafts now


@dataclass(frozen=True, slots=True)
class Policy:
    """How one text is drafted."""

    key: Any  # how callers asked for it
    pacer: Pacer
    optimizer: Optimizer
    guesser: SourceGate | None  # where sources are asked


class Policies:
    """Costs are shared: a plain step, a row and a sublayer cost what they do however a text is drafted."""

    def __init__(self, folder: Path, model: Any) -> None:
        self.n_layers = int(model.config["num_layers"])
        self.plain = Mean()  # seconds of a plain step
        self.copies = tuple(model.copies)
        self._config, self._rows = model.config, RowPrices()
        self._shares = model.copy_shares
        self._prices = SublayerPrices(model.config, self._shares)
        self._kept: dict[Any, Policy] = {}
        self._guard = threading.Lock()
        self._file = LearnedFile(
            folder, model.dtype, "-".join([model.device, model.isa, str(model.threads), *self.copies])
        )
        self._saved: dict[str, tuple[SkipSet, float]] = {}
        self._planner_saved = -_SAVE

    def take(self, o: GenerateOptions, skip: SkipSet | None) -> Policy:
        """What was learned about drafting like this in calls before, or a new start; one text's until it is given back.
        `skip`: None where nothing is skipped, so that no plan drafts."""
        free = o.optimizer is not None and o.assistant_early_exit in (None, "auto") and o.skip == "auto"
        drafter = DRAFTERS[o.drafter_name]
        plan = drafter.plan and skip is not None
        mode = o.speculate if plan or drafter.sources else False
        sampled = bool(o.temperature)
        search = (o.optimizer, o.assistant_early_exit) if free else None
        key = (skip, search, o.swift, o.gate, o.max_draft, o.kvq, mode, sampled, o.drafter_name, o.sources)
        with self._guard:
            kept = self._kept.pop(key, None)
        if kept is not None:
            return kept
        guesser = SourceGate(Sources(drafter)) if drafter.sources else None
        optimizer = self._optimizer(o, skip or SkipSet(), free, guesser) if plan else self._without_plan(guesser)
        if self._lasting(o, optimizer):
            self._restore(_kind(o), optimizer)
        return Policy(key, Pacer(optimizer.current.costs, mode, plan), optimizer, guesser)

    def give(self, policy: Policy) -> None:
        """Back, for the next text. Of two that texts had at a time the later one stays."""
        with self._guard:
            if len(self._kept) >= _MOST:
                del self._kept[next(iter(self._kept))]
            self._kept[policy.key] = policy

    def keep(self, o: GenerateOptions, optimizer: Optimizer) -> None:
        """A text has ended."""
        kind, now = _kind(o), monotonic()
        if not self._lasting(o, optimizer) or not optimizer.domains.known:
            return
        before, at = self._saved.get(kind, (None, 0.0))
        if before != optimizer.current.skip or now - at > _SAVE:
            self._saved[kind] = (optimizer.current.skip, now)
            self._file.save(kind, optimizer.state())

    def restore(self, engine: Any) -> None:
        """What its planner learned in processes before."""
        state = self._file.load(_PLANNER)
        if state is None:
            return
        try:
            engine.restore(state)
        except (ValueError, KeyError, TypeError, RuntimeError) as error:
            _log.warning("what was learned before is not used: %s: %s", self._file.path, error)

    def keep_planner(self, engine: Any) -> None:
        """A text of an engine's has ended."""
        now = monotonic()
        if self._file.enabled and now - self._planner_saved > _SAVE:
            self._planner_saved = now
            self._file.save(_PLANNER, engine.state())

    def forget(self) -> None:
        """In memory; what is on disk stays, and is read again."""
        self.plain, self._rows = Mean(), RowPrices()
        self._prices = SublayerPrices(self._config, self._shares)
        self._kept.clear()
        self._saved.clear()
        self._planner_saved = -_SAVE

    def way(self, o: GenerateOptions, skip: SkipSet, guesser: SourceGate | None = None) -> Way:
        sources = guesser.sources if guesser else None
        prior = THINNED if skip.thinned else WHOLE
        return Way(skip, self._costs(skip), make_gate(o.gate, o.max_draft, o.optimizer, sources, prior))

    def _costs(self, skip: SkipSet) -> CostModel:
        return CostModel(prior=self._prices.price(skip), plain=self.plain, rows=self._rows)

    def _without_plan(self, guesser: SourceGate | None) -> Optimizer:
        return Optimizer(Way(SkipSet(), self._costs(SkipSet()), guesser or FixedGate(DraftRule(max_draft=0))))

    def _optimizer(self, o: GenerateOptions, skip: SkipSet, free: bool, guesser: SourceGate | None) -> Optimizer:
        def make_way(one: SkipSet) -> Way:
            return self.way(o, one, guesser)

        if o.assistant_early_exit == "auto":
            return Exits(self.n_layers, make_way, self._prices)
        if free and o.optimizer == "auto":
            return Auto(self.n_layers, make_way, self._prices, copies=self.copies)
        if free and o.optimizer == "swift":
            return self._swift(o.swift or SwiftSettings(), make_way)
        return Optimizer(make_way(skip))

    def _swift(self, settings: SwiftSettings, make_way: Callable[[SkipSet], Way]) -> Optimizer:
        from .optimizers.swift import Swift
        from .optimizers.timed_swift import TimedSwift

        parameters = self._prices.parameters
        if settings.opt_interval is None:
            return TimedSwift(self.n_layers, make_way, self._prices, settings, parameters)
        return Swift(self.n_layers, make_way, settings, parameters)

    def _lasting(self, o: GenerateOptions, optimizer: Optimizer) -> bool:
        return isinstance(optimizer, Auto) and o.gate == "auto" and o.max_draft is None and o.speculate is True

    def _restore(self, kind: str, optimizer: Auto) -> None:
        state = self._file.load(kind)
        if state is None:
            return
        try:
            optimizer.restore(state)
        except (ValueError, KeyError, TypeError) as error:
            _log.warning("what was learned before is not used: %s: %s", self._file.path, error)


def _kind(o: GenerateOptions) -> str:
    return "sampled" if o.temperature else "greedy"
