"""OpenAI's requests, with vLLM's further options, as options of swiftk."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator
from pydantic_core import PydanticCustomError

from .. import errors
from ..api import LM
from ..options.fields import TO_THE_END, fewer, table
from ..options.generate_options import GenerateOptions
from .tools import read_message
from .unsupported import problem_of


class Body(BaseModel):
    """JSON whose null is absent."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        return {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data


class StreamOptions(Body):
    include_usage: bool = False
    include_sources: bool = False  # swiftk's own: [text, who proposed it] of each token, as `pieces` of a choice


def _options(endpoint: str) -> type[Body]:
    """A model with the options of a text that an endpoint takes, as the table has them."""
    taken: dict[str, Any] = {
        name: (one.kind.hint | None, Field(None, description=one.help))
        for name, one in table(GenerateOptions).items()
        if endpoint in one.http
    }
    return create_model("Options", __base__=Body, **taken)


class Request(Body):
    """Fields of both endpoints beside the options of a text."""

    model_config = ConfigDict(extra="allow")
    endpoint: ClassVar[str]
    model: str | None = None
    n: int = Field(1, ge=1, le=128)
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    max_tokens: int | None = Field(None, ge=-1)
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None  # the same, as vLLM has it

    @model_validator(mode="after")
    def _knows_all(self) -> Any:
        """Refuses fields that would be left out of the text."""
        known, given = type(self).model_fields, self.model_dump(exclude_unset=True)
        for name, value in (self.model_extra or {}).items():
            if problem := problem_of(name, value, known, given):
                raise refused(self.__class__.__name__, name, value, problem)
        return self

    def options(self, lm: LM, most_tokens: int | None, logprobs: int | None) -> list[dict[str, Any]]:
        """generate()'s, of each of the n texts, whose seeds count up from the first one's. If neither the request
        nor the model says otherwise, the temperature is 1 and the text continues to the model's end."""
        names = (name for name, one in table(GenerateOptions).items() if self.endpoint in one.http)
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        form = self.response_format or _form(self.structured_outputs)
        if form is not None:
            given["response_format"] = form
        if lm.defaults.do_sample is not False:
            given.setdefault("temperature", lm.defaults.sampling.get("temperature", 1.0))
        tokens = TO_THE_END if self.new_tokens is None else self.new_tokens
        given |= {"max_new_tokens": fewer(tokens, most_tokens), "logprobs": logprobs}
        first = given.get("seed")
        if first in (None, -1):
            return [given] * self.n
        return [given, *({**given, "seed": (first + i) % 2**64} for i in range(1, self.n))]

    @property
    def new_tokens(self) -> int | None:
        return self.max_tokens


class CompletionRequest(Request, _options("completion")):  # type: ignore[misc]
    endpoint: ClassVar[str] = "completion"
    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: int | None = Field(None, ge=0, le=20)
    max_tokens: int | None = Field(16, ge=-1)
    echo: bool = False
    parse_special: bool = True

    def options(self, lm: LM, most_tokens: int | None, logprobs: int | None) -> list[dict[str, Any]]:
        reported = {"prompt_logprobs": logprobs} if self.echo and logprobs is not None else {}
        return [{**one, **reported} for one in super().options(lm, most_tokens, logprobs)]

    def prompts(self) -> list[Any]:
        """One or several."""
        if isinstance(self.prompt, str) or all(isinstance(one, int) for one in self.prompt):
            return [self.prompt]
        return list(self.prompt)


class ChatRequest(Request, _options("chat")):  # type: ignore[misc]
    endpoint: ClassVar[str] = "chat"
    messages: list[dict[str, Any]] = Field(min_length=1)
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    max_completion_tokens: int | None = Field(None, ge=-1)
    logprobs: bool = False
    top_logprobs: int | None = Field(None, ge=0, le=20)

    @property
    def new_tokens(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def rendering(self) -> dict[str, Any]:
        """How the chat template is applied."""
        names = ("add_generation_prompt", "continue_final_message", "add_special_tokens", "chat_template_kwargs")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def plain_messages(self) -> list[dict[str, Any]]:
        return plain(self.messages)


def plain(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages with contents as text: parts of type text are joined."""
    return [{**read_message(m), "content": _text(i, m.get("content"))} for i, m in enumerate(messages)]


def refused(title: str, name: str, value: Any, problem: str) -> ValidationError:
    """A request's field, refused by name."""
    kind = PydanticCustomError("refused", "{problem}", {"problem": problem})
    return ValidationError.from_exception_data(title, [{"type": kind, "loc": (name,), "input": value}])


_FORMS = {
    "json": ("json_schema", "schema"),
    "regex": ("regex", "regex"),
    "choice": ("choice", "choices"),
    "grammar": ("lark", "grammar"),
}


def _form(structured: dict[str, Any] | None) -> dict[str, Any] | None:
    given = {name: value for name, value in (structured or {}).items() if value not in (None, False)}
    if not given:
        return None
    if set(given) == {"json_object"}:
        return {"type": "json_object"}
    if len(given) != 1 or not set(given) <= set(_FORMS):
        want = ", ".join(map(repr, (*_FORMS, "json_object")))
        found = ", ".join(map(repr, given))
        raise errors.InvalidArgument(f"[serve] structured_outputs has {found}, want one of {want}")
    name, value = next(iter(given.items()))
    form, part = _FORMS[name]
    return {"type": form, part: json.loads(value) if name == "json" and isinstance(value, str) else value}


def _text(index: int, content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    other = next((p for p in parts if not (isinstance(p, dict) and p.get("type") == "text")), None)
    if other is not None:
        found = other.get("type") if isinstance(other, dict) else type(other).__name__
        raise errors.InvalidArgument(f"[chat] message {index} has a part of type {found!r}, want text")
    return "".join(p.get("text", "") for p in parts)
