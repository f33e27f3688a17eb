"""llama.cpp through llama-cpp-python, driven with token ids."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llama_cpp
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding


class Peer:
    def __init__(self, job: dict[str, Any]) -> None:
        self.version = llama_cpp.__version__
        draft = None
        if job["mode"] == "prompt lookup":
            draft = LlamaPromptLookupDecoding(max_ngram_size=2, num_pred_tokens=job["lookup"])
        self._llama = llama_cpp.Llama(
            job["gguf"], n_ctx=1024, n_batch=512, n_threads=job["threads"], n_threads_batch=job["threads"],
            flash_attn=job["flash_attention"], draft_model=draft, verbose=False)
        self._context = self._llama._ctx
        decode = self._context.decode

        def counted(batch: Any) -> None:
            self._decodes += 1
            decode(batch)

        self._decodes = 0
        self._context.decode = counted
        self._length = 0

    def generate(self, prompt: list[int], count: int, arrived: Callable[[list[int]], None]) -> int:
        self.forget()
        self._decodes = 0
        for i, token in enumerate(self._llama.generate(prompt, temp=0.0, repeat_penalty=1.0), 1):
            arrived([token])
            if i == count:
                break
        return self._decodes - 1  # the first is the prompt's

    def forget(self) -> None:
        self._llama.reset()
        self._length = 0
        self._context.kv_cache_clear()

    def prefill(self, tokens: list[int]) -> None:
        self._decode(tokens, every_row=False)

    def rows(self, tokens: list[int]) -> None:
        self._decode(tokens, every_row=True)

    def roll_back(self, count: int) -> None:
        self._length -= count
        self._context.kv_cache_seq_rm(-1, self._length, -1)

    def _decode(self, tokens: list[int], every_row: bool) -> None:
        batch = self._llama._batch
        batch.set_batch(batch=tokens, n_past=self._length, logits_all=every_row)
        self._context.decode(batch)
        llama_cpp.llama_synchronize(self._context.ctx)
        self._length += len(tokens)
