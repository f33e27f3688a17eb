"""The table of options. Each is declared once, as a field of a dataclass: its kind of value, its default, its help, and
the doors that take it. generate(), the command line, HTTP, transformers and remote clients read it here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from math import inf
from typing import Any

from .values import LEAST, MOST, Biases, By, Flag, Ids, Integer, Kind, Names, Number, Seed, Strings

MAX_LOGPROBS = 64  # the runtime's longest top-k
TO_THE_END = -1  # max_new_tokens: until the model ends its text, or the context is full


BOTH = ("completion", "chat")  # HTTP's requests


@dataclass(frozen=True, slots=True)
class Option:
    kind: Kind
    help: str  # one sentence or two, for help() and --help
    aliases: tuple[str, ...] = ()  # other names in generate()
    http: tuple[str, ...] = ()  # requests that have it: "completion", "chat"
    command: bool = False  # an option of commands that take such options
    sampler: bool = False  # a field of _core.Sampling
    checkpoint: bool = False  # generation_config.json may hold its default
    metavar: str | None = None  # the value, in --help
    hf: tuple[str, str] | None = None  # the logits processor of transformers that does the same, and its attribute

    @property
    def warps(self) -> bool:
        """Whether it changes what sampling draws, and nothing of greedy decoding. transformers calls those warpers."""
        return self.hf is not None and self.hf[0].endswith("Warper")


def option(default: Any, kind: Kind, help: str, **doors: Any) -> Any:
    """A field of a dataclass of options."""
    return field(default=default, metadata={"option": Option(kind, help, **doors)})


@cache
def table(cls: type) -> dict[str, Option]:
    """The options of a class, by name. The dictionary is shared: every request reads it."""
    return {one.name: one.metadata["option"] for one in fields(cls) if "option" in one.metadata}


def default_of(cls: type, name: str) -> Any:
    return next(one.default for one in fields(cls) if one.name == name and one.default is not MISSING)


def fewer(tokens: int | None, most: int | None) -> int | None:
    """The smaller one of two max_new_tokens; None is none of them."""
    given = [n for n in (tokens, most) if n is not None]
    return min(given, key=lambda n: inf if n == TO_THE_END else n, default=None)


def put(o: object, name: str, value: Any) -> None:
    object.__setattr__(o, name, value)  # the class is frozen for callers; __post_init__ normalises


def read_all(o: Any) -> None:
    """Reads each field of a dataclass of options by its kind."""
    for name, one in table(type(o)).items():
        put(o, name, one.kind.read(f"[{o.function}] {name}", getattr(o, name)))


def described(cls: type) -> type:
    """A class decorator: its docstring lists its options."""
    lines = (f"    {name} = {default_of(cls, name)!r}: {one.help}" for name, one in table(cls).items())
    cls.__doc__ = "\n".join([str(cls.__doc__), "", *lines])
    return cls


@dataclass(frozen=True, slots=True)
class TextOptions:
    """Options that decide the text. The same values give the same text, whatever drafts and whoever else is served."""

    max_new_tokens: int | None = option(
        None,
        Integer(0, 1 << 31, also=(None, TO_THE_END)),
        "Maximum number of new tokens. -1: until the model ends the text or the context is full. 0: none, for "
        "prompt_logprobs alone. None: as generation_config.json says (max_new_tokens, or max_length with the prompt), "
        "else 256.",
        aliases=("max_tokens", "max_completion_tokens"),
    )
    do_sample: bool | None = option(None, Flag(optional=True), "Whether to sample. None: by the temperature.")
    temperature: float | None = option(
        None,
        Number(0, MOST, least=1e-5),
        "Sampling temperature; 0 is greedy. None: the model's.",
        http=BOTH,
        command=True,
        sampler=True,
        checkpoint=True,
        hf=("TemperatureLogitsWarper", "temperature"),
    )
    top_k: int | None = option(
        None,
        Integer(-1, 1 << 31),
        "Keep the k most likely tokens; 0 or -1: all.",
        http=BOTH,
        command=True,
        sampler=True,
        checkpoint=True,
        hf=("TopKLogitsWarper", "top_k"),
    )
    top_p: float | None = option(
        None,
        Number(0, 1, least=LEAST, tiny=LEAST),
        "Keep the most likely tokens whose probabilities first add up to p; 0: the best one.",
        http=BOTH,
        command=True,
        sampler=True,
        checkpoint=True,
        hf=("TopPLogitsWarper", "top_p"),
    )
    min_p: float | None = option(
        None,
        Number(0, 1),
        "Keep tokens at least min_p times as likely as the best one.",
        http=BOTH,
        command=True,
        sampler=True,
        checkpoint=True,
        hf=("MinPLogitsWarper", "min_p"),
    )
    typical_p: float | None = option(
        None,
        Number(0, 1, least=LEAST, tiny=LEAST),
        "Keep the tokens whose surprise is nearest to the entropy, until their probabilities add up to p. 1: all.",
        http=BOTH,
        command=True,
        sampler=True,
        checkpoint=True,
        hf=("TypicalLogitsWarper", "mass"),
    )
    repetition_penalty: float | None = option(
        None,
        Number(LEAST, MOST),
        "Above 1: tokens of the prompt and the text become less likely (their logits are divided or multiplied by it).",
        http=BOTH,
        command=True,
        sampler=True,
        checkpoint=True,
        hf=("RepetitionPenaltyLogitsProcessor", "penalty"),
    )
    frequency_penalty: float | None = option(
        None,
        Number(-2, 2),
        "Subtracted from a token's logit for each time that the new text has it. -2 to 2.",
        http=BOTH,
        command=True,
        sampler=True,
    )
    presence_penalty: float | None = option(
        None,
        Number(-2, 2),
        "Subtracted once from the logit of each token that the new text has. -2 to 2.",
        http=BOTH,
        command=True,
        sampler=True,
    )
    logit_bias: Mapping[int, float] | Sequence[tuple[int, float]] | None = option(
        None, Biases(-100, 100), "{token id: number} that is added to the token's logit.", http=BOTH, sampler=True
    )
    min_tokens: int | None = option(
        None,
        Integer(0, 1 << 31),
        "Minimum number of new tokens: end tokens and stop_token_ids are impossible before.",
        aliases=("min_new_tokens",),
        http=BOTH,
        command=True,
        sampler=True,
        hf=("MinNewTokensLengthLogitsProcessor", "min_new_tokens"),
    )
    seed: int | None = option(
        None,
        Seed(-(1 << 63), (1 << 64) - 1),
        "The same seed gives the same text. None or -1: random; the result reports it.",
        http=BOTH,
        command=True,
        sampler=True,
    )
    stop: str | Sequence[str] = option(
        (),
        Strings(),
        "Strings that end the text. They are not part of it.",
        aliases=("stop_strings",),
        http=BOTH,
        command=True,
    )
    stop_token_ids: int | Sequence[int] = option(
        (), Ids(), "Token ids that end the text, beside the model's own.", aliases=("eos_token_id",), http=BOTH
    )
    ignore_eos: bool = option(False, Flag(), "Do not end at the model's end tokens.", http=BOTH, command=True)
    include_stop_str_in_output: bool = option(
        False, Flag(), "Whether the text includes the stop string that ended it.", http=BOTH
    )
    skip_special_tokens: bool = option(
        True, Flag(), "Leave special tokens out of the text; False: spell them.", http=BOTH
    )
    keep_special_tokens: str | Sequence[str] = option(
        (), Strings(), 'Special tokens ("[TOOL_CALLS]") to keep in the text although others are left out.'
    )
    parse_special: bool = option(
        False,
        Flag(),
        'Read strings such as "</s>" in a text prompt as special tokens. In chat messages they always are.',
        http=("completion",),
        command=True,
    )
    add_special_tokens: bool | None = option(
        None,
        Flag(optional=True),
        "Whether the tokenizer adds BOS (and whatever else it adds) to the prompt. None: to a text prompt, and not to "
        "chat messages, whose template writes it.",
        http=BOTH,
    )
    add_generation_prompt: bool = option(
        True, Flag(), "Whether chat messages end with the opening of the assistant's turn.", http=("chat",)
    )
    continue_final_message: bool = option(
        False,
        Flag(),
        "Continue the last chat message in place of a new one; needs add_generation_prompt=False.",
        http=("chat",),
    )
    chat_template_kwargs: Mapping[str, Any] | None = option(
        None,
        Names(),
        'Variables of the chat template, such as {"enable_thinking": False} for Qwen3.',
        http=("chat",),
    )
    response_format: Mapping[str, Any] | None = option(
        None,
        By(dict[str, Any]),
        'Form of the text: {"type": "json_object"}, "json_schema" with its "schema", "regex", "choice" with its '
        '"choices", or "lark" with a "grammar" (llguidance\'s). Logprobs are among the tokens that it allows.',
    )


SAMPLER = tuple(name for name, one in table(TextOptions).items() if one.sampler)
