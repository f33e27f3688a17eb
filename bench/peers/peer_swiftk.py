"""swiftk itself, measured from the outside like the others."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import swiftk


class Peer:
    version = swiftk.__version__

    def __init__(self, model: str, threads: int, loading: dict[str, Any] | None = None, **given: Any) -> None:
        """given: options, of generate(); chain, how many tokens each draft has, transformers' rule."""
        began = perf_counter()
        self._lm = swiftk.load(model, threads=threads, **(loading or {}))
        self._loaded = perf_counter() - began
        self._options = {"temperature": 0.0, "ignore_eos": True, "stream": True, **given.get("options", {})}
        if "chain" in given:
            self._options["gate"] = swiftk.TreeRule(confidence=0.0, max_draft=given["chain"], width=(1, 1, 1, 1))
        self.generate([1, 2, 3], 8)

    def sizes(self) -> dict[str, Any]:
        """What a pass reads of the weights, in bytes, and the memory's rate now, in bytes per second."""
        return {"bytes": self._lm.model.weight_bytes, "reads": self._lm.model.probe()[0]}

    def load(self) -> dict[str, Any]:
        """How long that took, and what is in memory."""
        weights = self._lm.model.weight_bytes + sum(self._lm.model.copies.values())
        return {"seconds": self._loaded, "weight_bytes": weights, "dtype": self._lm.model.dtype}

    def plan(self) -> dict[str, Any]:
        """How memory is used that is bounded, in bytes."""
        return {**self._lm.model.memory, "copies": list(self._lm.model.copies)}

    def direct(self) -> dict[str, Any]:
        """Bytes per second of reads past the page cache, of the file that passes read."""
        return {"rate": swiftk._core.read_speed(self._lm.model.streamed_file, 1 << 30)}

    def together(self, prompts: list[list[int]], count: int, options: dict[str, Any]) -> dict[str, Any]:
        """Tokens of several texts after the first of the last one, and their seconds."""
        asked = {**self._options, **options, "max_new_tokens": count}
        del asked["stream"]
        streams = self._lm.submit_many(prompts, [asked] * len(prompts))
        for stream in streams:
            next(stream)
        for stream in streams:
            stream.poll()  # what came beside it
        began = perf_counter()
        timed = sum(sum(1 for _ in stream) for stream in streams)
        return {"timed": timed, "seconds": perf_counter() - began}

    def generate(self, prompt: list[int], count: int, options: dict[str, Any] | None = None) -> dict[str, Any]:
        asked = perf_counter()
        stream = self._lm.generate(prompt, max_new_tokens=count, **{**self._options, **(options or {})})
        tokens, began = [next(stream).token], perf_counter()
        tokens += [event.token for event in stream]
        seconds, stats = perf_counter() - began, stream.result.stats
        steps, drafted = stats.num_steps, stats.num_draft_tokens
        found = {"tokens": tokens, "timed": count - 1, "seconds": seconds, "first": began - asked}
        return {**found, "steps": steps, "drafted": drafted, "disk_bytes": steps * self._lm.model.memory["streamed"]}
