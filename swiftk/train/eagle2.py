"""The head of EAGLE-1 and 2 for training (arXiv 2401.15077, 2406.16858): it foretells what the model's last norm gives.

Modules are named as tensors in EAGLE's checkpoints are. csrc/heads/eagle.cc is the same function at inference.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import InvalidArgument
from .drafter_settings import DrafterSettings
from .eagle import EagleAttention, Unrolled, right_of
from .frozen import Frozen
from .model import Mlp, Norm
from .running import autocast
from .shape import Shape
from .tokens import Batch

_NOISE = 0.2  # width of what is added to features in training, from -0.1 on (1's section 4.2)
_CE = 0.1  # weight of the cross entropy beside the error of features (1's equation of the loss)


class FirstLayer(nn.Module):
    """It has no norm before its attention."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.self_attn = EagleAttention(s, s.D)
        self.post_attention_layernorm = Norm(s.D, s.eps)
        self.mlp = Mlp(s)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], steps: list[tuple[Tensor, Tensor]]) -> Tensor:
        x = x + self.self_attn.unrolled(x, rope, steps)
        return x + self.mlp(self.post_attention_layernorm(x))


class Eagle2Drafter(Unrolled):
    """Embedding and vocabulary head are the model's, [V, D] each, and stay as they are."""

    def __init__(self, model: Shape) -> None:
        super().__init__(replace(model, L=1, qk_norm=False, qkv_bias=False, o_bias=False, mlp_bias=False))
        s = self.shape
        self.fc = nn.Linear(2 * s.D, s.D)
        self.layers = nn.ModuleList([FirstLayer(s)])

    def forward(self, features: Tensor, tokens: Tensor, embedding: Tensor, steps: int) -> list[Tensor]:
        """Features [B, T - 1 - k, D] of each step k. features [B, T, D] of tokens [B, T]: after the model's last norm;
        row t of step k has read the model up to place t and tokens up to t + 1 + k, and foretells the feature of the
        last of them."""
        x = features[:, :-1]
        rope, seen, found = self.rotary(torch.arange(tokens.shape[1], device=tokens.device)), [], []
        for k in range(steps):
            embedded = F.embedding(tokens[:, 1 + k :], embedding)
            n = embedded.shape[1]
            cos, sin = (part[k : k + n] for part in rope)
            x = self.layers[0](self.fc(torch.cat([embedded, x[:, :n]], -1)), (cos, sin), seen)
            found.append(x)
        return found


class Eagle2:
    """The kind, as drafter.py trains it."""

    def __init__(self, s: DrafterSettings, shape: Shape, model: Frozen, ids: np.ndarray) -> None:
        self.settings, self.model, self.shape, self.places = s, model, shape, s.steps_ahead
        self.module = Eagle2Drafter(shape)
        self._read = model.taps([shape.L - 1], s.context + 1).read

    @staticmethod
    def check(s: DrafterSettings, shape: Shape) -> None:
        if s.layers not in (None, 1):
            raise InvalidArgument(f"[train] --layers is {s.layers}, an eagle2 drafter has one layer")

    @torch.no_grad()
    def initialize(self, seed: int) -> None:
        """Normal with deviation 0.02."""
        self.module.randomize(seed)
        self.module.fc.bias.zero_()

    def loss(self, batch: Batch, rng: np.random.Generator, done: float) -> Tensor:
        """Smooth L1 of features, and cross entropy with what the model says of its own; a single step, from features
        with noise, as a drafted one's are inexact."""
        features, tokens = self._read_text(batch)
        noise = torch.from_numpy(rng.random(features.shape, np.float32)).to(features.device)
        said = self._drafted(features + (noise - 0.5) * _NOISE, tokens, 1)[0]
        counts = torch.from_numpy(batch.counts[:, 1:]).to(said.device)
        said, wanted, precision = said[counts], features[:, 1:][counts], self.settings.precision
        p, log_q = self.model.said(wanted, precision).softmax(-1), self.model.said(said, precision).log_softmax(-1)
        return F.smooth_l1_loss(said, wanted) - _CE * (p * log_q).sum(-1).mean()

    def right(self, batch: Batch, rng: np.random.Generator) -> Tensor:
        """[n, places] whether the best token is the model's own, at each step from each place."""
        features, tokens = self._read_text(batch)
        steps, best = self._drafted(features, tokens, self.places), self.model.best(features)
        proposals = [self.model.said(step, self.settings.precision).argmax(-1) for step in steps]
        return right_of(proposals, best, torch.from_numpy(batch.counts).to(best.device))

    def config(self) -> dict[str, Any]:
        """config.json as EAGLE has it: of a model with one layer."""
        return {
            "architectures": ["LlamaForCausalLMEagle"],
            **self.model.layers_config("llama", self.module.shape),
            "torch_dtype": "bfloat16",
        }

    def _read_text(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(features [B, T, D] after the last norm, tokens [B, T])."""
        _, features = self._read(batch.tokens)
        return features, torch.from_numpy(batch.tokens).to(self.model.device)

    def _drafted(self, features: Tensor, tokens: Tensor, steps: int) -> list[Tensor]:
        with autocast(features.device, self.settings.precision):
            return [step.float() for step in self.module(features, tokens, self.model.embedding, steps)]
