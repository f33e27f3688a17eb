"""Figures of a server under vLLM's names, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ..result import Result

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """A registry of its own, so that many servers live in one process."""

    def __init__(self, running: Callable[[], int]) -> None:
        self._registry = registry = CollectorRegistry()
        Gauge("vllm:num_requests_running", "Texts under way or waiting.", registry=registry).set_function(running)
        self._prompt = Counter("vllm:prompt_tokens", "Tokens of prompts.", registry=registry)
        self._cached = Counter("vllm:prompt_tokens_cached", "Of them, taken over.", registry=registry)
        self._new = Counter("vllm:generation_tokens", "Tokens generated.", registry=registry)
        self._ended = Counter("vllm:request_success", "Texts that ended.", ["finished_reason"], registry=registry)
        self._first = Histogram(
            "vllm:time_to_first_token_seconds", "From a request on.", registry=registry, buckets=_SECONDS
        )
        self._whole = Histogram("vllm:e2e_request_latency_seconds", "Of a text.", registry=registry, buckets=_SECONDS)
        self._rounds = Counter("vllm:spec_decode_num_drafts", "Passes that verified a draft.", registry=registry)
        self._drafted = Counter("vllm:spec_decode_num_draft_tokens", "Places drafted.", registry=registry)
        self._accepted = Counter("vllm:spec_decode_num_accepted_tokens", "Of them, accepted.", registry=registry)

    def ended(self, result: Result) -> None:
        s = result.stats
        self._prompt.inc(s.prompt_tokens)
        self._cached.inc(s.cached_prompt_tokens)
        self._new.inc(len(result.tokens))
        self._ended.labels(result.finish_reason).inc()
        self._first.observe(s.time_to_first_token)
        self._whole.observe(s.total_seconds)
        self._rounds.inc(s.num_spec_steps)
        self._drafted.inc(s.num_draft_tokens)
        self._accepted.inc(s.num_accepted_draft_tokens)

    def page(self) -> bytes:
        return generate_latest(self._registry)
