"""OpenAI's requests, with vLLM's further options, as options of swiftk."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from .. import errors
from .tools import read_message

SAME = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "stop_token_ids", "ignore_eos")


class StreamOptions(BaseModel):
    include_usage: bool = False
    include_sources: bool = False  # swiftk's own: [text, who proposed it] of each token, as `pieces` of a choice


class Request(BaseModel):
    """What both endpoints take. Names that are not known are passed over, as elsewhere."""

    model_config = ConfigDict(extra="ignore")
    model: str | None = None
    n: int = Field(1, ge=1, le=128)
    stream: bool = False
    stream_options: StreamOptions | None = None
    stop: str | list[str] | None = None
    seed: int | None = Field(None, ge=0, lt=1 << 64)
    max_tokens: int | None = Field(None, ge=1)
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None  # the same, as vLLM has it
    speculate: bool | str | None = None  # swiftk's own: the text is the same

    def options(self, most_tokens: int | None, logprobs: int | None) -> list[dict[str, Any]]:
        """Of each of the n texts, whose seeds count up from the first one's."""
        given = {name: value for name in SAME if (value := getattr(self, name)) is not None}
        if self.speculate is not None:
            given["speculate"] = self.speculate
        form = self.response_format or _form(self.structured_outputs)
        if form is not None:
            given["response_format"] = form
        tokens = min(filter(None, (self.new_tokens, most_tokens)), default=None)
        given |= {"stop": self.stop or (), "max_new_tokens": tokens, "logprobs": logprobs}
        if self.seed is None:
            return [given] * self.n
        return [{**given, "seed": (self.seed + i) % 2**64} for i in range(self.n)]

    @property
    def new_tokens(self) -> int | None:
        return self.max_tokens

    @property
    def streamed(self) -> StreamOptions:
        return self.stream_options or StreamOptions()


class CompletionRequest(Request):
    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: int | None = Field(None, ge=0, le=20)
    max_tokens: int | None = Field(16, ge=1)
    echo: bool = False

    def options(self, most_tokens: int | None, logprobs: int | None) -> list[dict[str, Any]]:
        told = {"prompt_logprobs": logprobs} if self.echo and logprobs is not None else {}
        return [{**one, **told} for one in super().options(most_tokens, logprobs)]

    def prompts(self) -> list[Any]:
        """One or several."""
        if isinstance(self.prompt, str) or all(isinstance(one, int) for one in self.prompt):
            return [self.prompt]
        return list(self.prompt)


class ChatRequest(Request):
    messages: list[dict[str, Any]] = Field(min_length=1)
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool = False
    top_logprobs: int | None = Field(None, ge=0, le=20)

    @property
    def new_tokens(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    def plain_messages(self) -> list[dict[str, Any]]:
        """With contents as text: parts of type text are joined."""
        return [{**read_message(m), "content": _text(i, m.get("content"))} for i, m in enumerate(self.messages)]


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
