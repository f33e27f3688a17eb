"""Options of generate(): how a text is generated, names that options have elsewhere, and contradictions.

Values left out stay None until the model's own defaults fill them.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_type_hints

from .. import _core
from ..draft.draft_spec import DRAFTER_NAMES, DraftSpec
from ..draft.source_settings import SourceSettings
from ..draft.tree_rule import MAX_DRAFT, TreeRule
from ..errors import InvalidArgument, InvalidOption
from ..text import grammar
from .drafting import SAYS_HOW, Draft, read, resolve
from .fields import (
    BOTH,
    MAX_LOGPROBS,
    SAMPLER,
    TO_THE_END,
    TextOptions,
    default_of,
    described,
    option,
    put,
    read_all,
    table,
)
from .generation_config import Defaults
from .load_options import LoadOptions
from .swift_settings import SwiftSettings
from .values import By, Choice, Flag, Integer

OPTIMIZERS = ("auto", "swift", "swift-paper", "self-sd", None)
NEW_TOKENS = 256  # where neither the caller nor the model says how many, as in transformers' pipelines
T = TypeVar("T")
_OFF = _core.Sampling()  # a sampler with everything off


@described
@dataclass(frozen=True, slots=True)
class GenerateOptions(TextOptions):
    """How one text is generated. None: the model's default (generation_config.json), else off."""

    function: ClassVar[str] = "generate"
    continued_tokens: int = option(
        0,
        Integer(0, 1 << 31, also=()),
        "Number of last prompt tokens that belong to the text, which continues. Limits, penalties, stop strings and "
        "response_format count them.",
    )
    logprobs: int | None = option(
        None,
        Integer(0, MAX_LOGPROBS),
        "Number of alternatives reported with each token; 0: only the token's own logprob.",
    )
    prompt_logprobs: int | None = option(
        None,
        Integer(0, MAX_LOGPROBS),
        "The same for each prompt token but the first. The whole prompt is computed then.",
    )
    draft: Draft | Mapping[str, Any] | str | None = option(
        "auto",
        By(str, read, json=True),
        'How to draft, in one value: None (plain decoding), a name of `drafter`, "swift", "swift_paper", "early_exit" '
        'or "eagle_tree", a Draft, or {name: its arguments} such as {"early_exit": 4}. "auto": as the older options '
        "say (speculate, skip, assistant_early_exit, gate, max_draft, drafter, optimizer, swift, sources), which "
        "exclude any other value.",
        http=BOTH,
        command=True,
    )
    speculate: bool | str = option(
        True,
        Choice((True, False, "always")),
        'True: draft while it is faster, "always": in every round, False: never.',
        http=BOTH,
        command=True,
    )
    skip: str | Path | DraftSpec | Sequence[int] | None = option(
        "auto",
        By(Any),
        'Layers that drafts leave out: "auto", None, a DraftSpec, a list of layers, the path of a saved one, or only '
        'the weights to read ("int4").',
    )
    assistant_early_exit: int | str | None = option(
        None,
        Integer(0, 1 << 16, also=(None, "auto")),
        'Draft with the first k layers; "auto": the fastest k.',
        command=True,
    )
    kvq: bool = option(
        True,
        Flag(),
        "Verification reuses the first layers of a draft if the draft ran them exactly; False: it runs them again.",
    )
    gate: str | float | TreeRule | Mapping[str, Any] = option(
        "auto",
        By(Any),
        'When a draft ends: "auto" (by time), "swift" or SWIFT\'s confidence threshold, or a TreeRule or its fields.',
        aliases=("assistant_confidence_threshold",),
        command=True,
    )
    max_draft: int | None = option(
        None,
        Integer(1, MAX_DRAFT),
        "Maximum number of tokens drafted in a round.",
        aliases=("num_speculative_tokens", "num_assistant_tokens"),
        command=True,
    )
    drafter: str | None = option(
        None,
        By(str),
        'Source of draft tokens. "plan": the model with layers skipped or in few bits. "suffix": repetitions in the '
        'text. "recycle": the model\'s earlier candidates after the same token. "model", "block", "eagle" or "moa": '
        'the loaded draft model or head of that kind, the fastest of several. "auto": the fastest of all these. '
        '"lookup", "lookahead", "parallel" and "template" (Token Recycling\'s tree): as in their papers. "host": '
        'tokens given to Stream.propose(). "corpus": what follows the same words in text files of yours, which '
        'sources={"corpus": PATH} names, and "auto" asks then, too. None: "auto" with gate="auto" unless skip, '
        'optimizer or an early exit is given, else "plan".',
    )
    recall: bool | None = option(
        None,
        Flag(optional=True),
        'Memory of the sources from one text to the next. None: "recycle" and "template" keep their matrix of tokens, '
        'which says more about the model than about a text. True: "suffix" also keeps the texts. False: none.',
    )
    sources: SourceSettings | Mapping[str, Any] | None = option(
        None, By(Any), "Settings of the sources, which cost no draft step."
    )
    features: str | None = option(
        None,
        By(str),
        'A loaded head ("drafter", "drafter-2", ...): events carry the states that it reads, for a client that drafts '
        "(swiftk.remote).",
    )
    optimizer: str | None = option(
        "auto",
        Choice(OPTIMIZERS),
        'Search for the layers that drafts skip; a given skip set is never changed. "swift": SWIFT within a budget of '
        'time. "swift-paper": SWIFT as its paper has it, a step before each round, which always drafts (it stands for '
        'optimizer="swift", swift={"opt_interval": 1}, gate="swift", drafter="plan", speculate="always"). "self-sd": '
        "the rule of Self-SD, with a set of `swiftk tune`.",
        command=True,
    )
    swift: SwiftSettings | Mapping[str, Any] | None = option(
        None, By(Any), 'Settings of optimizer="swift".', command=True
    )
    acceptance: str = option(
        "coupled",
        Choice(("coupled", "rejection")),
        '"coupled": the seed alone decides the tokens. "rejection": the rule of the papers, same distribution. Its '
        "draws depend on the rounds, so a seed repeats its tokens only with a gate and an optimizer that do not use "
        "the clock, and with recall=False.",
        command=True,
    )
    stream: bool = option(False, Flag(), "Return a Stream of Events.")
    verify: bool = option(False, Flag(), "Decode again without drafts, and compare.")
    explain: bool = option(False, Flag(), "The trace says for each round why it drafted or did not.")

    def __post_init__(self) -> None:
        read_all(self)
        usual = {name: default_of(GenerateOptions, name) for name in SAYS_HOW}
        put(self, "draft", resolve(self, usual))
        for name, value in usual.items():
            put(self, name, value)  # `draft` has it
        if not (self.features is None or self.features in DRAFTER_NAMES):
            names = ", ".join(map(repr, DRAFTER_NAMES[:2]))
            raise InvalidArgument(f"[generate] features={self.features!r}, want the name of a drafter: {names}, ...")
        _check_contradictions(self)

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> GenerateOptions:
        """From keyword arguments, aliases resolved. An unknown name is an error with the nearest known one."""
        return cls(**resolve_names(cls, given))

    def filled(self, defaults: Defaults, prompt_tokens: int) -> GenerateOptions:
        """With every setting concrete: what was asked for, else the model's default, else off, and 256 tokens."""
        sample = self.do_sample
        if sample is None:
            sample = self.temperature > 0 if self.temperature is not None else bool(defaults.do_sample)
        own = {name: value for name, value in defaults.sampling.items() if sample or not table(TextOptions)[name].warps}
        temperature = _first(self.temperature, own.get("temperature"), 1.0) if sample else 0.0
        if self.do_sample and temperature == 0:
            temperature = 1.0  # the file's temperature would not sample
        given = {
            name: _first(getattr(self, name), own.get(name), getattr(_OFF, name)) for name in SAMPLER if name != "seed"
        }
        return replace(
            self,
            **{**given, "temperature": temperature, "top_k": max(0, given["top_k"])},
            do_sample=temperature > 0,
            max_new_tokens=_first(self.max_new_tokens, defaults.new_tokens(prompt_tokens), NEW_TOKENS),
        )


