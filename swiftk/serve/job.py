"""A request that is ready to run: everything that depends on its body alone, and nothing of HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..api import LM, Prepared
from ..errors import InvalidArgument
from .protocol import ChatRequest, CompletionRequest, Request
from .refusals import Refused
from .settings import ServeSettings
from .tools import Tools


@dataclass(frozen=True, slots=True)
class Job:
    """The texts of one request, and how they are answered. The request's own text is not kept."""

    model: str  # as the client calls it
    texts: list[Prepared]
    before: list[str]  # what each text's answer begins with: its prompt, where that is echoed
    chat: bool
    logprobs: int | None
    stream: bool
    with_usage: bool
    with_sources: bool
    tools: Tools | None = None


class Jobs:
    """Makes jobs for a model that clients know by `names`."""

    def __init__(self, lm: LM, names: Sequence[str], settings: ServeSettings) -> None:
        self._lm, self._names, self._settings = lm, names, settings

    def completion(self, asked: CompletionRequest) -> Job:
        self._must_be_mine(asked.model)
        prompts = asked.prompts()
        if asked.stream and len(prompts) > 1:
            raise InvalidArgument(f"[serve] stream with {len(prompts)} prompts is not supported, want one prompt")
        if asked.stream and asked.echo and asked.logprobs is not None:
            raise InvalidArgument("[serve] stream with echo and logprobs is not supported, leave one of them out")
        self._must_be_few(len(prompts) * asked.n)
        echoes = [(p if isinstance(p, str) else self._lm.decode(p)) if asked.echo else "" for p in prompts]
        return self._job(asked, prompts, echoes, asked.logprobs, False)

    def chat(self, asked: ChatRequest) -> Job:
        self._must_be_mine(asked.model)
        self._must_be_few(asked.n)
        logprobs = (asked.top_logprobs or 0) if asked.logprobs else None
        messages: Any = asked.plain_messages()
        tools = Tools.of(asked.tools, asked.tool_choice, self._lm.tokenizer, asked.parallel_tool_calls)
        if tools:
            encode = self._lm.tokenizer.encode_chat
            messages = encode(messages, tools.offered, context=self._lm.context, **asked.rendering)
            if tools.wanted:  # what response_format asks for is what a message says
                form = tools.spelling.grammar(tools.wanted)
                asked = asked.model_copy(update={"response_format": form, "structured_outputs": None})
        return self._job(asked, [messages], [""], logprobs, True, tools)

    def _job(
        self,
        asked: Request,
        prompts: Sequence[Any],
        echoes: Sequence[str],
        logprobs: int | None,
        chat: bool,
        tools: Tools | None = None,
    ) -> Job:
        options = asked.options(self._lm, self._settings.most_tokens, logprobs)
        if tools:
            options = [{**its, "keep_special_tokens": tools.spelling.marks} for its in options]
        if logprobs is not None and self._lm.tokenizer.available:
            self._lm.tokenizer.token_bytes()  # takes a moment once, which the event loop does not have
        each = [(prompt, one) for prompt in prompts for one in options]
        return Job(
            model=asked.model or self._names[0],
            texts=self._lm.prepare([prompt for prompt, _ in each], [one for _, one in each]),
            before=[echo for echo in echoes for _ in options],
            chat=chat,
            logprobs=logprobs,
            stream=asked.stream,
            with_usage=asked.stream_options.include_usage,
            with_sources=asked.stream_options.include_sources,
            tools=tools,
        )

    def _must_be_mine(self, model: str | None) -> None:
        if model not in (None, *self._names):
            raise no_model(model, self._names)

    def _must_be_few(self, texts: int) -> None:
        """Before any of them is prepared."""
        if texts > self._settings.most_texts:
            said = f"[serve] the request asks for {texts} texts, at most {self._settings.most_texts} run at a time"
            raise Refused(429, said, {"Retry-After": "1"})


def no_model(model: str | None, names: Sequence[str]) -> Refused:
    want = " or ".join(map(repr, names))
    return Refused(404, f"[serve] model is {model!r}, want {want}", param="model", code="model_not_found")
