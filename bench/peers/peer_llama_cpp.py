"""llama.cpp with one text or several at once, greedy, driven with token ids: as many as n_seq_max says, each in cells
of its own. One text can be drafted by the prompt lookup of its Python package."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from time import perf_counter
from typing import Any

import llama_cpp
import numpy as np
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding


class Peer:
    version = llama_cpp.__version__

    def __init__(
        self, path: str, threads: int, context: int = 1024, texts: int = 1, lookup: int = 0, flash: bool = False
    ) -> None:
        """lookup: tokens of a draft; 0: none. flash: with flash attention, whatever llama.cpp would choose."""
        logging.getLogger("llama-cpp-python").setLevel(logging.CRITICAL + 1)
        llama_cpp.llama_backend_init()
        began = perf_counter()
        self._model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        self._loaded = perf_counter() - began
        options = llama_cpp.llama_context_default_params()
        options.n_seq_max, options.n_ctx, options.n_batch = texts, texts * context, context
        options.n_threads = options.n_threads_batch = threads
        if flash and hasattr(options, "flash_attn_type"):
            options.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        elif flash:  # of older versions
            options.flash_attn = True
        self._context = llama_cpp.llama_init_from_model(self._model, options)
        if not self._context:
            raise RuntimeError(f"[llama_cpp] llama.cpp refuses {path} with {texts} texts")
        self._columns = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self._batch = llama_cpp.llama_batch_init(context, 0, 1)
        self._lookup = LlamaPromptLookupDecoding(num_pred_tokens=lookup) if lookup else None
        self._last: list[int] = []
        self._lengths: list[int] = []
        self._prompt: list[int] = []  # of the first text, whose cells are there

    def load(self) -> dict[str, Any]:
        """How long that took, and the tensors' bytes."""
        return {"seconds": self._loaded, "weight_bytes": llama_cpp.llama_model_size(self._model), "dtype": ""}

    def generate(self, prompt: list[int], count: int) -> dict[str, Any]:
        asked = perf_counter()
        first = self.begin([prompt])["tokens"]
        began = perf_counter()
        steps = count - 1
        if self._lookup:
            tokens, steps = self._drafted(prompt + first[0], count - 1)
        else:
            tokens = [one for (one,) in self.go_on(count - 1)["tokens"]]
        timed = {"timed": count - 1, "seconds": perf_counter() - began, "first": began - asked}
        return {"tokens": first[0] + tokens, **timed, "steps": steps}

    def begin(self, prompts: list[list[int]], reuse: bool = False) -> dict[str, Any]:
        """The first token of each; what was there before is forgotten. With `reuse` one prompt keeps what it begins
        with like the first text before it, and what several prompts begin with is computed once."""
        began, self._last = perf_counter(), []
        kept = self._kept(prompts) if reuse else 0
        if not kept:
            llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)
        self._lengths, self._prompt = list(map(len, prompts)), prompts[0]
        for text, prompt in enumerate(prompts):
            end = len(prompt) - 1
            self._last += self._decode((prompt[at], at, text, at == end) for at in range(kept, end + 1))
        return {"tokens": [self._last], "seconds": perf_counter() - began}

    def _kept(self, prompts: list[list[int]]) -> int:
        """The number of leading tokens of every prompt that stay in cells, beside which there are no others; 0: the
        cells have to be cleared."""
        memory = llama_cpp.llama_get_memory(self._context)
        texts = prompts if len(prompts) > 1 else [*prompts, self._prompt]
        shared = next((at for at, row in enumerate(zip(*texts)) if len({*row}) > 1), min(map(len, texts)))
        kept = min([shared, *(len(prompt) - 1 for prompt in prompts)])
        if len(prompts) == 1:
            return kept if kept and llama_cpp.llama_memory_seq_rm(memory, 0, kept, -1) else 0
        if kept:
            llama_cpp.llama_memory_clear(memory, True)
            self._decode((token, at, 0, False) for at, token in enumerate(prompts[0][:kept]))
            for text in range(1, len(prompts)):
                llama_cpp.llama_memory_seq_cp(memory, 0, text, -1, -1)
        return kept

    def go_on(self, rounds: int) -> dict[str, Any]:
        """A token of every text each round."""
        found, began = [], perf_counter()
        for _ in range(rounds):
            rows = zip(self._last, self._lengths, range(len(self._last)))
            self._last = self._decode((token, at, text, True) for token, at, text in rows)
            self._lengths = [length + 1 for length in self._lengths]
            found.append(self._last)
        return {"tokens": found, "seconds": perf_counter() - began}

    def _drafted(self, text: list[int], count: int) -> tuple[list[int], int]:
        """So many more tokens of a text, of which all but the last are in its cells; and how many passes they took."""
        memory, begin, passes = llama_cpp.llama_get_memory(self._context), len(text), 0
        while (left := begin + count - len(text)) > 0:
            draft = self._lookup(np.array(text, np.intc)).tolist()[: left - 1]
            first = len(text) - 1
            best = self._decode((token, first + i, 0, True) for i, token in enumerate([text[-1], *draft]))
            right = next((i for i, token in enumerate(draft) if token != best[i]), len(draft))
            text = [*text, *best[: right + 1]]
            llama_cpp.llama_memory_seq_rm(memory, 0, len(text) - 1, -1)
            passes += 1
        return text[begin:], passes

    def _decode(self, rows: Iterable[tuple[int, int, int, bool]]) -> list[int]:
        """The best token after every row that wants logits."""
        batch, count, wanted = self._batch, 0, 0
        for i, (token, at, text, wants) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.logits[i] = token, at, wants
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, text
            count, wanted = i + 1, wanted + wants
        batch.n_tokens = count
        if status := llama_cpp.llama_decode(self._context, batch):
            raise RuntimeError(f"[llama_cpp] llama_decode returned {status}")
        if not wanted:
            return []
        logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits(self._context), (wanted, self._columns))
        return logits.argmax(1).tolist()