def names(cls: type) -> list[str]:
    """Names of its options, with their aliases."""
    return [*table(cls), *_aliases(cls)]


def _aliases(cls: type) -> dict[str, str]:
    return {alias: name for name, one in table(cls).items() for alias in one.aliases}


def resolve_names(cls: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` under canonical names. InvalidOption: an unknown name; InvalidArgument: two values of one option."""
    function, known, aliases = cls.function, names(cls), _aliases(cls)
    named: dict[str, Any] = {}
    source: dict[str, str] = {}
    for name, value in given.items():
        if name not in known:
            raise InvalidOption(_unknown(function, name, known, aliases))
        canonical = aliases.get(name, name)
        if canonical in named and named[canonical] != value:
            raise InvalidArgument(
                f"[{function}] {source[canonical]}={named[canonical]!r} and {name}={value!r} are the same "
                f"option; give {canonical!r} alone"
            )
        named[canonical], source[canonical] = value, name
    if named.get("ignore_eos") and source.get("stop_token_ids") == "eos_token_id":
        raise InvalidArgument(
            f"[{function}] ignore_eos=True contradicts eos_token_id={named['stop_token_ids']!r}; "
            "use stop_token_ids for ids that end the text anyway"
        )
    return named


def show_options(function: Any, *classes: Any) -> None:
    """Gives a function the signature that has these classes' options where it says `**options`, for help()."""
    shown = inspect.signature(function, eval_str=True)
    own = {name: p for name, p in shown.parameters.items() if p.kind is not p.VAR_KEYWORD}
    for cls in classes:
        hints = get_type_hints(cls)
        for field in fields(cls):
            option = inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
            )
            own.setdefault(field.name, option)
    function.__signature__ = shown.replace(parameters=list(own.values()))


def _unknown(function: str, name: str, known: list[str], aliases: Mapping[str, str]) -> str:
    for cls in (LoadOptions, GenerateOptions):
        if name in names(cls):
            return f"[{function}] {name!r} is an option of {cls.function}()"
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if not near:
        return f"[{function}] unknown option {name!r}, want some of {', '.join(n for n in known if n not in aliases)}"
    also = f" (alias of {aliases[near[0]]})" if near[0] in aliases else ""
    return f"[{function}] unknown option {name!r}; did you mean {near[0]!r}{also}?"


def _check_contradictions(o: GenerateOptions) -> None:
    if o.do_sample is True and o.temperature == 0:
        raise InvalidArgument("[generate] do_sample=True contradicts temperature=0; leave one of them out")
    if o.do_sample is False and o.temperature:
        raise InvalidArgument(
            f"[generate] do_sample=False contradicts temperature={o.temperature}; leave one of them out"
        )
    if o.min_tokens and o.max_new_tokens is not None and TO_THE_END < o.max_new_tokens < o.min_tokens:
        raise InvalidArgument(
            f"[generate] min_tokens={o.min_tokens!r} is more than max_new_tokens={o.max_new_tokens!r}"
        )
    if o.response_format is not None and grammar.asked(o.response_format) and o.ignore_eos:
        raise InvalidArgument(
            "[generate] ignore_eos=True contradicts response_format, which decides where the text ends"
        )
    if o.verify and o.acceptance == "rejection" and o.temperature != 0:
        raise InvalidArgument(
            "[generate] verify=True needs acceptance='coupled' when sampling: rejection keeps the "
            "distribution, not the tokens"
        )


def _first(*values: T | None) -> Any:
    return next((value for value in values if value is not None), None)
