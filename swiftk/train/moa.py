"""A Mixture of Attentions for training (arXiv 2410.03804).

Modules are named as tensors in its authors' checkpoints. csrc/heads/moa.cc is the same function at inference.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import InvalidArgument
from .drafter_settings import DrafterSettings
from .frozen import Frozen
from .model import Attention, Layer, Mlp, Norm, Rotary, rotate
from .running import autocast
from .shape import Rope, Shape
from .tokens import Batch

_OBSERVED = (6, 15)  # tokens between those whose states are seen again: from, below; the authors'


class CrossAttention(Attention):
    """Queries of some rows, keys and values of others."""

    def forward(self, x: Tensor, other: Tensor, rope: tuple[Tensor, Tensor], visible: Tensor | None) -> Tensor:
        """x, other [B, T, D]; rope: cos, sin [T, d / 2]; visible [B or 1, 1, T, T], or None: all."""
        q = self.q_norm(self.q_proj(x).unflatten(-1, (-1, self.size))).transpose(1, 2)
        k = self.k_norm(self.k_proj(other).unflatten(-1, (-1, self.size))).transpose(1, 2)
        v = self.v_proj(other).unflatten(-1, (-1, self.size)).transpose(1, 2)
        q, k = rotate(q, *rope).to(v.dtype), rotate(k, *rope).to(v.dtype)
        if self.kv_heads < self.heads:
            k, v = (t.repeat_interleave(self.heads // self.kv_heads, dim=1) for t in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        return self.o_proj(out.transpose(1, 2).flatten(2))


class MoaLayer(nn.Module):
    """A decoder's layer over rows that see what they are asked to, of their own or of others by the same norm."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.input_layernorm = Norm(s.D, s.eps)
        self.self_attn = CrossAttention(s)
        self.post_attention_layernorm = Norm(s.D, s.eps)
        self.mlp = Mlp(s)
        self.rotary = Rotary(s.ropes[0])

    def forward(self, x: Tensor, places: Tensor, visible: Tensor | None = None, other: Tensor | None = None) -> Tensor:
        """places [T]: positions of rows."""
        normed = self.input_layernorm(x)
        seen = normed if other is None else self.input_layernorm(other)
        x = x + self.self_attn(normed, seen, self.rotary(places), visible)
        return x + self.mlp(self.post_attention_layernorm(x))


class Behind(nn.Module):
    """A layer of the model, over rows that see what they are asked to."""

    def __init__(self, whole: Shape, index: int) -> None:
        super().__init__()
        its = whole.layers[index]
        self.layer = Layer(whole, its)
        self.rotary = None if its.rope is None else Rotary(whole.ropes[its.rope])

    def forward(self, x: Tensor, places: Tensor, mask: Tensor) -> Tensor:
        """x [B, T, D]; places [T]: positions of rows; mask [B, 1, T, T]: what is added to scores."""
        return self.layer(x, self.rotary and self.rotary(places), mask)


class MoaDrafter(nn.Module):
    """The embedding is the model's, [V, D], and stays as it is. What comes out stands for the model's own states."""

    def __init__(self, tokens: Shape, states: Shape, cross: Shape) -> None:
        super().__init__()
        self.shapes = (tokens, states, cross)
        self.self_attention = MoaLayer(tokens)
        self.layer_self_attention = MoaLayer(states)
        self.cross_attention = MoaLayer(cross)
        self.Ekv2E = nn.Linear(states.D, tokens.D)

    def observed(self, kv: Tensor) -> Tensor:
        """States [B, T, D] of tokens for which the model's layers cached kv [B, T, L, 2 n_kv d]."""
        B, T, L = kv.shape[:3]
        of_layers = self.layer_self_attention(kv.flatten(0, 1), torch.arange(L, device=kv.device))
        return self.Ekv2E(of_layers.mean(1)).view(B, T, -1)

    def forward(self, tokens: Tensor, states: Tensor, embedding: Tensor, own: Tensor, seen: Tensor) -> Tensor:
        """[B, T, D] for tokens [B, T]. states [B, T, D]: what is observed of each; own, seen [B, 1, T, T]: of which
        tokens each sees the token, and the states."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.self_attention(F.embedding(tokens, embedding), places, own)
        return self.cross_attention(x, places, seen, states)


@dataclass
class States:
    """Of all tokens: in front of the model's last layers, and after them and the norm."""

    before: Tensor
    after: Tensor


