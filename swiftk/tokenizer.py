"""Text to token ids and back by the checkpoint's own files. `tokenizers` and `jinja2` load on first use."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from .errors import CheckpointError, InvalidArgument, InvalidOption, UnsupportedModel
from .generation_config import read_json

_log = logging.getLogger("swiftk")
_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


class Tokenizer:
    """tokenizer.json decides everything, the leading BOS included (its post-processor), as in transformers."""

    def __init__(self, model_dir: str | Path) -> None:
        self.folder = Path(model_dir)
        self._file = self.folder / "tokenizer.json"
        self._backends: dict[bool, Any] = {}  # by whether they parse special tokens; threads share them
        self._templates: dict[str, Any] = {}
        self._config: dict[str, Any] | None = None

    @property
    def available(self) -> bool:
        """Whether the checkpoint has a tokenizer; without one, prompts are token ids and texts are empty."""
        return self._file.is_file()

    def encode(self, text: str, special: bool = True, parse_special: bool = False) -> list[int]:
        """special: with the BOS (and whatever else) that the tokenizer puts around a text. parse_special: what the text
        spells as a special token is one; else it is text, as with transformers' split_special_tokens=True, which is not
        its default."""
        if not isinstance(text, str):
            raise InvalidOption(f"[tokenizer] got {type(text).__name__}, want text (str)")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(
                f"[tokenizer] character {error.start} of the text is {text[error.start]!r}, half of a surrogate pair; "
                "want text that is valid Unicode"
            ) from None
        backend = self._load(parse_special)
        if not parse_special:
            added = backend.get_added_tokens_decoder().values()
            spelt = next((token.content for token in added if token.special and token.content in text), None)
            if spelt:
                _log.warning("%r in the prompt is text; parse_special=True makes it the special token", spelt)
        return list(backend.encode(text, add_special_tokens=special).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Without special tokens. Ids that the tokenizer does not know give no text."""
        backend = next(iter(self._backends.values()), None) or self._load(False)
        return backend.decode(list(ids), skip_special_tokens=True)

    def spelled(self) -> str:
        """tokenizer.json as text, with special tokens as such."""
        return self._load(True).to_str()

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

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None) -> str:
        """The checkpoint's chat template over the messages, up to where the assistant speaks. tools: functions that it
        may call, as OpenAI describes them."""
        source = self.template(bool(tools))
        if source is None:
            raise InvalidArgument(
                f"[chat] {self.folder} has no chat template (chat_template in tokenizer_config.json, or "
                "chat_template.jinja); give the prompt as text"
            )
        import jinja2

        try:
            if source not in self._templates:
                self._templates[source] = _environment().from_string(source)
            return self._templates[source].render(
                messages=[dict(m) for m in messages],
                add_generation_prompt=True,
                tools=[dict(tool) for tool in tools] if tools else None,
                documents=None,
                **self._special_tokens(),
            )
        except jinja2.TemplateSyntaxError as error:
            raise CheckpointError(f"[chat] the chat template of {self.folder} does not parse: {error}") from None
        except (jinja2.TemplateError, TypeError, KeyError) as error:
            raise InvalidArgument(f"[chat] the chat template refused the messages: {error}") from None

    def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> list[int]:
        """The template writes the special tokens itself, so the tokenizer adds none, and parses those in contents, too,
        as transformers does."""
        return self.encode(self.render(messages, tools), special=False, parse_special=True)

    def _load(self, parse_special: bool) -> Any:
        if parse_special not in self._backends:
            if not self.available:
                raise InvalidArgument(f"[tokenizer] {self.folder} has no tokenizer.json; give the prompt as token ids")
            from tokenizers import Tokenizer as Backend

            try:
                backend = Backend.from_file(str(self._file))
            except Exception as error:  # the library raises bare Exception
                raise CheckpointError(f"[tokenizer] {self._file} is not a tokenizer: {error}") from None
            backend.no_truncation()
            backend.no_padding()
            backend.encode_special_tokens = not parse_special
            self._backends[parse_special] = backend
        return self._backends[parse_special]

    def _settings(self) -> dict[str, Any]:
        if self._config is None:
            self._config = read_json(self.folder / "tokenizer_config.json")
        return self._config

    def _special_tokens(self) -> dict[str, str]:
        named = {**read_json(self.folder / "special_tokens_map.json"), **self._settings()}
        values = {name: named.get(name) for name in _SPECIAL}
        return {name: str(v["content"] if isinstance(v, dict) else v) for name, v in values.items() if v is not None}

    def template(self, tools: bool = False) -> str | None:
        """The chat template; tools: where there are several, the one for messages with tools."""
        file = self.folder / "chat_template.jinja"
        if file.is_file():
            return file.read_text(encoding="utf-8")
        found = self._settings().get("chat_template")
        if isinstance(found, list):  # several, by name
            named = {entry.get("name"): entry.get("template") for entry in found}
            found = (named.get("tool_use") if tools else None) or named.get("default")
        return found if isinstance(found, str) else None


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
