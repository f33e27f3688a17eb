"""EAGLE-3 for training (arXiv 2503.01840): steps are unrolled, so that it learns from its own states as it drafts.

Modules are named as tensors in EAGLE's and SpecForge's checkpoints are. csrc/heads/eagle.cc is the same function
at inference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import InvalidArgument
from .draft_vocab import DraftVocab, frequent
from .drafter_settings import DrafterSettings
from .frozen import Frozen
from .model import Attention, Mlp, Norm, Rotary, rotate
from .running import autocast
from .shape import Shape
from .tokens import Batch

_DECAY = 0.8  # the paper's


class EagleAttention(Attention):
    """Queries, keys and values are made of `width` values: in EAGLE-3 an embedding and a feature."""

    def __init__(self, s: Shape, width: int) -> None:
        super().__init__(s)
        self.q_proj = nn.Linear(width, s.H * s.d, bias=False)
        self.k_proj = nn.Linear(width, s.n_kv * s.d, bias=False)
        self.v_proj = nn.Linear(width, s.n_kv * s.d, bias=False)

    def unrolled(self, x: Tensor, rope: tuple[Tensor, Tensor], steps: list[tuple[Tensor, Tensor]]) -> Tensor:
        """x [B, n, width]: row t of a step drafts from place t of the text. It sees the text up to there, which are the
        first step's rows, and of the other steps, whose K and V [B, H, at least n, d] are in `steps`, what it drafted
        itself. Its own K and V join them."""
        n = x.shape[1]
        q, k, v = (p(x).unflatten(-1, (-1, self.size)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, *rope).to(v.dtype), rotate(k, *rope).to(v.dtype)
        if self.kv_heads < self.heads:
            k, v = (t.repeat_interleave(self.heads // self.kv_heads, dim=1) for t in (k, v))
        steps.append((k, v))
        (text_k, text_v), *drafted = [(k[:, :, :n], v[:, :, :n]) for k, v in steps]
        seen = torch.ones(n, n, dtype=torch.bool, device=x.device).tril()
        scores = (q @ text_k.transpose(-1, -2)).masked_fill(~seen, -torch.inf)
        own = [(q * k).sum(-1, keepdim=True) for k, _ in drafted]
        weights = (torch.cat([scores, *own], -1).float() / self.size**0.5).softmax(-1).to(v.dtype)
        out = weights[..., :n] @ text_v
        for j, (_, v) in enumerate(drafted, n):
            out = out + weights[..., j : j + 1] * v
        return self.o_proj(out.transpose(1, 2).flatten(2))


class MidLayer(nn.Module):
    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.input_layernorm, self.hidden_norm = Norm(s.D, s.eps), Norm(s.D, s.eps)
        self.self_attn = EagleAttention(s, 2 * s.D)
        self.post_attention_layernorm = Norm(s.D, s.eps)
        self.mlp = Mlp(s)

    def forward(
        self, embedded: Tensor, x: Tensor, rope: tuple[Tensor, Tensor], steps: list[tuple[Tensor, Tensor]]
    ) -> Tensor:
        both = torch.cat([self.input_layernorm(embedded), self.hidden_norm(x)], -1)
        x = x + self.self_attn.unrolled(both, rope, steps)
        return x + self.mlp(self.post_attention_layernorm(x))


class Unrolled(nn.Module):
    """A drafter of one layer that drafts a token a pass."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.shape = s
        self.rotary = Rotary(s.ropes[0])

    @torch.no_grad()
    def randomize(self, seed: int) -> None:
        """Matrices: normal with deviation 0.02."""
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0, 0.02, generator=generator)


class EagleDrafter(Unrolled, DraftVocab):
    """The embedding is the model's, [V, D], and stays as it is."""

    def __init__(self, model: Shape, taps: int, ids: Tensor) -> None:
        """ids: tokens that it may draft, ascending."""
        s = replace(model, L=1, qk_norm=False, qkv_bias=False, o_bias=False, mlp_bias=False)
        super().__init__(s)
        self.fc = nn.Linear(taps * s.D, s.D, bias=False)
        self.midlayer = MidLayer(s)
        self.norm = Norm(s.D, s.eps)
        self.lm_head = nn.Linear(s.D, len(ids), bias=False)
        self.set_ids(ids, s.V)

    def forward(self, features: Tensor, tokens: Tensor, embedding: Tensor, steps: int) -> list[Tensor]:
        """Logits [B, T - 1 - k, its tokens] of each step k. features [B, T, taps * D] of tokens [B, T]; row t of step k
        has read the model up to place t and tokens up to t + 1 + k, and says what comes after them."""
        x = self.fc(features[:, :-1])
        rope, seen, found = self.rotary(torch.arange(tokens.shape[1], device=tokens.device)), [], []
        for k in range(steps):
            embedded = F.embedding(tokens[:, 1 + k :], embedding)
            n = embedded.shape[1]
            cos, sin = (part[k : k + n] for part in rope)
            x = self.midlayer(embedded, x[:, :n], (cos, sin), seen)
            found.append(self.lm_head(self.norm(x)))
        return found