class Moa:
    """The kind, as drafter.py trains it."""

    def __init__(self, s: DrafterSettings, shape: Shape, model: Frozen, ids: np.ndarray) -> None:
        self.settings, self.model, self.shape, self.places = s, model, shape, s.ahead
        self.module = MoaDrafter(*shapes_of(shape, model))
        first = shape.L - s.target_layers
        self._read = model.taps([first - 1], s.context + 1).read_kv
        whole = model.shape(s.context) if s.target_layers else shape
        self.behind = [self._layer(layer, whole) for layer in range(first, shape.L)]

    @staticmethod
    def check(s: DrafterSettings, shape: Shape) -> None:
        if s.target_layers >= shape.L:
            raise InvalidArgument(f"[train] --target-layers is {s.target_layers}, the model has {shape.L} layers")
        if 2 * s.ahead > s.context:
            raise InvalidArgument(f"[train] --ahead is {s.ahead}, want at most half of --context {s.context}")

    @torch.no_grad()
    def initialize(self, seed: int) -> None:
        """Normal with deviation 0.02."""
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.module.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
            elif parameter.dim() == 2:
                parameter.normal_(0, 0.02, generator=generator)

    def loss(self, batch: Batch, rng: np.random.Generator, done: float) -> Tensor:
        """KL and the error of states; what is drawn comes from `rng`. done: share of the run.

        The model's states are seen again every few tokens of an answer, another number in each sequence, and at each
        token of what was asked. In the first half of a run fewer and fewer sequences see only tokens since then: what
        was before is to be learned from states. A place that sees its own state is no draft, and is left out.
        """
        every = rng.integers(*_OBSERVED, len(batch.tokens))
        staircase = rng.random(len(batch.tokens)) >= min(1.0, 2 * done)
        last, drafts = _last_observed(batch.learned, every, np.zeros_like(every))
        proposed, wanted = self.states(batch.tokens, last, staircase)
        counts = torch.from_numpy(drafts & batch.counts).to(self.model.device)
        log_q, log_p = (self.logits(x.after[counts]).log_softmax(-1) for x in (proposed, wanted))
        divergence = F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(-1).mean()
        error = F.smooth_l1_loss(proposed.after[counts].float(), wanted.after[counts])
        if self.behind:
            error = (error + F.smooth_l1_loss(proposed.before[counts].float(), wanted.before[counts])) / 2
        return self.settings.kl * divergence + error

    def right(self, batch: Batch, rng: np.random.Generator) -> Tensor:
        """[n, places] whether the best token is the model's own, so many tokens after what was observed last."""
        every = np.full(len(batch.tokens), self.places + 1)
        last, drafts = _last_observed(batch.learned, every, rng.integers(0, every))
        proposed, wanted = self.states(batch.tokens, last)
        right = (self.logits(proposed.after).argmax(-1) == self.model.best(wanted.after)).cpu().numpy()
        return torch.from_numpy(_windows(right, self.places)[_first_of(last, drafts & batch.counts, self.places)])

    def config(self) -> dict[str, Any]:
        """config.json as its authors' is, the model's own, with what theirs leaves to the caller."""
        tokens, states, cross = self.module.shapes
        sizes = {"self_attention": tokens, "layer_self_attention": states, "cross_attention": cross}
        return {
            "architectures": ["MOASpecLlamaForCausalLM"],
            **self.model.layers_config("llama", self.shape),
            **{f"{name}_num_key_value_heads": s.n_kv for name, s in sizes.items()},
            **{f"{name}_intermediate_size": s.F for name, s in sizes.items()},
            "layer_self_attention_num_attention_heads": states.H,
            "target_layer_inference": self.settings.target_layers,
            "torch_dtype": "bfloat16",
        }

    def _layer(self, index: int, whole: Shape) -> Behind:
        behind = Behind(whole, index)
        named = {name: self.model.tensor(f"model.layers.{index}.{name}") for name in behind.layer.state_dict()}
        behind.layer.load_state_dict(named)
        return behind.to(self.model.device).requires_grad_(False)

    def logits(self, states: Tensor) -> Tensor:
        """[..., V] of states [..., D] after the last norm."""
        return self.model.said(states, self.settings.precision)

    def states(self, ids: np.ndarray, last: np.ndarray, staircase: np.ndarray | None = None) -> tuple[States, States]:
        """The drafter's and the model's, of tokens [B, T]. last [B, T]: up to where each token sees states; staircase
        [B]: whose tokens see only tokens after that."""
        device = self.model.device
        kv, before, after = self._read(ids)
        wanted = States(before, after)
        tokens, observed = (torch.from_numpy(part).to(device) for part in (ids, last))
        places = torch.arange(ids.shape[1], device=device)
        causal = places <= places[:, None]
        seen = places <= observed[..., None]  # [B, T, T]
        since = causal & (~seen | torch.eye(len(places), dtype=torch.bool, device=device))
        own = causal.expand_as(seen)
        if staircase is not None:
            own = torch.where(torch.from_numpy(staircase).to(device)[:, None, None], since, own)
        with autocast(device, self.settings.precision):
            found = self.observed(kv, wanted.after)
            after = out = self.module(tokens, found, self.model.embedding, own[:, None], seen[:, None])
            if self.behind:
                # Rows of the model's own states, and after them drafted ones, which see those up to `last`.
                above = torch.cat([causal.expand_as(seen), torch.zeros_like(seen)], -1)
                visible = torch.cat([above, torch.cat([seen, since], -1)], 1)[:, None]
                mask = torch.zeros(visible.shape, device=device).masked_fill(~visible, -torch.inf)
                after = torch.cat([before, out], 1)
                for layer in self.behind:
                    after = layer(after, torch.cat([places, places]), mask)
                after = self.model.normed(after[:, len(places) :])
        return States(out, after), wanted

    def observed(self, kv: Tensor, after: Tensor) -> Tensor:
        """States [B, T, D] for the drafter, of the model's K and V [B, T, L, 2 n_kv d], or of its last ones."""
        return self.module.observed(kv)


