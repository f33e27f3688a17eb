"""OpenAI's answers, whole and in chunks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from ..api import LM
from ..result import Event, Result


class Answer:
    """The shape of one request's answer: a completion's or a chat's."""

    def __init__(self, lm: LM, number: str, created: int, model: str, chat: bool, logprobs: int | None) -> None:
        self._lm, self._chat, self._logprobs = lm, chat, logprobs
        self._id = f"{'chatcmpl' if chat else 'cmpl'}-{number}"
        self._same = {"id": self._id, "created": created, "model": model}

    def whole(self, results: Sequence[Result], before: Sequence[str]) -> dict[str, Any]:
        """before: what each text is to begin with, its prompt where that is echoed."""
        kind = "chat.completion" if self._chat else "text_completion"
        choices = []
        for i, (result, start) in enumerate(zip(results, before, strict=True)):
            content: dict[str, Any] = {"text": start + result.text}
            if self._chat:
                content = {"message": {"role": "assistant", "content": result.text}}
            told = [(t.token, t.logprob, t.top) for t in result.logprobs or ()]
            choices.append({"index": i, **content, "logprobs": self._told(told), "finish_reason": finish(result)})
        return {**self._same, "object": kind, "choices": choices, "usage": usage(results), "metrics": metrics(results)}

    def chunk(self, index: int, events: Iterable[Event], result: Result | None = None, first: bool = False) -> str:
        """A line of the stream: some tokens of a text, and its end."""
        events = list(events)
        text = "".join(e.text for e in events)
        content: dict[str, Any] = {"text": text}
        if self._chat:
            role = {"role": "assistant"} if first else {}
            content = {"delta": {**role, **({"content": text} if text or first else {})}}
        told = [(e.token, e.logprob, e.top) for e in events]
        choice = {"index": index, **content, "logprobs": self._told(told), "finish_reason": result and finish(result)}
        return self._line([choice])

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
            "top_logprobs": [{self._spell(t): lp for t, lp in top} for _, _, top in tokens],
        }

    def _one(self, token: int, logprob: float | None) -> dict[str, Any]:
        text = self._spell(token)
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

    def _spell(self, token: int) -> str:
        return self._lm.tokenizer.decode([token]) if self._lm.tokenizer.available else str(token)


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
