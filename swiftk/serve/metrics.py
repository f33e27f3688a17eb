"""Figures of a server under vLLM's names, as Prometheus reads them. grafana.json, beside this file, shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ..running.result import Result
from .texts import Texts

_GAPS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5)
_TOKENS = tuple(n * 10**k for k in range(6) for n in (1, 2, 5))
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_REASONS = {"cancelled": "abort"}  # in vLLM's words


class Metrics:
    """A registry of its own, so that many servers live in one process. Every figure has the label model_name."""

    def __init__(self, name: str = "") -> None:
        self.name = name  # of the model; empty until it is known
        self._registry = CollectorRegistry()
        self._running = self._gauge("vllm:num_requests_running", "Texts that the engine runs now.")
        self._waiting = self._gauge("vllm:num_requests_waiting", "Texts that wait for room in the engine.")
        self._kv = self._gauge(
            "vllm:kv_cache_usage_perc", "Share of the memory of keys and values that running texts hold, 0 to 1."
        )
        self._resident = self._gauge(
            "swiftk:kv_cache_resident_bytes", "Memory of keys and values that the process holds now, in bytes."
        )
        self._preempted = self._counter(
            "vllm:num_preemptions", "Times that a text gave its memory to another one and continued later."
        )
        self._prompt = self._counter("vllm:prompt_tokens", "Prompt tokens of all texts that have ended.")
        self._cached = self._counter("vllm:prompt_tokens_cached", "Prompt tokens that the prefix cache held already.")
        self._queries = self._counter("vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache.")
        self._hits = self._counter("vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache.")
        self._declare_files()
        self._declare_disk()
        self._new = self._counter("vllm:generation_tokens", "Tokens generated, those of aborted texts included.")
        self._ended = self._counter(
            "vllm:request_success",
            "Texts that have ended, by reason: stop, length, or abort (the client left, or the server stopped).",
            ["finished_reason"],
        )
        self._prompts = self._histogram("vllm:request_prompt_tokens", "Prompt tokens per text.", _TOKENS)
        self._lengths = self._histogram("vllm:request_generation_tokens", "Tokens generated per text.", _TOKENS)
        self._first = self._histogram(
            "vllm:time_to_first_token_seconds", "Time from a text's start to its first token, in seconds.", _SECONDS
        )
        self._queue = self._histogram(
            "vllm:request_queue_time_seconds",
            "Time from a text's start until the engine takes up its prompt, in seconds.",
            _SECONDS,
        )
        self._gap = self._histogram(
            "vllm:inter_token_latency_seconds", "Mean time between tokens of one text, in seconds.", _GAPS
        )
        self._decode = self._histogram(
            "vllm:request_decode_time_seconds", "Time from a text's first token to its last, in seconds.", _SECONDS
        )
        self._whole = self._histogram(
            "vllm:e2e_request_latency_seconds", "Time from a text's start to its end, in seconds.", _SECONDS
        )
        self._rounds = self._counter("vllm:spec_decode_num_drafts", "Passes of the model that verified a draft.")
        self._drafted = self._counter("vllm:spec_decode_num_draft_tokens", "Tokens that drafts proposed.")
        self._accepted = self._counter("vllm:spec_decode_num_accepted_tokens", "Proposed tokens that were accepted.")
        self._answers = self._counter(
            "http_requests", "HTTP requests that were answered, by method, route and status.", _ROUTE
        )
        self._answering = self._histogram(
            "http_request_duration_seconds", "Time from a request to the end of its answer.", _SECONDS, _ROUTE[:2]
        )

    def _declare_files(self) -> None:
        """Figures of the prefix cache on disk; they have a value where there is one."""
        self._files = self._gauge("swiftk:prefix_files", "Files of the prefix cache on disk.")
        self._files_size = self._gauge(
            "swiftk:prefix_files_bytes", "Size of the prefix cache's files on disk, in bytes."
        )
        self._files_read = self._counter(
            "swiftk:prefix_files_hits", "Prompt tokens whose keys and values were read from the prefix cache's files."
        )
        self._files_written = self._counter(
            "swiftk:prefix_files_written",
            "Prompt tokens whose keys and values were written to the prefix cache's files.",
        )
        self._files_failed = self._counter(
            "swiftk:prefix_files_failures", "Files of the prefix cache that were damaged, or could not be written."
        )

    def _declare_disk(self) -> None:
        """Figures of weights that are not in memory."""
        self._disk_read = self._counter(
            "swiftk:disk_bytes",
            "Weights that passes read from disk, in bytes. A pass counts for each of the texts that it was for.",
        )
        self._disk_waited = self._counter(
            "swiftk:disk_seconds",
            "Seconds that passes waited for weights from disk. A pass counts for each of the texts that it was for.",
        )

    def _gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Any:
        return Gauge(name, text, ["model_name", *labels], registry=self._registry)

    def _counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Any:
        return Counter(name, text, ["model_name", *labels], registry=self._registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float], labels: Sequence[str] = ()) -> Any:
        return Histogram(name, text, ["model_name", *labels], buckets=buckets, registry=self._registry)

    def watch(self, texts: Texts) -> None:
        """Follows the texts of a model whose name is known."""
        self._running.labels(self.name).set_function(lambda: len(texts) - texts.waiting)
        self._waiting.labels(self.name).set_function(lambda: texts.waiting)
        self._kv.labels(self.name).set_function(lambda: texts.lm.kv["used_bytes"] / max(texts.lm.kv["bytes"], 1))
        self._resident.labels(self.name).set_function(lambda: texts.lm.kv["resident_bytes"])
        if files := texts.lm.prefix_files:
            self._files.labels(self.name).set_function(lambda: files.count)
            self._files_size.labels(self.name).set_function(lambda: files.bytes)
            files.read = self._files_read.labels(self.name).inc
            files.written = self._files_written.labels(self.name).inc
            files.failed = self._files_failed.labels(self.name).inc
        for reason in "stop", "length", "abort":  # a rate needs a first sample
            self._ended.labels(self.name, reason)
        texts.preempted = self._preempted.labels(self.name).inc
        texts.ended = self.ended

    def ended(self, result: Result) -> None:
        s, name, new = result.stats, self.name, len(result.tokens)
        self._prompts.labels(name).observe(s.prompt_tokens)
        self._lengths.labels(name).observe(new)
        self._prompt.labels(name).inc(s.prompt_tokens)
        self._cached.labels(name).inc(s.cached_prompt_tokens)
        self._queries.labels(name).inc(s.prompt_tokens)
        self._hits.labels(name).inc(s.cached_prompt_tokens)
        self._new.labels(name).inc(new)
        self._ended.labels(name, _REASONS.get(result.finish_reason, result.finish_reason)).inc()
        if new:
            self._queue.labels(name).observe(s.queue_seconds)
            self._first.labels(name).observe(s.time_to_first_token)
            self._decode.labels(name).observe(s.total_seconds - s.time_to_first_token)
        if new > 1:
            self._gap.labels(name).observe((s.total_seconds - s.time_to_first_token) / (new - 1))
        self._whole.labels(name).observe(s.total_seconds)
        self._rounds.labels(name).inc(s.num_spec_steps)
        self._drafted.labels(name).inc(s.num_draft_tokens)
        self._accepted.labels(name).inc(s.num_accepted_draft_tokens)
        self._disk_read.labels(name).inc(s.disk_bytes)
        self._disk_waited.labels(name).inc(s.disk_seconds)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """An HTTP request. route: the path as it is declared, so that there are few."""
        self._answers.labels(self.name, method, route, str(status)).inc()
        self._answering.labels(self.name, method, route).observe(seconds)

    def page(self) -> bytes:
        return generate_latest(self._registry)


_ROUTE = ("method", "handler", "status")