def shapes_of(s: Shape, model: Frozen) -> tuple[Shape, Shape, Shape]:
    """Layers over tokens, over the model's layers, and between both, as its authors have them for a model of 8 B."""
    wide = 2 * s.n_kv * s.d
    heads = s.H if wide % (2 * s.H) == 0 else 2 * s.n_kv
    plain = replace(s, L=1, F=_units(s.D), qkv_bias=False, o_bias=False, mlp_bias=False, qk_norm=False)
    tokens = replace(plain, n_kv=s.n_kv // 2 if s.n_kv % 2 == 0 else s.n_kv)
    turns = (Rope(tuple(model.frequencies(wide // heads)), s.ropes[0].scale),)
    states = replace(plain, D=wide, H=heads, d=wide // heads, F=_units(wide), ropes=turns)
    return tokens, states, tokens


def _units(width: int) -> int:
    return -(-width * 3 // 2 // 32) * 32


def _last_observed(learned: np.ndarray, every: np.ndarray, phase: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[B, T] up to where each token sees states, and [B, T] whether it is a draft, which does not see its own. Each
    every-th token of an answer is observed, from the phase-th on, and all others."""
    places = np.arange(learned.shape[1])
    begun = np.maximum.accumulate(np.where(learned, 0, places), 1)  # the last token before an answer, or the first
    since = (places - begun + (every - phase)[:, None]) % every[:, None]
    last = np.maximum(places - since, begun)
    return last, last < places


def _windows(values: np.ndarray, count: int) -> np.ndarray:
    """[B, T + 1 - count, count]"""
    return np.lib.stride_tricks.sliding_window_view(values, count, axis=1)


def _first_of(last: np.ndarray, counts: np.ndarray, places: int) -> np.ndarray:
    """[B, T + 1 - places] whether a draft begins there that is `places` long and counts all along."""
    begins = last == np.arange(last.shape[1]) - 1
    same = (_windows(last, places) == last[:, : last.shape[1] + 1 - places, None]).all(-1)
    return begins[:, : same.shape[1]] & same & _windows(counts, places).all(-1)
