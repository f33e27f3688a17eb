"""A small model of its own that drafts for a larger one, taught by that one's distributions (distillation).

It is an independent drafter in the words of Mixture of Attentions' comparison (arXiv 2410.03804, section 4): it reads
tokens alone, and none of the large model's states.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import InvalidArgument
from .drafter_settings import DrafterSettings
from .eagle import right_of
from .frozen import Frozen
from .model import Decoder, initialize
from .running import autocast
from .shape import USUAL, Shape
from .tokens import Batch

_LAYERS = 4
_WIDTH = 0.5  # of the large model's


class Independent:
    """The kind, as drafter.py trains it."""

    def __init__(self, s: DrafterSettings, shape: Shape, model: Frozen, ids: np.ndarray) -> None:
        self.settings, self.model, self.places = s, model, s.steps_ahead
        self.module = Decoder(small(s, shape))
        self._read = model.taps([shape.L - 1], s.context + 1).read

    @staticmethod
    def check(s: DrafterSettings, shape: Shape) -> None:
        if s.hidden is not None and s.hidden % shape.d:
            raise InvalidArgument(f"[train] --hidden is {s.hidden}, want a multiple of the model's head size {shape.d}")

    def initialize(self, seed: int) -> None:
        """Normal with deviation 0.02, as a new model's."""
        initialize(self.module, seed)

    def loss(self, batch: Batch, rng: np.random.Generator, done: float) -> Tensor:
        """Cross entropy with the large model's distribution; nothing is drawn."""
        large, states = self._read_both(batch)
        counts = torch.from_numpy(batch.counts).to(states.device)
        with autocast(states.device, self.settings.precision):
            logits = self.module.head(states[counts])
        said = self.model.said(large[counts], self.settings.precision)
        return F.cross_entropy(logits.float(), said.softmax(-1))

    def right(self, batch: Batch, rng: np.random.Generator) -> Tensor:
        """[n, places] whether the best token is the large model's own, at places one after another."""
        large, states = self._read_both(batch)
        with autocast(states.device, self.settings.precision):
            best = self.module.head(states).argmax(-1)
        n = best.shape[1]
        steps = [best[:, 1 + k : n - self.places + 1 + k] for k in range(self.places)]
        return right_of(steps, self.model.best(large), torch.from_numpy(batch.counts).to(best.device))

    def config(self) -> dict[str, Any]:
        """config.json of a LLaMA with the large model's tokens."""
        return {
            "architectures": ["LlamaForCausalLM"],
            **self.model.layers_config("llama", self.module.shape),
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
        }

    def _read_both(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """States after the large model's last norm [B, T, D], and after the small one's last layer [B, T, its D]."""
        _, large = self._read(batch.tokens)
        tokens = torch.from_numpy(batch.tokens).to(self.model.device)
        with autocast(tokens.device, self.settings.precision):
            (states,) = self.module.exits(tokens, [False] * (self.module.shape.L - 1) + [True])
        return large, states


def small(s: DrafterSettings, model: Shape) -> Shape:
    """A LLaMA's, with the model's tokens and heads of the model's size."""
    heads = max(1, round((s.hidden or model.D * _WIDTH) / model.d))
    width = heads * model.d
    return Shape(
        L=s.layers or _LAYERS,
        D=width,
        H=heads,
        n_kv=max(n for n in range(1, heads + 1) if heads % n == 0 and n <= model.n_kv),
        d=model.d,
        F=-(-width * 8 // 3 // 32) * 32,
        V=model.V,
        eps=model.eps,
        tied=True,
        qkv_bias=False,
        o_bias=False,
        mlp_bias=False,
        qk_norm=False,
        ropes=model.ropes,
        layers=(USUAL,) * (s.layers or _LAYERS),
    )
