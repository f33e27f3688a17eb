"""Text to token ids and back by the checkpoint's own files. `tokenizers` and `jinja2` load on first use."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, InvalidArgument, InvalidOption, SwiftkError, UnsupportedModel
from ..files.model_files import ModelFiles, open_model_files
from .token_bound import TokenBound, read_token_bound, too_long
from .token_bytes import bytes_of

_log = logging.getLogger("swiftk")
_LONGEST = 1 << 26  # characters that a template may write
_MARK = "END_OF_THE_FINAL_MESSAGE "  # the space at its end shows whether a template trims contents


class Tokenizer:
    """tokenizer.json decides everything, the leading BOS included (its post-processor), as in transformers."""

    def __init__(
        self, model: str | PathLike[str] | ModelFiles, chat_template: str | PathLike[str] | None = None
    ) -> None:
        """chat_template: the file of one, in place of the checkpoint's."""
        self.files = open_model_files(model)
        self.folder = self.files.path
        self._backends: dict[bool, Any] = {}  # by whether they parse special tokens; threads share them
        self._templates: dict[str, Any] = {}  # compiled, by their text
        self._template_file = Path(chat_template) if chat_template else None
        self._bytes: list[bytes] | None = None
        self._bound: tuple[TokenBound | None] | None = None  # once it is needed

    @property
    def available(self) -> bool:
        """Whether the checkpoint has a tokenizer; without one, prompts are token ids and texts are empty."""
        return self.files.has_tokenizer

    def keep(self) -> None:
        """Reads it now, for texts with special tokens and without, and not when the first of them comes: what memory a
        process has is then known."""
        if self.available:
            self._load(False)
            self._load(True)

    def encode(
        self, text: str, special: bool = True, parse_special: bool = False, *, context: int | None = None
    ) -> list[int]:
        """special: with the BOS (and whatever else) that the tokenizer puts around a text. parse_special: what the text
        spells as a special token is one; else it is text, as with transformers' split_special_tokens=True, which is not
        its default. context: tokens that the text must be fewer than; many longer ones are refused before they are
        tokenised."""
        if not isinstance(text, str):
            raise InvalidOption(f"[tokenizer] got {type(text).__name__}, want text (str)")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(
                f"[tokenizer] character {error.start} of the text is {text[error.start]!r}, half of a surrogate pair; "
                "want text that is valid Unicode"
            ) from None
        if context is not None:
            self._bounded(text, context)
        backend = self._load(parse_special)
        if not parse_special:
            added = backend.get_added_tokens_decoder().values()
            spelt = next((token.content for token in added if token.special and token.content in text), None)
            if spelt:
                _log.warning("%r in the prompt is text; parse_special=True makes it the special token", spelt)
        return list(backend.encode(text, add_special_tokens=special).ids)

    def split(self, text: str) -> list[int]:
        """The tokens of a part of a text, with special tokens as text."""
        return list(self._load(False).encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Ids that the tokenizer does not know give no text. skip_special_tokens=False spells special tokens."""
        backend = next(iter(self._backends.values()), None) or self._load(False)
        return backend.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def added(self, special: bool | None = None) -> dict[int, str]:
        """Added tokens, each one token wherever a text spells it. special: those alone that decode() leaves out, or
        that it does not."""
        found = self._load(False).get_added_tokens_decoder().items()
        return {id: token.content for id, token in found if special in (None, token.special)}

    def token_bytes(self) -> list[bytes]:
        """UTF-8 of each token by its id, half characters included; of an added token the text that it is written as."""
        if self._bytes is None:
            self._bytes = bytes_of(self._load(False))
        return self._bytes

    def vocabulary(self) -> list[tuple[str, int]]:
        """All tokens with their ids, in the order of these."""
        found = self._load(False).get_vocab(with_added_tokens=True)
        return sorted(found.items(), key=lambda one: one[1])

    def must_equal(self, other: Tokenizer) -> None:
        """That both have the same tokens under the same ids; padding at the end of a vocabulary does not count."""
        if not (self.available and other.available):
            return
        mine, its = dict(self.vocabulary()), dict(other.vocabulary())
        unlike = next((token for token in its if mine.get(token) != its[token]), None)
        unlike = unlike or next((token for token in mine if token not in its), None)
        if unlike is not None:
            raise UnsupportedModel(
                f"[load] the drafter's vocabulary is another: {unlike!r} is token {its.get(unlike)} in {other.folder} "
                f"and {mine.get(unlike)} in {self.folder}; want a model with the same tokenizer"
            )

    @property
    def has_template(self) -> bool:
        return self.template() is not None

    @property
    def takes_tools(self) -> bool:
        """Whether the chat template shows tools to the model."""
        return "tools" in (self.template(True) or "")

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """The checkpoint's chat template over the messages. tools: functions that the assistant may call, as OpenAI
        describes them. add_generation_prompt: up to where the assistant speaks. continue_final_message: up to the end
        of the last message's content, so that the model goes on with it. chat_template_kwargs: variables of the
        template's own."""
        if continue_final_message:
            if add_generation_prompt:
                raise InvalidArgument(
                    "[chat] continue_final_message=True goes on with the last message and add_generation_prompt=True "
                    "begins a new one; set one of them to False"
                )
            return self._to_the_end_of_the_last(messages, tools, chat_template_kwargs)
        source = self.template(bool(tools))
        if source is None:
            raise InvalidArgument(
                f"[chat] {self.folder} has no chat template (chat_template in tokenizer_config.json, or "
                "chat_template.jinja); give the prompt as text"
            )
        import jinja2

        variables = {
            "messages": [dict(m) for m in messages],
            "add_generation_prompt": add_generation_prompt,
            "tools": [dict(tool) for tool in tools] if tools else None,
            **self.files.special_tokens,
        }
        own = {"documents": None, **(chat_template_kwargs or {})}
        if taken := sorted(variables.keys() & own.keys()):
            raise InvalidArgument(f"[chat] chat_template_kwargs has {taken[0]!r}, which has a field or file of its own")
        try:
            if source not in self._templates:
                self._templates[source] = _environment().from_string(source)
            return _joined(self._templates[source].generate({**variables, **own}))
        except jinja2.TemplateSyntaxError as error:
            raise CheckpointError(f"[chat] the chat template of {self.folder} does not parse: {error}") from None
        except jinja2.TemplateError as error:
            raise InvalidArgument(f"[chat] the chat template refused the messages: {error}") from None
        except Exception as error:  # a template computes with what a request says
            what = f"{type(error).__name__}: {error}"
            raise InvalidArgument(f"[chat] the chat template refused the messages: {what}") from None

    def _to_the_end_of_the_last(self, messages: Sequence[Mapping[str, Any]], tools: Any, own: Any) -> str:
        """The template may trim contents, or write something after them: a mark in the last one shows where it ends."""
        last = messages[-1].get("content") if messages else None
        if not isinstance(last, str):
            raise InvalidArgument("[chat] continue_final_message=True, and the last message has no text to go on with")
        whole = self.render([*messages[:-1], {**messages[-1], "content": last + _MARK}], tools, False, False, own)
        at = whole.rfind(_MARK.strip())
        if at < 0:
            raise InvalidArgument("[chat] continue_final_message=True, and the template leaves out the last message")
        return whole[:at] if whole.startswith(_MARK, at) else whole[:at].rstrip()

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        add_special_tokens: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        context: int | None = None,
    ) -> list[int]:
        """The template writes the special tokens itself, so the tokenizer adds none unless it is asked to, and parses
        those in contents, too, as transformers does."""
        text = self.render(messages, tools, add_generation_prompt, continue_final_message, chat_template_kwargs)
        return self.encode(text, special=add_special_tokens, parse_special=True, context=context)

    def _bounded(self, text: str, context: int) -> None:
        """Tokenising megabytes takes seconds: a bound that costs next to nothing refuses most of what is too long."""
        if len(text) < context:
            return
        if self._bound is None and self.available:
            self._bound = (read_token_bound(self.files.tokenizer_json()),)
        bound = self._bound[0] if self._bound else None
        if bound and (fewest := bound.fewest(text)) >= context:
            raise too_long(f"at least {fewest}", context)

    def _load(self, parse_special: bool) -> Any:
        if parse_special not in self._backends:
            if not self.available:
                raise InvalidArgument(f"[tokenizer] {self.folder} has no tokenizer.json; give the prompt as token ids")
            from tokenizers import Tokenizer as Backend

            try:
                backend = Backend.from_buffer(self.files.tokenizer_json())
            except SwiftkError:
                raise
            except Exception as error:  # the library raises bare Exception
                raise CheckpointError(f"[tokenizer] {self.files.tokenizer_path} is not a tokenizer: {error}") from None
            backend.no_truncation()
            backend.no_padding()
            backend.encode_special_tokens = not parse_special
            self._backends[parse_special] = backend
        return self._backends[parse_special]

    @cached_property
    def _template(self) -> Any:
        """The text, or several by name; read once, so that texts are alike whenever they are asked for."""
        file = self._template_file
        return file.read_text(encoding="utf-8") if file and file.is_file() else self.files.chat_template

    def template(self, tools: bool = False) -> str | None:
        """The chat template; tools: where there are several, the one for messages with tools."""
        found = self._template
        if isinstance(found, list):  # several, by name
            named = {entry.get("name"): entry.get("template") for entry in found}
            found = (named.get("tool_use") if tools else None) or named.get("default")
        return found if isinstance(found, str) else None


def _joined(pieces: Iterable[str]) -> str:
    """A text of bounded length, whatever a template loops over."""
    kept, left = [], _LONGEST
    for piece in pieces:
        kept.append(piece)
        left -= len(piece)
        if left < 0:
            raise OverflowError(f"it writes more than {_LONGEST} characters")
    return "".join(kept)


def _environment() -> Any:
    """Jinja as chat templates expect it; sandboxed, because a template comes with the weights."""
    import jinja2
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %} marks what the assistant said, for training; here it passes its body through."""

        tags = frozenset({"generation"})

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return env
