"""Structured output: what response_format asks for, as a grammar of llguidance (https://github.com/guidance-ai/llguidance).

Each token is drawn from those that the grammar allows after the text so far. Drafts change nothing of that; what the
grammar leaves no choice of is itself a draft.

A JSON schema, a regex and choices say what the text is. Any token that the text shows may spell it, also an added one
(Qwen's "<tool_call>"); special tokens, which the text leaves out, may not. A Lark grammar names tokens too: lark.py.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidArgument, InvalidOption
from . import lark
from .tokenizer import Tokenizer

_KEPT = 64  # compiled grammars
# JSON as json.dumps() spells it, unless the schema's "x-guidance" says otherwise: models that may indent may do so for
# ever.
SPELLING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@dataclass(frozen=True, slots=True)
class Form:
    """A type of response_format."""

    part: str  # where it says what it wants
    want: str
    holds: Callable[[Any], bool]
    grammar: Callable[[Any, Any], str]  # of LLMatcher and that part


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _texts(value: Any) -> bool:
    listed = isinstance(value, Sequence) and not isinstance(value, str)
    return listed and len(value) > 0 and all(map(_text, value))


FORMS = {
    "json_schema": Form(
        "schema",
        "a JSON schema",
        lambda value: isinstance(value, (Mapping, bool)),
        lambda of, schema: of.grammar_from_json_schema(json.dumps(schema), defaults=SPELLING),
    ),
    "regex": Form("regex", "text", _text, lambda of, regex: of.grammar_from_regex(regex)),
    "choice": Form(
        "choices",
        "a list of texts",
        _texts,
        lambda of, choices: of.grammar_from_lark("start: " + " | ".join(map(json.dumps, choices))),
    ),
    "lark": Form("grammar", "text", _text, lambda of, lark: of.grammar_from_lark(lark)),
}
_ANY_OBJECT = {"type": "json_schema", "schema": {"type": "object"}}


def asked(response_format: Any) -> tuple[Form, Any] | None:
    """(form, what it wants); None for text. Raises InvalidArgument where it is none of FORMS, or not whole."""
    known = isinstance(response_format, Mapping) and response_format.get("type")
    if known == "text":
        return None
    found = _ANY_OBJECT if known == "json_object" else response_format
    if known not in ("json_object", *FORMS):
        names = ", ".join(map(repr, ("text", "json_object", *FORMS)))
        raise InvalidArgument(f"[generate] response_format={response_format!r}, want {{'type': one of {names}}}")
    form = FORMS[found["type"]]
    deeper = found.get(found["type"])  # as OpenAI has a schema
    wanted = (deeper if isinstance(deeper, Mapping) and form.part not in found else found).get(form.part)
    if not form.holds(wanted):
        raise InvalidArgument(
            f"[generate] response_format of type {known!r} has {form.part!r} as {wanted!r}, want {form.want}"
        )
    return form, wanted


class Grammars:
    """Of one model: its vocabulary as llguidance reads it, and grammars that were compiled."""

    def __init__(self, tokenizer: Tokenizer, vocab: int, ends: Sequence[int]) -> None:
        self._tokenizer, self._vocab, self._ends = tokenizer, vocab, list(ends)
        self._words: Any = None
        self._made: dict[str, Any] = {}  # by llguidance's spelling of the whole grammar
        self._lock = threading.Lock()

    def of(self, response_format: Mapping[str, Any] | None, said: Sequence[int] = ()) -> Grammar | None:
        """For a text that begins, or goes on after the tokens that it has `said`. Raises InvalidOption where llguidance
        refuses it, with its words."""
        found = None if response_format is None else asked(response_format)
        if found is None:
            return None
        try:
            from llguidance import LLMatcher
        except ModuleNotFoundError:
            raise InvalidArgument("[grammar] llguidance is not installed, want: pip install 'swiftk[serve]'") from None
        form, wanted = found
        by_copy = False
        if form is FORMS["lark"]:
            special = self._tokenizer.added(special=True)
            wanted = lark.with_added_tokens(wanted, special, self._tokenizer.added(special=False))
            by_copy = lark.names_plain_tokens(wanted, special)
        spelled = form.grammar(LLMatcher, wanted)  # the order of a schema's properties is part of it
        with self._lock:
            matcher = self._made.get(spelled)
        if matcher is None:
            matcher = LLMatcher(self._vocabulary(), spelled, log_level=0)
            if matcher.is_error():
                raise InvalidOption(f"[grammar] response_format: {_first_lines(matcher.get_error())}")
            with self._lock:
                while len(self._made) >= _KEPT:
                    del self._made[next(iter(self._made))]
                self._made[spelled] = matcher
        grammar = Grammar(matcher.deep_copy(), self._ends, by_copy)
        try:
            grammar.took(list(said))
        except ValueError as error:
            raise InvalidArgument(f"[grammar] response_format does not allow the text to continue: {error}") from None
        return grammar

    def _vocabulary(self) -> Any:
        if self._words is None:
            if not self._ends:
                raise InvalidArgument(
                    f"[grammar] {self._tokenizer.folder} names no token that ends a text (eos_token_id), which "
                    "response_format needs"
                )
            from llguidance import LLTokenizer

            self._words = LLTokenizer(Words(self._tokenizer, self._vocab, self._ends[0]), eos_token=self._ends)
        return self._words


class Words:
    """A vocabulary as llguidance takes one: bytes of all tokens, and how a text is split into them. Only tokens that
    texts leave out are special there, so that any other may spell what a grammar asks for."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, vocab: int, eos: int) -> None:
        words = tokenizer.token_bytes()[:vocab]
        self.tokens = words + [b""] * (vocab - len(words))
        self.special_token_ids = [id for id in tokenizer.added(special=True) if id < vocab]
        self.eos_token_id = eos
        self._tokenizer = tokenizer
        special = set(self.special_token_ids)
        self._by_bytes = {word: id for id, word in enumerate(self.tokens) if word and id not in special}
        self._longest = max(map(len, self._by_bytes), default=0)

    def __call__(self, text: bytes | str) -> list[int]:
        """As the tokenizer splits it within a text, which may not begin with a space of the tokenizer's own. Where no
        such split spells it (a normalizer changes it), the longest tokens from the left do."""
        wanted = text if isinstance(text, bytes) else text.encode()
        for start in ("", "\n"):
            lead = self._split(start)
            ids = self._split(start + wanted.decode("utf-8", "replace"))
            if ids[: len(lead)] == lead and b"".join(self.tokens[id] for id in ids[len(lead) :]) == wanted:
                return ids[len(lead) :]
        return list(self._greedy(wanted))

    def _split(self, text: str) -> list[int]:
        return [id for id in self._tokenizer.split(text) if id < len(self.tokens)]

    def _greedy(self, text: bytes) -> Iterator[int]:
        at = 0
        while at < len(text):
            ends = range(min(len(text), at + self._longest), at, -1)
            found = next(((end, id) for end in ends if (id := self._by_bytes.get(text[at:end])) is not None), None)
            if found is None:
                return
            at, id = found
            yield id


