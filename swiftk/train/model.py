"""A model for training: whole sequences, losses at any exit, layers dropped per sample.

Modules are named as tensors in checkpoints are. The runtime in csrc/ is another implementation of the same function;
tests hold the two and transformers together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .shape import USUAL, LayerShape, Rope, Shape

_UNLEARNED = -100  # the target of a token that is not learned


class Norm(nn.Module):
    """RMSNorm over the last dimension; offset: added to its weights."""

    def __init__(self, size: int, eps: float, offset: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((size,), 1 - offset))
        self.eps, self.offset = eps, offset

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight + self.offset if self.offset else self.weight
        return F.rms_norm(x.float(), weight.shape, weight, self.eps)


class Rotary(nn.Module):
    """Positions [...] -> cos, sin [..., pairs]; angles in float64, as positions times frequencies grow large."""

    def __init__(self, rope: Rope) -> None:
        super().__init__()
        self.scale = rope.scale
        self.register_buffer("inv_freq", torch.tensor(rope.inv_freq, dtype=torch.float64), persistent=False)

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        angles = positions.double()[..., None] * self.inv_freq
        return (angles.cos() * self.scale).float(), (angles.sin() * self.scale).float()


class Attention(nn.Module):
    def __init__(self, s: Shape, its: LayerShape = USUAL) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size, self.paired = s.H, s.n_kv, s.d, s.paired
        self.scale = its.attention_scale or s.d**-0.5
        self.soft_cap = its.soft_cap
        self.sizes = [s.H * s.d, s.n_kv * s.d, s.n_kv * s.d]
        if s.fused:
            self.qkv_proj = nn.Linear(s.D, sum(self.sizes), s.qkv_bias)
        else:
            self.q_proj, self.k_proj, self.v_proj = (nn.Linear(s.D, size, s.qkv_bias) for size in self.sizes)
        self.o_proj = nn.Linear(s.H * s.d, s.D, s.o_bias)
        self.norms = [name.removeprefix("self_attn.") for name in (s.norms.q, s.norms.k)]
        self.norm_over = s.norm_over if s.qk_norm else None
        for name, size in zip(self.norms, self.sizes, strict=False):
            over = size if s.norm_over == "whole" else s.d
            self.add_module(name, Norm(over, s.eps, s.norm_offset) if s.qk_norm else nn.Identity())

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor] | None, mask: Tensor | None = None) -> Tensor:
        """x [B, T, D]; rope: cos, sin [T, pairs], or no positions; mask [T, T]: what is added to scores, where the
        compiler makes one loop of them; None: causal, by torch's own attention."""
        q, k, v = self.project(x)
        q, k = self._normed((q, k), "whole")
        q, k, v = (t.unflatten(-1, (-1, self.size)).transpose(1, 2) for t in (q, k, v))  # [B, heads, T, d]
        q, k = self._normed((q, k), "heads")
        if rope is not None:
            q, k = (rotate(t, *rope, paired=self.paired) for t in (q, k))
        q, k = (t.to(v.dtype) for t in self._normed((q, k), "rotated heads"))
        if self.kv_heads < self.heads:
            k, v = (t.repeat_interleave(self.heads // self.kv_heads, dim=1) for t in (k, v))
        if mask is None:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale)
        else:
            scores = (q * self.scale @ k.transpose(2, 3)).float()
            mixed = (capped(scores, self.soft_cap) + mask).softmax(-1).to(v.dtype) @ v
        return self.o_proj(mixed.transpose(1, 2).flatten(2))

    def project(self, x: Tensor) -> Sequence[Tensor]:
        """q, k and v [..., heads * d] of x [..., D]."""
        if hasattr(self, "qkv_proj"):
            return self.qkv_proj(x).split(self.sizes, -1)
        return self.q_proj(x), self.k_proj(x), self.v_proj(x)

    def _normed(self, both: tuple[Tensor, Tensor], over: str) -> tuple[Tensor, Tensor]:
        """q and k, where their norms go over this."""
        if self.norm_over != over:
            return both
        q, k = (getattr(self, name)(t) for name, t in zip(self.norms, both, strict=True))
        return q, k


class Mlp(nn.Module):
    def __init__(self, s: Shape, its: LayerShape = USUAL) -> None:
        super().__init__()
        self.act = F.silu if its.activation == "silu" else partial(F.gelu, approximate="tanh")
        if s.fused:
            self.gate_up_proj = nn.Linear(s.D, 2 * s.F, s.mlp_bias)
        else:
            self.gate_proj = nn.Linear(s.D, s.F, s.mlp_bias)
            self.up_proj = nn.Linear(s.D, s.F, s.mlp_bias)
        self.down_proj = nn.Linear(s.F, s.D, s.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        fused = hasattr(self, "gate_up_proj")
        gate, up = self.gate_up_proj(x).chunk(2, -1) if fused else (self.gate_proj(x), self.up_proj(x))
        return self.down_proj(self.act(gate) * up)


class Layer(nn.Module):
    """Norms over what a sublayer reads, and over what it adds, have the family's names; some families lack some."""

    def __init__(self, s: Shape, its: LayerShape) -> None:
        super().__init__()
        self.norms, self.scale = s.norms, its.residual_scale
        for name in (s.norms.attn, s.norms.attn_after, s.norms.mlp, s.norms.mlp_after):
            if name:
                self.add_module(name, Norm(s.D, s.eps, s.norm_offset))
        self.self_attn = Attention(s, its)
        self.mlp = Mlp(s, its)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor] | None, mask: Tensor | None = None) -> Tensor:
        n = self.norms
        x = x + self.scale * self._normed(n.attn_after, self.self_attn(self._normed(n.attn, x), rope, mask))
        return x + self.scale * self._normed(n.mlp_after, self.mlp(self._normed(n.mlp, x)))

    def _normed(self, name: str | None, x: Tensor) -> Tensor:
        return getattr(self, name)(x) if name else x


