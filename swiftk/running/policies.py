"""Policies: the draft plans of a text by its options, and the memory of searches from call to call."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from ..draft.draft_spec import TRIMMED, DraftSpec
from ..draft.sources import DRAFTERS
from ..draft.tree_rule import SelfSdRule, TreeRule
from ..files.model_files import ModelFiles
from ..options.drafting import Draft
from ..options.generate_options import GenerateOptions
from ..options.swift_settings import SwiftSettings
from ..search import searches
from ..search.base import Measured, Optimizer
from ..search.learned import SAVE, LearnedFile
from ..search.race import Race
from ..search.sublayers import SublayerPrices
from ..search.swift import Sets

_log = logging.getLogger("swiftk")
_MOST = 32  # searches kept in memory
_PLANNER = "planner"  # in the file


@dataclass(frozen=True, slots=True)
class Policy:
    """How one text is drafted."""

    drafting: str = "off"  # "planned", or "ruled": the planner says only whether
    plans: str = "none"  # "any" that is offered, "none", "fixed", or "directed" from round to round
    skips: tuple[DraftSpec, ...] = ()  # of plans that are named; "directed": of the first
    rule: TreeRule | None = None
    moving: SelfSdRule | None = None  # a rule that changes from round to round
    optimizer: Optimizer | None = None
    key: Any = None  # how callers asked for the optimizer

    @property
    def directed(self) -> bool:
        return self.optimizer is not None or self.moving is not None


class Policies:
    """A model's. Searches share what sublayers cost."""

    def __init__(
        self, files: ModelFiles, model: Any, measured: Measured, forms: tuple[str, ...], drafters: Sequence[Path] = ()
    ) -> None:
        """forms: what drafts may read but the model's own matrices; drafters: the folders of some of them."""
        self.n_layers = int(model.config["num_layers"])
        self._forms = forms
        self._config, self._shares, self._measured = model.config, model.copy_shares, measured
        self._prices = SublayerPrices(model.config, self._shares)
        self._kept: dict[Any, Optimizer] = {}
        self._guard = threading.Lock()
        device = "-".join(
            [model.device, model.isa, str(model.threads), model.kv_dtype, *(form for form in forms if form != TRIMMED)]
        )
        self._file = LearnedFile([files, *drafters], model.dtype, device)
        self._saved: dict[str, tuple[DraftSpec, float]] = {}
        self._planner_saved = -SAVE

    def take(self, o: GenerateOptions, skips: tuple[DraftSpec, ...]) -> Policy:
        """One text's, until it is given back. `skips`: none where nothing is skipped, so that no plan drafts."""
        draft = o.draft
        if draft is None:
            return Policy()
        drafter = DRAFTERS[draft.drafter]
        if not ((drafter.plan and skips) or drafter.sources):
            return Policy()
        if not drafter.plan or not skips:
            return Policy("planned")
        rule, moving = _rule(draft)
        drafting = "planned" if rule is None else "ruled"
        if draft.search is None:
            return Policy(drafting, "fixed", skips, rule, moving)
        if draft.search == "auto" and self._forms:
            return Policy(drafting, "any", (), rule, moving)
        key = (draft.search, rule, bool(o.temperature), draft.drafter)
        with self._guard:
            optimizer = self._kept.pop(key, None)
        if optimizer is None:
            optimizer = self._optimizer(draft.search, rule)
            if _lasting(draft):
                self._restore(_kind(o), optimizer)
        return Policy(drafting, "directed", (optimizer.current.skip,), rule, moving, optimizer, key)

    def give(self, policy: Policy) -> None:
        """Back, for the next text. Of two that texts had at a time the later one stays."""
        if policy.optimizer is None:
            return
        with self._guard:
            if len(self._kept) >= _MOST:
                del self._kept[next(iter(self._kept))]
            self._kept[policy.key] = policy.optimizer

    def keep(self, o: GenerateOptions, optimizer: Optimizer) -> None:
        """A text has ended."""
        kind, now = _kind(o), monotonic()
        before, at = self._saved.get(kind, (None, 0.0))
        if not _lasting(o.draft) or (before == optimizer.current.skip and now - at <= SAVE):
            return
        if state := optimizer.state():
            self._saved[kind] = (optimizer.current.skip, now)
            self._file.save(kind, state)

    def restore(self, engine: Any) -> None:
        """What its planner learned in processes before."""
        state = self._file.load(_PLANNER)
        if state is not None:
            self._take_over(engine.restore, state)

    def keep_planner(self, engine: Any) -> None:
        """A text of an engine's has ended."""
        now = monotonic()
        if self._file.enabled and now - self._planner_saved > SAVE:
            self._planner_saved = now
            self._file.save(_PLANNER, engine.state())

    def forget(self) -> None:
        """In memory; what is on disk stays, and is read again."""
        self._prices = SublayerPrices(self._config, self._shares)
        self._kept.clear()
        self._saved.clear()
        self._planner_saved = -SAVE

    def _optimizer(self, search: str | SwiftSettings, rule: TreeRule | None) -> Optimizer:
        if search == "exits":
            return searches.exits(self.n_layers, self._measured, self._prices, rule.max_draft if rule else None)
        if search == "auto":
            return searches.auto(self.n_layers, self._measured, self._prices)
        from ..papers.bayes import Suggestions
        from ..papers.swift import Swift

        suggestions = Suggestions(2 * self.n_layers - 4, search.seed, search.alpha, search.kappa, search.waits)
        sets = Sets(self.n_layers, search, self._prices.parameters, suggestions)
        return (
            Swift(self._measured, sets) if search.opt_interval else searches.swift(self._measured, self._prices, sets)
        )

    def _restore(self, kind: str, optimizer: Race) -> None:
        state = self._file.load(kind)
        if state is not None:
            self._take_over(lambda state: optimizer.restore(state, self.n_layers), state)

    def _take_over(self, restore: Callable[[Any], None], state: Any) -> None:
        try:
            restore(state)
        except (ValueError, KeyError, TypeError, RuntimeError) as error:
            _log.warning("what was learned before is not used: %s: %s", self._file.path, error)


def _kind(o: GenerateOptions) -> str:
    return "sampled" if o.temperature else "greedy"


def _lasting(draft: Draft) -> bool:
    """Whether processes to come are given what its search finds."""
    free = draft.rule == "time" and draft.max_draft is None and not draft.always
    return free and draft.search == "auto"


def _rule(draft: Draft) -> tuple[TreeRule | None, SelfSdRule | None]:
    """(the rule, one that moves); (None, None): by time."""
    if isinstance(draft.rule, TreeRule):
        return draft.rule, None
    moving = SelfSdRule(draft.max_draft) if draft.rule == "self-sd" else None
    return (moving.rule if moving else None), moving
