"""Figures of a server under vLLM's names, as Prometheus reads them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ..result import Result
from .texts import Texts

_GAPS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5)
_TOKENS = tuple(n * 10**k for k in range(6) for n in (1, 2, 5))
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """A registry of its own, so that many servers live in one process."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._running = Gauge("vllm:num_requests_running", "Texts under way.", registry=registry)
        self._waiting = Gauge("vllm:num_requests_waiting", "Texts that wait for room.", registry=registry)
        self._preempted = Counter("vllm:num_preemptions", "Texts that gave way and went on later.", registry=registry)
        self._prompt = Counter("vllm:prompt_tokens", "Tokens of prompts.", registry=registry)
        self._cached = Counter("vllm:prompt_tokens_cached", "Of them, taken over.", registry=registry)
        self._new = Counter("vllm:generation_tokens", "Tokens generated.", registry=registry)
        self._ended = Counter("vllm:request_success", "Texts that ended.", ["finished_reason"], registry=registry)
        self._gap = Histogram("vllm:inter_token_latency_seconds", "Mean of a text.", registry=registry, buckets=_GAPS)
        self._prompts = Histogram("vllm:request_prompt_tokens", "Of a text.", registry=registry, buckets=_TOKENS)
        self._lengths = Histogram("vllm:request_generation_tokens", "Of a text.", registry=registry, buckets=_TOKENS)
        self._first = Histogram(
            "vllm:time_to_first_token_seconds", "From a request on.", registry=registry, buckets=_SECONDS
        )
        self._whole = Histogram("vllm:e2e_request_latency_seconds", "Of a text.", registry=registry, buckets=_SECONDS)
        self._rounds = Counter("vllm:spec_decode_num_drafts", "Passes that verified a draft.", registry=registry)
        self._drafted = Counter("vllm:spec_decode_num_draft_tokens", "Places drafted.", registry=registry)
        self._accepted = Counter("vllm:spec_decode_num_accepted_tokens", "Of them, accepted.", registry=registry)

    def watch(self, texts: Texts) -> None:
        self._running.set_function(lambda: len(texts) - texts.waiting)
        self._waiting.set_function(lambda: texts.waiting)
        texts.preempted = self._preempted.inc

    def ended(self, result: Result) -> None:
        s = result.stats
        self._prompts.observe(s.prompt_tokens)
        self._lengths.observe(len(result.tokens))
        if len(result.tokens) > 1:
            self._gap.observe((s.total_seconds - s.time_to_first_token) / (len(result.tokens) - 1))
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
