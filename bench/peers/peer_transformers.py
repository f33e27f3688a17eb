"""transformers in bfloat16: plain, or drafting with an early exit of the same model."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM
from transformers.generation.candidate_generator import EarlyExitCandidateGenerator


class _Blocks(transformers.generation.streamers.BaseStreamer):
    """When each step ended, and its tokens. The first put is the prompt's, the second the prefill's."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.sizes: list[int] = []

    def put(self, value: torch.Tensor) -> None:
        self.times.append(perf_counter())
        self.sizes.append(value.numel())

    def end(self) -> None:
        """Nothing is held back."""


class Peer:
    version = f"{transformers.__version__}, torch {torch.__version__}"

    def __init__(self, model: str, threads: int, exit_layer: int | None = None, chain: int = 0) -> None:
        transformers.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        torch.set_num_threads(threads)
        self._model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).eval()
        self._options = {"assistant_early_exit": exit_layer} if exit_layer else {}
        settings = self._model.generation_config
        settings.eos_token_id = settings.bos_token_id = None  # every peer writes the same number of tokens
        settings.num_assistant_tokens, settings.assistant_confidence_threshold = chain, 0.0
        self._drafted, draft = 0, EarlyExitCandidateGenerator.get_candidates

        def counted(maker: Any, ids: torch.Tensor, *more: Any, **named: Any) -> Any:
            found = draft(maker, ids, *more, **named)
            self._drafted += found[0].shape[-1] - ids.shape[-1]
            return found

        EarlyExitCandidateGenerator.get_candidates = counted
        self.generate([1, 2, 3], 8)

    def generate(self, prompt: list[int], count: int) -> dict[str, Any]:
        ids, blocks, before = torch.tensor([prompt]), _Blocks(), self._drafted
        options = {"do_sample": False, "max_new_tokens": count, "pad_token_id": 0, "streamer": blocks, **self._options}
        text = self._model.generate(ids, attention_mask=torch.ones_like(ids), **options)
        return {
            "tokens": text[0, len(prompt) :].tolist(),
            "timed": sum(blocks.sizes[2:]),
            "seconds": blocks.times[-1] - blocks.times[1],
            "steps": len(blocks.times) - 2,
            "drafted": self._drafted - before,
        }
