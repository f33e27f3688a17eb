"""swiftk itself, measured from the outside like the others."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import swiftk


def _chain(job: dict[str, Any]) -> swiftk.DraftRule:
    """transformers' rule: so many tokens, fewer where one is less sure than the threshold."""
    return swiftk.DraftRule(confidence=job.get("confidence", 0.4), max_draft=job.get("draft", 20), width=(1, 1, 1, 1))


class Peer:
    def __init__(self, job: dict[str, Any]) -> None:
        self.version = swiftk.__version__
        self._lm = swiftk.load(job["model"], threads=job["threads"])
        early = {"assistant_early_exit": job["exit_layer"]}
        self._options = {"plain": {"speculate": False}, "speculative": {}, "early exit, by time": early,
                         "early exit": {**early, "speculate": "always", "gate": _chain(job)}}[job["mode"]]

    def generate(self, prompt: list[int], count: int, arrived: Callable[[list[int]], None]) -> int:
        self.forget()
        stream = self._lm.generate(prompt, max_new_tokens=count, temperature=0.0, ignore_eos=True, stream=True,
                                   **self._options)
        for event in stream:
            arrived([event.token])
        self.drafted = stream.result.stats.num_draft_tokens
        return int(stream.result.stats.num_steps)

    def forget(self) -> None:
        self._lm.forget_texts()
        self._lm.session.reuse([0])

    def prefill(self, tokens: list[int]) -> None:
        self._lm.session.prefill(tokens)

    def rows(self, tokens: list[int]) -> None:
        session = self._lm.session  # row 0 is the last token of the text
        session.set_tree(tokens[1:], list(range(len(tokens) - 1)))
        session.verify()

    def roll_back(self, count: int) -> None:
        """A tree that is not committed leaves nothing behind."""
