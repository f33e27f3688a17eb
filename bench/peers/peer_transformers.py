"""transformers in bfloat16: plain, early exit of the same model, and prompt lookup."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.generation.candidate_generator import EarlyExitCandidateGenerator


class _Blocks(transformers.generation.streamers.BaseStreamer):
    """Hands over each block of tokens as a step ends. The first put is the prompt's, the second the prefill's."""

    def __init__(self, arrived: Callable[[list[int]], None]) -> None:
        self._arrived = arrived
        self.puts = 0

    def put(self, value: torch.Tensor) -> None:
        if self.puts:
            self._arrived(value.reshape(-1).tolist())
        self.puts += 1

    def end(self) -> None:
        """Nothing is held back."""


class _Counted:
    """Early exits' drafts, counted on their way to the target."""

    def __init__(self) -> None:
        self.tokens = 0
        draft = EarlyExitCandidateGenerator.get_candidates

        def get_candidates(maker: Any, ids: torch.Tensor, *more: Any, **named: Any) -> Any:
            found = draft(maker, ids, *more, **named)
            self.tokens += found[0].shape[-1] - ids.shape[-1]
            return found

        EarlyExitCandidateGenerator.get_candidates = get_candidates


class Peer:
    def __init__(self, job: dict[str, Any]) -> None:
        transformers.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        torch.set_num_threads(job["threads"])
        self.version = f"{transformers.__version__}, torch {torch.__version__}"
        self._model = AutoModelForCausalLM.from_pretrained(job["model"], dtype=torch.bfloat16).eval()
        self._options = {"plain": {}, "early exit": {"assistant_early_exit": job["exit_layer"]},
                         "prompt lookup": {"prompt_lookup_num_tokens": job["lookup"]}}[job["mode"]]
        settings = self._model.generation_config
        for name in ("eos_token_id", "bos_token_id"):
            setattr(settings, name, None)  # every peer writes the same number of tokens
        if "draft" in job:
            settings.num_assistant_tokens, settings.assistant_confidence_threshold = job["draft"], job["confidence"]
        self._drafts = _Counted()
        self._cache = DynamicCache()

    def generate(self, prompt: list[int], count: int, arrived: Callable[[list[int]], None]) -> int:
        ids, blocks, before = torch.tensor([prompt]), _Blocks(arrived), self._drafts.tokens
        self._model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count,
                             pad_token_id=0, streamer=blocks, **self._options)
        self.drafted = self._drafts.tokens - before
        return blocks.puts - 2

    def forget(self) -> None:
        self._cache = DynamicCache()

    @torch.inference_mode()
    def prefill(self, tokens: list[int]) -> None:
        self._model(torch.tensor([tokens]), past_key_values=self._cache, use_cache=True, logits_to_keep=1)

    @torch.inference_mode()
    def rows(self, tokens: list[int]) -> None:
        self._model(torch.tensor([tokens]), past_key_values=self._cache, use_cache=True)

    def roll_back(self, count: int) -> None:
        self._cache.crop(-count)
