"""llama.cpp with several texts at once, greedy, for bench/batch.py: each line it reads is a job, as JSON; one answers.

Runs under any interpreter that has llama-cpp-python, so it imports nothing of this repository.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable
from time import perf_counter

import llama_cpp
import numpy as np


class Texts:
    """As many as n_seq_max says, each in cells of its own."""

    def __init__(self, gguf: str, threads: int, context: int, texts: int) -> None:
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(gguf.encode(), llama_cpp.llama_model_default_params())
        options = llama_cpp.llama_context_default_params()
        options.n_seq_max, options.n_ctx, options.n_batch = texts, texts * context, context
        options.n_threads = options.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, options)
        if not self._context:
            raise RuntimeError(f"[llama_batch] llama.cpp refuses {gguf} with {texts} texts")
        self._columns = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self._batch = llama_cpp.llama_batch_init(context, 0, 1)
        self._last: list[int] = []
        self._lengths: list[int] = []

    def submit(self, prompts: list[list[int]]) -> list[list[int]]:
        """The first token of each; what was there before is forgotten."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)
        self._lengths = list(map(len, prompts))
        self._last = []
        for text, prompt in enumerate(prompts):
            end = len(prompt) - 1
            self._last += self._decode((token, at, text, at == end) for at, token in enumerate(prompt))
        return [self._last]

    def go_on(self, rounds: int) -> list[list[int]]:
        """A token of every text each round."""
        found = []
        for _ in range(rounds):
            rows = zip(self._last, self._lengths, range(len(self._last)))
            self._last = self._decode((token, at, text, True) for token, at, text in rows)
            self._lengths = [length + 1 for length in self._lengths]
            found.append(self._last)
        return found

    def _decode(self, rows: Iterable[tuple[int, int, int, bool]]) -> list[int]:
        """The best token behind every row that wants logits."""
        batch, count, wanted = self._batch, 0, 0
        for i, (token, at, text, wants) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.logits[i] = token, at, wants
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, text
            count, wanted = i + 1, wanted + wants
        batch.n_tokens = count
        if status := llama_cpp.llama_decode(self._context, batch):
            raise RuntimeError(f"[llama_batch] llama_decode returned {status}")
        logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits(self._context), (wanted, self._columns))
        return logits.argmax(1).tolist()


if __name__ == "__main__":
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not reach the answer
    logging.getLogger("llama-cpp-python").setLevel(logging.CRITICAL + 1)
    texts = Texts(sys.argv[1], *map(int, sys.argv[2:]))
    for line in sys.stdin:
        job = json.loads(line)
        began = perf_counter()
        tokens = texts.submit(job["prompts"]) if "prompts" in job else texts.go_on(job["rounds"])
        print(json.dumps({"tokens": tokens, "seconds": perf_counter() - began}), file=answer, flush=True)