class Grammar:
    """The constraint on one text; the engine asks it from its own thread."""

    def __init__(self, matcher: Any, ends: Sequence[int], by_copy: bool = False) -> None:
        """by_copy: paths are tried on a copy, which costs more than going back. llguidance 1.9 does not go back over a
        token that a grammar names by its id, unless it is special."""
        self._matcher, self._ends, self._by_copy = matcher, frozenset(ends), by_copy

    def allow(self, path: list[int], address: int, size: int) -> bool:
        """Writes the bits of tokens that may come after the text and `path`. False where the path itself may not."""
        tried = self._matcher.deep_copy() if path and self._by_copy else self._matcher
        taken = tried.try_consume_tokens(path) if path else 0
        allowed = taken == len(path)
        if allowed:
            tried.unsafe_compute_mask_ptr(address, size)
        if taken and not self._by_copy:
            tried.rollback(taken)
        self._must_go_on()
        return allowed

    def forced(self) -> list[int]:
        return self._matcher.compute_ff_tokens()

    def took(self, tokens: list[int]) -> None:
        ended = next((i for i, token in enumerate(tokens) if token in self._ends), len(tokens))
        if ended:
            self._matcher.consume_tokens(tokens[:ended])
        self._must_go_on()

    def _must_go_on(self) -> None:
        if self._matcher.is_error():
            raise ValueError(_first_lines(self._matcher.get_error()))


def _first_lines(message: str) -> str:
    return message.split("<state>")[0].strip()