class Body(nn.Module):
    """What checkpoints call `model`: everything but the head."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(s.V, s.D)
        self.layers = nn.ModuleList(Layer(s, its) for its in s.layers)
        self.norm = Norm(s.D, s.eps, s.norm_offset)


class Decoder(nn.Module):
    """Weights and residual stream are float32; under autocast, matmuls are not."""

    def __init__(self, shape: Shape, recompute: bool = False, compiled: bool = False) -> None:
        super().__init__()
        self.shape = shape
        self.recompute = recompute
        self.compiled = compiled
        self.model = Body(shape)
        self.lm_head = None if shape.tied else nn.Linear(shape.D, shape.V, bias=False)
        self.rotary = nn.ModuleList(Rotary(rope) for rope in shape.ropes)
        if compiled:
            for layer in self.model.layers:
                layer.compile()
            self._loss = torch.compile(self._loss)

    def head(self, x: Tensor) -> Tensor:
        """Logits of one exit: the same norm and matrix after every layer. x [..., D] -> [..., V]."""
        weight = self.model.embed_tokens.weight if self.lm_head is None else self.lm_head.weight
        return capped(F.linear(self.model.norm(x), weight) * self.shape.logit_scale, self.shape.logit_soft_cap)

    def exits(self, tokens: Tensor, wanted: Sequence[bool], kept: np.ndarray | None = None) -> list[Tensor]:
        """The residual stream [B, T, D] after each layer that is `wanted` [L]; kept [L, B]: who runs which layer."""
        T = tokens.shape[1]
        tables = [rotary(torch.arange(T, device=tokens.device)) for rotary in self.rotary]
        ropes = [None if its.rope is None else tables[its.rope] for its in self.shape.layers]
        masked = self.compiled or any(its.soft_cap for its in self.shape.layers)
        mask = torch.full((T, T), -torch.inf, device=tokens.device).triu(1) if masked else None
        x = self.model.embed_tokens(tokens) * self.shape.embedding_scale
        found = []
        for layer, module in enumerate(self.model.layers):
            x = self._through(module, x, (ropes[layer], mask), None if kept is None else kept[layer])
            if wanted[layer]:
                found.append(x)
        return found

    def losses(
        self,
        tokens: Tensor,
        wanted: Sequence[bool],
        kept: np.ndarray | None = None,
        learned: Tensor | None = None,
    ) -> Tensor:
        """Mean cross entropy at each exit that is wanted. tokens [B, T + 1]: inputs, and the same one further; learned
        [B, T + 1]: which of them are to be said, None: all."""
        said = tokens if learned is None else tokens.masked_fill(~learned, _UNLEARNED)
        inputs, targets = tokens[:, :-1], said[:, 1:].flatten()
        return torch.stack([self._run(self._loss, x, targets) for x in self.exits(inputs, wanted, kept)])

    def _loss(self, x: Tensor, targets: Tensor) -> Tensor:
        logits = self.head(x).flatten(0, 1).float()
        total = F.cross_entropy(logits, targets, ignore_index=_UNLEARNED, reduction="sum")
        return total / (targets != _UNLEARNED).sum().clamp(min=1)

    def _through(self, layer: nn.Module, x: Tensor, shared: tuple[Any, ...], kept: np.ndarray | None) -> Tensor:
        """Only the samples that keep the layer are computed; the others' residuals pass."""
        if kept is None or kept.all():
            return self._run(layer, x, *shared)
        if not kept.any():
            return x
        rows = torch.from_numpy(np.flatnonzero(kept)).to(x.device)
        some = x[rows]
        if self.compiled:
            torch._dynamo.mark_dynamic(some, 0)
        return x.index_copy(0, rows, self._run(layer, some, *shared))

    def _run(self, function: Callable[..., Tensor], *arguments: Any) -> Tensor:
        if not self.recompute or not torch.is_grad_enabled():
            return function(*arguments)
        return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, paired: bool = False) -> Tensor:
    """x [B, heads, T, d], whose first n values turn, cos and sin [T, n / 2]: in pairs (i, i + n / 2), or side by
    side."""
    turning, rest = x.float().split([2 * cos.shape[-1], x.shape[-1] - 2 * cos.shape[-1]], -1)
    a, b = (turning[..., ::2], turning[..., 1::2]) if paired else turning.chunk(2, -1)
    turned = a * cos - b * sin, b * cos + a * sin
    return torch.cat([torch.stack(turned, -1).flatten(-2) if paired else torch.cat(turned, -1), rest], -1)


def capped(x: Tensor, cap: float) -> Tensor:
    """Within (-cap, cap), smoothly; 0: any."""
    return torch.tanh(x / cap) * cap if cap else x


@torch.no_grad()
def initialize(model: Decoder, seed: int) -> None:
    """Normal with deviation 0.02; what adds to the residual stream is scaled down, as 2 L of them add up."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.zero_()
        elif parameter.dim() == 2:
            quiet = name.endswith(("o_proj.weight", "down_proj.weight"))
            deviation = 0.02 / (2 * model.shape.L) ** 0.5 if quiet else 0.02
            parameter.normal_(0, deviation, generator=generator)
