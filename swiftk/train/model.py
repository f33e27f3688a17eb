"""A LLaMA for training: whole sequences, losses at any exit, layers dropped per sample.

Modules are named as tensors in checkpoints are. The runtime in csrc/ is another implementation of the same function;
tests hold the two and transformers together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .shape import Shape


class Norm(nn.Module):
    """RMSNorm over the last dimension."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), self.weight.shape, self.weight, self.eps)


class Rotary(nn.Module):
    """Positions [...] -> cos, sin [..., d / 2]; angles in float64, as positions times frequencies grow large."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.scale = s.rope_scale
        self.register_buffer("inv_freq", torch.tensor(s.inv_freq, dtype=torch.float64), persistent=False)

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        angles = positions.double()[..., None] * self.inv_freq
        return (angles.cos() * self.scale).float(), (angles.sin() * self.scale).float()


class Attention(nn.Module):
    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = s.H, s.n_kv, s.d
        self.q_proj = nn.Linear(s.D, s.H * s.d, s.qkv_bias)
        self.k_proj = nn.Linear(s.D, s.n_kv * s.d, s.qkv_bias)
        self.v_proj = nn.Linear(s.D, s.n_kv * s.d, s.qkv_bias)
        self.o_proj = nn.Linear(s.H * s.d, s.D, s.o_bias)
        self.q_norm = Norm(s.d, s.eps) if s.qk_norm else nn.Identity()
        self.k_norm = Norm(s.d, s.eps) if s.qk_norm else nn.Identity()

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], mask: Tensor | None = None) -> Tensor:
        """x [B, T, D]; rope: cos, sin [T, d / 2]; mask [T, T]: what is added to scores, where the compiler makes one
        loop of them; None: causal, by torch's own attention."""
        split = (*x.shape[:2], -1, self.size)
        q = self.q_norm(self.q_proj(x).view(split)).transpose(1, 2)  # [B, H, T, d]
        k = self.k_norm(self.k_proj(x).view(split)).transpose(1, 2)  # [B, n_kv, T, d]
        v = self.v_proj(x).view(split).transpose(1, 2)
        q, k = rotate(q, *rope).to(v.dtype), rotate(k, *rope).to(v.dtype)
        if self.kv_heads < self.heads:
            k, v = (t.repeat_interleave(self.heads // self.kv_heads, dim=1) for t in (k, v))
        if mask is None:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mixed = ((q * self.size**-0.5 @ k.transpose(2, 3)).float() + mask).softmax(-1).to(v.dtype) @ v
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(s.D, s.F, s.mlp_bias)
        self.up_proj = nn.Linear(s.D, s.F, s.mlp_bias)
        self.down_proj = nn.Linear(s.F, s.D, s.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.input_layernorm = Norm(s.D, s.eps)
        self.self_attn = Attention(s)
        self.post_attention_layernorm = Norm(s.D, s.eps)
        self.mlp = Mlp(s)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], mask: Tensor | None = None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rope, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    """What checkpoints call `model`: everything but the head."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(s.V, s.D)
        self.layers = nn.ModuleList(Layer(s) for _ in range(s.L))
        self.norm = Norm(s.D, s.eps)


class Llama(nn.Module):
    """Weights and residual stream are float32; under autocast, matmuls are not."""

    def __init__(self, shape: Shape, recompute: bool = False, compiled: bool = False) -> None:
        super().__init__()
        self.shape = shape
        self.recompute = recompute
        self.compiled = compiled
        self.model = Body(shape)
        self.lm_head = None if shape.tied else nn.Linear(shape.D, shape.V, bias=False)
        self.rotary = Rotary(shape)
        if compiled:
            for layer in self.model.layers:
                layer.compile()
            self._loss = torch.compile(self._loss)

    def head(self, x: Tensor) -> Tensor:
        """Logits of one exit: the same norm and matrix after every layer. x [..., D] -> [..., V]."""
        weight = self.model.embed_tokens.weight if self.lm_head is None else self.lm_head.weight
        return F.linear(self.model.norm(x), weight)

    def exits(self, tokens: Tensor, wanted: Sequence[bool], kept: np.ndarray | None = None) -> list[Tensor]:
        """The residual stream [B, T, D] after each layer that is `wanted` [L]; kept [L, B]: who runs which layer."""
        T = tokens.shape[1]
        rope = self.rotary(torch.arange(T, device=tokens.device))
        mask = torch.full((T, T), -torch.inf, device=tokens.device).triu(1) if self.compiled else None
        x = self.model.embed_tokens(tokens)
        found = []
        for layer, module in enumerate(self.model.layers):
            x = self._through(module, x, (rope, mask), None if kept is None else kept[layer])
            if wanted[layer]:
                found.append(x)
        return found

    def losses(self, tokens: Tensor, wanted: Sequence[bool], kept: np.ndarray | None = None) -> Tensor:
        """Mean cross entropy at each exit that is wanted. tokens [B, T + 1]: inputs, and the same one further."""
        inputs, targets = tokens[:, :-1], tokens[:, 1:].flatten()
        return torch.stack([self._run(self._loss, x, targets) for x in self.exits(inputs, wanted, kept)])

    def _loss(self, x: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.head(x).flatten(0, 1).float(), targets)

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


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Pairs are (i, i + d / 2). x [B, heads, T, d]."""
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


@torch.no_grad()
def initialize(model: Llama, seed: int) -> None:
    """Normal with deviation 0.02; what adds to the residual stream is scaled down, as 2 L of them add up."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.zero_()
        elif parameter.dim() == 2:
            quiet = name.endswith(("o_proj.weight", "down_proj.weight"))
            deviation = 0.02 / (2 * model.shape.L) ** 0.5 if quiet else 0.02
            parameter.normal_(0, deviation, generator=generator)
