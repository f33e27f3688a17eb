"""OpenAI's answers, whole and in chunks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from ..api import LM
from ..running.result import Event, Result, TokenLogprobs
from .calls import Reader
from .logprobs import Entries, Entry, chat_shape, completion_shape, of_prompt
from .tools import Tools, reported_calls


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
        begins: Sequence[bool] = (),
    ) -> None:
        """begins: of each text, whether no words come before it."""
        self._lm, self._chat, self._logprobs, self._tools = lm, chat, logprobs, tools
        self.sources = False  # whether chunks report who proposed each token
        self._readers: dict[int, Reader] = {}  # of texts, by index
        self._calls: dict[int, list[dict[str, Any]]] = {}  # that a stream reports at the end of a text
        self._entries = [Entries(lm.tokenizer, each) for each in begins]
        self._offsets = [0] * len(self._entries)  # characters of each text that entries have had
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
                said, calls = self._parted(i, result.text, True)
                called = {"tool_calls": calls} if calls else {}
                content = {"message": {"role": "assistant", "content": said or (None if calls else ""), **called}}
                reason = "tool_calls" if calls else reason
            prompt = of_prompt(self._lm.tokenizer, result, start)
            reported = self._reported(i, result.logprobs or (), result.text, True, prompt)
            choices.append({"index": i, **content, "logprobs": reported, "finish_reason": reason})
        return {**self._same, "object": kind, "choices": choices, "usage": usage(results), "metrics": metrics(results)}

    def echo(self, index: int, text: str) -> str:
        """A line of the stream: the prompt."""
        self._offsets[index] += len(text)
        return self._line([{"index": index, "text": text, "logprobs": None, "finish_reason": None}])

    def chunk(self, index: int, events: Iterable[Event], result: Result | None = None, first: bool = False) -> str:
        """A line of the stream: some tokens of a text, and its end."""
        events = list(events)
        text = "".join(e.text for e in events)
        reported = self._reported(index, events, text, result is not None)
        content: dict[str, Any] = {"text": text}
        reason = result and finish(result)
        if self._chat:
            text, more = self._parted(index, text, result is not None)
            calls = self._calls.setdefault(index, [])
            calls += more
            role = {"role": "assistant"} if first else {}
            content = {"delta": {**role, **({"content": text} if text or first else {})}}
            if calls and result is not None:
                content["delta"]["tool_calls"] = [{"index": i, **call} for i, call in enumerate(calls)]
                reason = "tool_calls"
        if self.sources:
            content["pieces"] = [(e.text, e.source) for e in events]
        return self._line([{"index": index, **content, "logprobs": reported, "finish_reason": reason}])

    def _parted(self, index: int, text: str, ended: bool) -> tuple[str, list[dict[str, Any]]]:
        """What is said, and what is called, of a text that goes on by so much."""
        if self._tools is None:
            return text, []
        reader = self._readers.setdefault(index, self._tools.reader())
        first = reader.count
        said, calls = reader.push(text, ended)
        return said, reported_calls(calls, f"{self._id.rpartition('-')[2]}-{index}", first)

    def last(self, results: Sequence[Result], with_usage: bool) -> str:
        """The last lines of a stream."""
        extra = {"usage": usage(results), "metrics": metrics(results)}
        return (self._line([], extra) if with_usage else "") + "data: [DONE]\n\n"

    def _line(self, choices: list[Any], extra: dict[str, Any] | None = None) -> str:
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        return f"data: {json.dumps({**self._same, 'object': kind, 'choices': choices, **(extra or {})})}\n\n"

    def _reported(
        self,
        index: int,
        tokens: Iterable[Event | TokenLogprobs],
        text: str,
        ended: bool,
        prompt: Sequence[Entry] = (),
    ) -> dict[str, Any] | None:
        if self._logprobs is None:
            return None
        entries = [*prompt, *self._entries[index].push(tokens, text, ended)]
        offset = self._offsets[index]
        self._offsets[index] += sum(len(entry.text) for entry in entries)
        if not entries:
            return None
        return chat_shape(entries) if self._chat else completion_shape(entries, offset)


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
    """Figures of drafting, as AIPerf reads them, and the seconds that it and the disk took."""
    drafted, accepted = (sum(getattr(r.stats, name) for r in results) for name in _COUNTS)
    steps = sum(r.stats.num_steps for r in results)
    plans: Counter[str] = Counter()
    for r in results:
        plans.update({name: plan.accepted for name, plan in r.stats.plans.items()})
    return {
        "speculative_decoding": {
            "num_drafts": sum(r.stats.num_spec_steps for r in results),
            "num_draft_tokens": drafted,
            "num_accepted_tokens": accepted,
            "mean_generated_length": sum(r.stats.generated_tokens for r in results) / steps if steps else 1.0,
            "accepted_by_plan": dict(plans),
        },
        "seconds": {name: sum(getattr(r.stats, f"{name}_seconds") for r in results) for name in _PARTS},
    }


_PARTS = ("draft", "verify", "disk")
_COUNTS = ("num_draft_tokens", "num_accepted_draft_tokens")
