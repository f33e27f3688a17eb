"""How a text is drafted, as one value: the option draft=. The older options that say so resolve to it in resolve()."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any

from ..draft.draft_spec import DraftSpec
from ..draft.source_settings import SourceSettings
from ..draft.sources import DRAFTERS
from ..draft.tree_rule import MAX_DRAFT, TreeRule
from ..errors import InvalidArgument, InvalidOption
from .swift_settings import SwiftSettings
from .values import Flag, Integer, settings

SAYS_HOW = (
    *("speculate", "skip", "assistant_early_exit", "gate", "max_draft"),
    *("drafter", "optimizer", "swift", "sources"),
)
Skip = DraftSpec | Iterable[int] | Path | str | None
_SOURCES = SourceSettings()


@dataclass(frozen=True, slots=True, repr=False)
class Draft:
    """How a text is drafted. Every Draft gives the same text; a bad one costs speed.

    drafter (str): the name of what proposes tokens. None: "auto" if nothing else is given, else "plan".
    skip (DraftSpec, list of int, path, str or None): what a draft leaves out or reads, as generate(skip=) takes it.
        "auto": `search` finds it. None: no draft plan.
    search (str, SwiftSettings or None): "auto"; "exits": early exits alone; SwiftSettings: SWIFT's; None: the uniform
        set drafts for ever.
    rule (str, TreeRule or mapping of its fields): when a draft ends. "time": by measured time; "self-sd": by a
        confidence that moves.
    max_draft (int or None): maximum number of tokens drafted in a round, 1 to 63.
    always (bool): draft in every round, also where it loses time.
    sources (SourceSettings or mapping of its fields): settings of the sources that cost no draft step.

    Raises InvalidOption for a value of the wrong type, and InvalidArgument for one out of range and for two that
    exclude each other.
    """

    drafter: str | None = None
    skip: Skip = "auto"
    search: str | SwiftSettings | None = "auto"
    rule: str | TreeRule = "time"
    max_draft: int | None = None
    always: bool = False
    sources: SourceSettings = _SOURCES

    def __post_init__(self) -> None:
        self._read()
        named = self.drafter
        if isinstance(self.search, SwiftSettings) and self.rule == "time":
            self._put("rule", TreeRule(max_draft=self.max_draft or TreeRule().max_draft))
        if isinstance(self.rule, TreeRule) and self.max_draft is not None:
            self._put("rule", replace(self.rule, max_draft=min(self.rule.max_draft, self.max_draft)))
            self._put("max_draft", None)
        if named is None:
            free = self.skip in ("auto", None) and self.search == "auto" and self.rule == "time"
            self._put("drafter", "auto" if free else "plan")
        self._check(named)
        if self.skip != "auto" or DRAFTERS[str(self.drafter)].beside:
            self._put("search", None)  # a given draft plan is never changed

    def __repr__(self) -> str:
        other = {one.name: value for one in fields(self) if (value := getattr(self, one.name)) != one.default}
        return f"Draft({', '.join(f'{name}={value!r}' for name, value in other.items())})"

    @classmethod
    def plan(cls, skip: Skip, **more: Any) -> Draft:
        """Drafts with the model itself. skip: a DraftSpec, a list of layers, the path of a file of `swiftk tune`, or
        the weights to read ("int4", "drafter-2"). more: other fields of Draft."""
        return cls(skip=skip, **more)

    @classmethod
    def early_exit(cls, layers: int | str = "auto", **more: Any) -> Draft:
        """LayerSkip's draft, the first `layers` layers; "auto": the fastest number of them, searched as DEL does. more:
        other fields of Draft. Raises InvalidOption if `layers` is neither."""
        found = Integer(0, 1 << 16, also=("auto",)).read("[generate] early_exit", layers)
        return cls(search="exits", **more) if found == "auto" else cls(skip=DraftSpec.early_exit(found), **more)

    @classmethod
    def swift(cls, **numbers: Any) -> Draft:
        """SWIFT's search within a budget of time. numbers: fields of SwiftSettings, and rule, max_draft and always of
        Draft. Raises InvalidArgument for others."""
        own = {name: numbers.pop(name) for name in ("rule", "max_draft", "always") if name in numbers}
        return cls(search=settings(SwiftSettings, numbers, "swift"), **own)

    @classmethod
    def swift_paper(cls, **numbers: Any) -> Draft:
        """SWIFT as its paper has it: a step before each round, which always drafts. numbers: as swift()'s."""
        return cls.swift(**{"opt_interval": 1, **numbers, "always": True})

    @classmethod
    def self_sd(cls, skip: Skip, **more: Any) -> Draft:
        """Self-SD's rule, with a draft plan that `swiftk tune --optimizer self-sd` found. more: fields of Draft."""
        return cls(skip=skip, rule="self-sd", **more)

    @classmethod
    def eagle_tree(
        cls, beam: int = 10, max_draft: int = 6, max_nodes: int = 60, head: str = "drafter", **more: Any
    ) -> Draft:
        """EAGLE-2's tree, by the loaded head of that name; its paper's numbers are the defaults. more: other fields of
        Draft."""
        return cls(skip=head, rule=TreeRule(beam=beam, max_draft=max_draft, max_nodes=max_nodes), **more)

    def _put(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _read(self) -> None:
        if not (self.drafter is None or self.drafter in tuple(DRAFTERS)):
            raise InvalidArgument(f"[generate] drafter={self.drafter!r}, want one of {', '.join(map(repr, DRAFTERS))}")
        skip = self.skip
        other = isinstance(skip, (bytes, Mapping)) or (isinstance(skip, str) and not skip)
        if other or not (skip is None or isinstance(skip, (str, os.PathLike, DraftSpec, Iterable))):
            raise InvalidArgument(
                f"[generate] skip={skip!r}, want 'auto', None, a DraftSpec, a list of layers, or a path"
            )
        if not (skip is None or isinstance(skip, (str, os.PathLike, DraftSpec))):
            self._put("skip", DraftSpec.layers(skip))
        if not (self.search in ("auto", "exits", None) or isinstance(self.search, SwiftSettings)):
            raise InvalidArgument(f"[generate] search={self.search!r}, want 'auto', 'exits', None or SwiftSettings")
        if isinstance(self.rule, Mapping):
            self._put("rule", settings(TreeRule, self.rule, "rule"))
        if not (isinstance(self.rule, TreeRule) or self.rule in ("time", "self-sd")):
            raise InvalidArgument(f"[generate] rule={self.rule!r}, want 'time', 'self-sd' or a TreeRule")
        Integer(1, MAX_DRAFT).read("[generate] max_draft", self.max_draft)
        Flag().read("[generate] always", self.always)
        self._put("sources", settings(SourceSettings, self.sources, "sources"))

    def _check(self, named: str | None) -> None:
        """Two values that exclude each other. named: the drafter that was given."""
        drafter, sources = DRAFTERS[str(self.drafter)], self.sources
        if sources != _SOURCES and not drafter.sources:
            raise InvalidArgument(
                f"[generate] sources= has settings of sources, and drafter={self.drafter!r} uses none"
            )
        if sources.corpus is not None and self.drafter not in ("auto", "corpus"):
            raise InvalidArgument(
                f"[generate] sources= has a corpus, and drafter={self.drafter!r} does not use it, want 'auto' or "
                "'corpus'"
            )
        if self.skip != "auto" and (self.search == "exits" or isinstance(self.search, SwiftSettings)):
            raise InvalidArgument(
                f"[generate] search={self.search!r} finds what a draft leaves out, and skip={self.skip!r} gives it; "
                "leave one of them out"
            )
        if self.rule == "self-sd" and self.skip == "auto":
            raise InvalidArgument(
                "[generate] optimizer='self-sd' searches offline: run `swiftk tune MODEL --optimizer self-sd --data "
                "FILE --out card.json` and give skip='card.json'"
            )
        if named in (None, "plan"):
            return
        if self.rule != "time":
            raise InvalidArgument(
                f"[generate] drafter={named!r} is chosen by time, and rule={self.rule!r} is not time; leave one of "
                "them out, or take drafter='plan'"
            )
        if not drafter.plan and (self.skip not in ("auto", None) or self.search == "exits"):
            raise InvalidArgument(
                f"[generate] drafter={named!r} skips no layers, and skip= or an early exit names some; leave one out"
            )


MAKERS: dict[str, Callable[..., Draft]] = {
    name: getattr(Draft, name) for name in ("plan", "early_exit", "swift", "swift_paper", "self_sd", "eagle_tree")
}


def read(where: str, value: Any) -> Any:
    """A value of draft= as a Draft; None and "auto" stay as they are.

    value: a Draft, the name of a drafter or of a function in MAKERS, or {name: arguments}. Raises InvalidOption for a
    value of another type or arguments that do not fit, and InvalidArgument for another name.
    """
    if value is None or isinstance(value, Draft) or (isinstance(value, str) and value == "auto"):
        return value
    problem = (
        f"{where}={value!r}, want None, a Draft, one of {', '.join(map(repr, DRAFTERS))}, or {{name: arguments}} with "
        f"one of these names or of {', '.join(map(repr, MAKERS))}"
    )
    if not (isinstance(value, str) or (isinstance(value, Mapping) and len(value) == 1)):
        raise InvalidOption(problem)
    name, given = (value, {}) if isinstance(value, str) else next(iter(value.items()))
    positional, named = ((), given) if isinstance(given, Mapping) else ((given,), {})
    make = partial(Draft, name) if name in tuple(DRAFTERS) and not positional else MAKERS.get(name)
    if make is None:
        raise InvalidArgument(problem)
    try:
        return make(*positional, **named)
    except InvalidArgument:
        raise
    except TypeError as error:
        raise InvalidOption(f"{where}={value!r}: {error}") from None


def resolve(o: Any, usual: Mapping[str, Any]) -> Draft | None:
    """The Draft that a text's options mean; None: plain decoding.

    o: has draft and the options of SAYS_HOW. usual: their defaults. Raises InvalidArgument for two options that exclude
    each other, and for draft= beside any of SAYS_HOW.
    """
    given = [name for name in SAYS_HOW if not _same(getattr(o, name), usual[name])]
    if o.draft is None or isinstance(o.draft, Draft):
        if given:
            raise InvalidArgument(
                f"[generate] draft={o.draft!r} and {given[0]}={getattr(o, given[0])!r} both say how to draft, want one "
                "of them; fields of swiftk.Draft have all that the other options say"
            )
        return o.draft
    _check_early_exit(o, "skip" in given)
    search, always = _search(o), o.speculate == "always" or o.optimizer == "swift-paper"
    skip, k = o.skip, o.assistant_early_exit
    if k is not None:
        skip, search = ("auto", "exits") if k == "auto" else (DraftSpec.early_exit(k), None)
    elif "skip" in given and isinstance(search, SwiftSettings):
        raise InvalidArgument(
            f"[generate] optimizer={o.optimizer!r} searches the layers to skip, and skip={skip!r} gives them; leave "
            "one of them out"
        )
    made = Draft(o.drafter, skip, search, _rule(o), o.max_draft, always, o.sources)
    return None if o.speculate is False else made


def _same(value: Any, usual: Any) -> bool:
    return type(value) is type(usual) and bool(value == usual)


def _check_early_exit(o: Any, skip: bool) -> None:
    k = o.assistant_early_exit
    if k is None:
        return
    if skip:
        raise InvalidArgument(
            f"[generate] assistant_early_exit={k!r} and skip={o.skip!r} both choose the draft; use "
            "skip=DraftSpec(..., exit_layer=...) for both"
        )
    if o.optimizer in ("swift", "swift-paper") or (k == "auto" and o.optimizer != "auto"):
        raise InvalidArgument(
            f"[generate] assistant_early_exit={k!r} says which layers drafts run, so optimizer={o.optimizer!r} cannot; "
            "leave one of them out"
        )


def _search(o: Any) -> str | SwiftSettings | None:
    """By the options `optimizer` and `swift`."""
    if o.optimizer == "swift-paper":
        return _as_in_the_paper(o)
    if o.optimizer == "swift":
        return settings(SwiftSettings, o.swift, "swift")
    if o.swift is not None:
        raise InvalidArgument(f"[generate] swift={o.swift!r} needs optimizer='swift', got {o.optimizer!r}")
    return "auto" if o.optimizer == "auto" else None


def _as_in_the_paper(o: Any) -> SwiftSettings:
    """InvalidArgument: another option has a value that is not the paper's."""
    fixed = {"speculate": (True, "always"), "drafter": (None, "plan"), "gate": ("auto", "swift")}
    for name, may_be in fixed.items():
        value = getattr(o, name)
        if not any(_same(value, one) for one in may_be):
            raise InvalidArgument(
                f"[generate] {name}={value!r} contradicts optimizer='swift-paper', which has {may_be[1]!r}; leave one "
                "out, or take optimizer='swift'"
            )
    given = {"opt_interval": 1, **o.swift} if isinstance(o.swift, Mapping) else o.swift or {"opt_interval": 1}
    found = settings(SwiftSettings, given, "swift")
    if found.opt_interval is None:
        raise InvalidArgument(
            "[generate] swift= with opt_interval=None is a budget of time, which contradicts optimizer='swift-paper'; "
            "give opt_interval=1, or take optimizer='swift'"
        )
    return found


def _rule(o: Any) -> str | TreeRule:
    """By the options `gate` and `optimizer`."""
    gate = settings(TreeRule, o.gate, "gate") if isinstance(o.gate, Mapping) else o.gate
    threshold = isinstance(gate, Real) and not isinstance(gate, bool) and 0 <= gate <= 1
    if not (isinstance(gate, TreeRule) or gate in ("auto", "swift") or threshold):
        raise InvalidArgument(f"[generate] gate={gate!r}, want 'auto', 'swift', a threshold in [0, 1] or a TreeRule")
    if isinstance(gate, TreeRule):
        return gate
    if gate == "auto":
        return "self-sd" if o.optimizer == "self-sd" else "time"
    usual = TreeRule()
    confidence = usual.confidence if gate == "swift" else float(gate)
    return TreeRule(confidence=confidence, max_draft=o.max_draft or usual.max_draft)