def loss_of(logits: list[Tensor], likely: Tensor, counts: Tensor, decay: float) -> Tensor:
    """Cross entropy with the model's own distribution. logits: of each step; likely, counts [B, T]: as
    DraftVocab.likely() gives them, of place t + 1 + k in row t of step k."""
    total = torch.zeros((), device=likely.device)
    for k, step in enumerate(logits):
        p, count = likely[:, 1 + k :], counts[:, 1 + k :]
        entropy = -(p * step.float().log_softmax(-1)).sum(-1)
        total = total + decay**k * (entropy * count).sum() / count.sum().clamp(min=1)
    return total / sum(decay**k for k in range(len(logits)))


class Eagle:
    """The kind, as drafter.py trains it."""

    def __init__(self, s: DrafterSettings, shape: Shape, model: Frozen, ids: np.ndarray) -> None:
        self.settings, self.model, self.places = s, model, s.steps_ahead
        self.taps = taps_of(shape.L, s.taps)
        self.module = EagleDrafter(shape, len(self.taps), frequent(ids, s.draft_vocab or shape.V, shape.V))
        self._read = model.taps(self.taps, s.context + 1).read

    @staticmethod
    def check(s: DrafterSettings, shape: Shape) -> None:
        if s.taps > shape.L or s.layers not in (None, 1):
            raise InvalidArgument(
                f"[train] --taps is {s.taps} and --layers {s.layers}, the model has {shape.L} layers, and an eagle3 "
                "drafter has one"
            )

    @torch.no_grad()
    def initialize(self, seed: int) -> None:
        """Normal with deviation 0.02; logits begin as the model's head has them."""
        self.module.randomize(seed)
        self.module.lm_head.weight.copy_(self.model.head[self.module.ids.to(self.model.head.device)])

    def loss(self, batch: Batch, rng: np.random.Generator, done: float) -> Tensor:
        """Nothing is drawn, at any time: all places are drafted from."""
        logits, states = self._drafted(batch)
        decay = _DECAY if self.settings.decay is None else self.settings.decay
        likely, known = self.module.likely(self.model.said(states, self.settings.precision))
        return loss_of(logits, likely, known & torch.from_numpy(batch.counts).to(known.device), decay)

    def right(self, batch: Batch, rng: np.random.Generator) -> Tensor:
        """[n, places] whether the best token is the model's own, at each step from each place."""
        logits, states = self._drafted(batch)
        best = self.model.best(states)
        proposals = [self.module.ids[step.argmax(-1)] for step in logits]
        return right_of(proposals, best, torch.from_numpy(batch.counts).to(best.device))

    def config(self) -> dict[str, Any]:
        """config.json as SpecForge writes it; layers are numbered by their outputs."""
        return {
            "architectures": ["LlamaForCausalLMEagle3"],
            **self.model.layers_config("llama", self.module.shape),
            "draft_vocab_size": len(self.module.d2t),
            "eagle_config": {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": self.taps},
            "torch_dtype": "bfloat16",
        }

    def _drafted(self, batch: Batch) -> tuple[list[Tensor], Tensor]:
        """The drafter's logits of each step, and the model's states [B, T, D] after the last norm."""
        model = self.model
        features, states = self._read(batch.tokens)
        tokens = torch.from_numpy(batch.tokens).to(model.device)
        with autocast(model.device, self.settings.precision):
            return self.module(features, tokens, model.embedding, self.places), states


def right_of(proposals: Sequence[Tensor], best: Tensor, counts: Tensor) -> Tensor:
    """[m, places] whether each step's proposals [B, at least n] from each place are the model's best tokens [B, T],
    where all of them count [B, T]."""
    n = proposals[-1].shape[1]
    wanted, counted = (x[:, 1:].unfold(1, len(proposals), 1) for x in (best, counts))
    return (torch.stack([step[:, :n] for step in proposals], -1) == wanted)[counted.all(-1)]


def taps_of(layers: int, count: int) -> list[int]:
    """EAGLE-3's three layers, which other engines take for granted; else so many, evenly spread up to the last."""
    usual = [1, layers // 2 - 1, layers - 4]
    if count == len(usual) and usual == sorted(set(usual)):
        return usual
    return sorted({round((i + 1) * layers / count) - 1 for i in range(count)})
