"""swiftk itself, measured from the outside like the others."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import swiftk


class Peer:
    def __init__(self, job: dict[str, Any]) -> None:
        self.version = swiftk.__version__
        self._lm = swiftk.load(job["model"], threads=job["threads"])
        self._speculate = {"plain": False, "speculative": True}[job["mode"]]

    def generate(self, prompt: list[int], count: int, arrived: Callable[[list[int]], None]) -> int:
        self.forget()
        stream = self._lm.generate(prompt, max_new_tokens=count, temperature=0.0, ignore_eos=True, stream=True,
                                   speculate=self._speculate)
        for event in stream:
            arrived([event.token])
        return int(stream.result.stats.num_steps)

    def forget(self) -> None:
        self._lm.session.reuse([0])

    def prefill(self, tokens: list[int]) -> None:
        self._lm.session.prefill(tokens)

    def rows(self, tokens: list[int]) -> None:
        session = self._lm.session  # row 0 is the last token of the text
        session.set_tree(tokens[1:], list(range(len(tokens) - 1)))
        session.verify()

    def roll_back(self, count: int) -> None:
        """A tree that is not committed leaves nothing behind."""
