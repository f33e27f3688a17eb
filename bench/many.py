"""Lanes of many texts at a time, which do not end: the engine's, and llama.cpp's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from swiftk import _core

from .process import Peer

CONTEXT = 1024  # tokens of a text, at most, where a study does not say how many


class Lane:
    """Texts under way, of which each is to have `most` tokens in the mean; how many they had in how many rounds, and
    how long that took, after the first of each."""

    def __init__(self, most: int) -> None:
        self.texts: list[list[int]] = []
        self.most, self.tokens, self.rounds, self.seconds = most, 0, 0, 0.0

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds

    @property
    def length(self) -> float:
        """Tokens of a text per round."""
        return self.tokens / self.rounds / len(self.texts)


class Many(Lane):
    """An engine of its own. context: tokens of a text, at most; kv_memory: bytes of all, 0: the engine's own choice;
    begin: called with the engine before it gets the prompts."""

    def __init__(
        self,
        model: Any,
        drafting: str,
        prompts: Sequence[Sequence[int]],
        most: int,
        context: int = CONTEXT,
        kv_memory: int = 0,
        begin: Callable[[_core.Engine], Any] = lambda engine: None,
        **options: Any,
    ) -> None:
        super().__init__(most)
        self._engine = _core.Engine(model, context=context, sequences=len(prompts), kv_memory=kv_memory)
        self._boxes: dict[int, Any] = {}
        begin(self._engine)
        sampler = {name: options.pop(name) for name in list(options) if hasattr(_core.Sampling, name)}
        options |= {"max_new_tokens": 1 << 20, "drafting": drafting, "sampling": _core.Sampling(**sampler)}
        self._numbers = [
            self._engine.submit(self._boxes, _core.Request(prompt=np.int32(prompt), **options)) for prompt in prompts
        ]
        self.texts = [[] for _ in prompts]
        while not all(self.texts):
            self._step()

    def go_on(self, tokens: int) -> bool:
        while self.tokens < min(tokens, self.most) * len(self.texts):
            began = perf_counter()
            self.tokens += self._step()
            self.seconds += perf_counter() - began
            self.rounds += 1
        return tokens < self.most

    def _step(self) -> int:
        self._engine.step(self._boxes)
        before = sum(map(len, self.texts))
        for number, text in zip(self._numbers, self.texts):
            while self._boxes[number]:
                text += [one.token for one in self._boxes[number].popleft().tokens]
        return sum(map(len, self.texts)) - before


class Llama(Lane):
    """llama.cpp, in a process of its own. reuse: it computes no beginning twice."""

    def __init__(self, peer: Peer, prompts: Sequence[Sequence[int]], most: int, reuse: bool = False) -> None:
        super().__init__(most)
        self._peer = peer
        self.texts = [[token] for token in peer.ask("begin", prompts=list(prompts), reuse=reuse)["tokens"][0]]

    def go_on(self, tokens: int) -> bool:
        rounds = min(tokens, self.most) - self.rounds
        found = self._peer.ask("go_on", rounds=rounds)
        for text, new in zip(self.texts, zip(*found["tokens"])):
            text += new
        self.rounds += rounds
        self.tokens += rounds * len(self.texts)
        self.seconds += found["seconds"]
        return tokens < self.most
