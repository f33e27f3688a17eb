"""OpenAI's answers, whole and in chunks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from ..api import LM
from ..result import Event, Result
from .tools import Tools, told_calls


class Answer:
    """The shape of one request's answer: a completion's or a chat's."""

    def __init__(
        self,
        lm: LM,
        number: str,
        created: int,
        model: str,
        chat: bool,
        logprobs: int | None,
        tools: Tools | None = None,
    ) -> None:
        self._lm, self._chat, self._logprobs, self._tools = lm, chat, logprobs, tools
        self.sources = False  # whether chunks tell who proposed each token
        self._held: dict[int, str] = {}  # of texts under way, by index: what may be part of a call
        self._id = f"{'chatcmpl' if chat else 'cmpl'}-{number}"
        self._same = {"id": self._id, "created": created, "model": model}

    def whole(self, results: Sequence[Result], before: Sequence[str]) -> dict[str, Any]:
        """before: what each text is to begin with, its prompt where that is echoed."""
        kind = "chat.completion" if self._chat else "text_completion"
        choices = []
        for i, (result, start) in enumerate(zip(results, before, strict=True)):
            content: dict[str, Any] = {"text": start + result.text}
            reason = finish(result)
            if self._chat:
                said, calls = self._parted(i, result.text)
                called = {"tool_calls": calls} if calls else {}
                content = {"message": {"role": "assistant", "content": said or (None if calls else ""), **called}}
                reason = "tool_calls" if calls else reason
            told = [*_prompt(result), *((t.token, t.logprob, t.top) for t in result.logprobs or ())]
            choices.append({"index": i, **content, "logprobs": self._told(told), "finish_reason": reason})
        return {**self._same, "object": kind, "choices": choices, "usage": usage(results), "metrics": metrics(results)}

    def chunk(self, index: int, events: Iterable[Event], result: Result | None = None, first: bool = False) -> str:
        """A line of the stream: some tokens of a text, and its end."""
        events = list(events)
        text = "".join(e.text for e in events)
        content: dict[str, Any] = {"text": text}
        reason = result and finish(result)
        if self._chat:
            text, calls = self._released(index, text, result is not None)
            role = {"role": "assistant"} if first else {}
            content = {"delta": {**role, **({"content": text} if text or first else {})}}
            if calls:
                content["delta"]["tool_calls"] = [{"index": i, **call} for i, call in enumerate(calls)]
                reason = "tool_calls"
        if self.sources:
            content["pieces"] = [(e.text, e.source) for e in events]
        told: list[tuple[int, float | None, Any]] = [(e.token, e.logprob, e.top) for e in events]
        return self._line([{"index": index, **content, "logprobs": self._told(told), "finish_reason": reason}])

    def _parted(self, index: int, text: str) -> tuple[str, list[dict[str, Any]]]:
        """What is said, and what is called."""
        if self._tools is None:
            return text, []
        said, calls = self._tools.spelling.calls(text)
        return said, told_calls(calls, f"{self._id.rpartition('-')[2]}-{index}")

    def _released(self, index: int, text: str, ended: bool) -> tuple[str, list[dict[str, Any]]]:
        """What a stream may tell by now; calls come whole, at the end."""
        if self._tools is None:
            return text, []
        text = self._held.pop(index, "") + text
        if ended:
            return self._parted(index, text)
        n = self._tools.spelling.held(text)
        self._held[index] = text[len(text) - n :]
        return text[: len(text) - n], []

    def last(self, results: Sequence[Result], with_usage: bool) -> str:
        """What ends a stream."""
        extra = {"usage": usage(results), "metrics": metrics(results)}
        return (self._line([], extra) if with_usage else "") + "data: [DONE]\n\n"

    def _line(self, choices: list[Any], extra: dict[str, Any] | None = None) -> str:
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        return f"data: {json.dumps({**self._same, 'object': kind, 'choices': choices, **(extra or {})})}\n\n"

    def _told(self, tokens: Sequence[tuple[int, float | None, Any]]) -> dict[str, Any] | None:
        if self._logprobs is None or not tokens:
            return None
        if self._chat:
            return {
                "content": [{**self._one(t, lp), "top_logprobs": [self._one(*o) for o in top]} for t, lp, top in tokens]
            }
        return {
            "tokens": [self._spell(t) for t, _, _ in tokens],
            "token_logprobs": [lp for _, lp, _ in tokens],
            "top_logprobs": [top and {self._spell(t): lp for t, lp in top} for _, _, top in tokens],
        }

    def _one(self, token: int, logprob: float | None) -> dict[str, Any]:
        text = self._spell(token)
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

    def _spell(self, token: int) -> str:
        return self._lm.tokenizer.decode([token]) if self._lm.tokenizer.available else str(token)


def _prompt(result: Result) -> list[tuple[int, float | None, Any]]:
    """Of its tokens where they are echoed with logprobs; of the first nothing is known."""
    if result.prompt_logprobs is None:
        return []
    return [(result.prompt_tokens[0], None, None), *((t.token, t.logprob, t.top) for t in result.prompt_logprobs)]


def finish(result: Result) -> str:
    return result.finish_reason if result.finish_reason in ("stop", "length") else "stop"


def usage(results: Sequence[Result]) -> dict[str, Any]:
    """Texts of one prompt count it once."""
    prompts = {tuple(r.prompt_tokens): r.stats.cached_prompt_tokens for r in results}
    prompt, new = sum(map(len, prompts)), sum(len(r.tokens) for r in results)
    cached = {"cached_tokens": sum(prompts.values())}
    return {
        "prompt_tokens": prompt,
        "completion_tokens": new,
        "total_tokens": prompt + new,
        "prompt_tokens_details": cached,
    }


def metrics(results: Sequence[Result]) -> dict[str, Any]:
    """What drafting did, as AIPerf reads it."""
    drafted, accepted = (sum(getattr(r.stats, name) for r in results) for name in _COUNTS)
    steps = sum(r.stats.num_steps for r in results)
    return {
        "speculative_decoding": {
            "num_drafts": sum(r.stats.num_spec_steps for r in results),
            "num_draft_tokens": drafted,
            "num_accepted_tokens": accepted,
            "mean_generated_length": sum(r.stats.generated_tokens for r in results) / steps if steps else 1.0,
        }
    }


_COUNTS = ("num_draft_tokens", "num_accepted_draft_tokens")
