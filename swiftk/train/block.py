"""A block head for training: DFlash's layers (arXiv 2602.06036) with DSpark's bias between positions (2607.05147).

Modules are named as tensors in speculators' checkpoints are. csrc/heads/block.cc computes the same.
"""

from __future__ import annotations

from collections.abc import Callable
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

_DECAY = 0.85  # of the loss, by position


class BlockAttention(Attention):
    """Keys and values are of the text's features and of the block, by the same projections."""

    def forward(self, x: Tensor, context: Tensor, rope: tuple[Tensor, Tensor], visible: Tensor) -> Tensor:
        """x [B, Q, D]; context [B, T, D]; rope: cos, sin [B, 1, T + Q, d / 2]; visible [B, 1, Q, T + Q]."""
        both, queries = torch.cat([context, x], 1), x.shape[1]
        q = self.q_norm(self.q_proj(x).unflatten(-1, (-1, self.size))).transpose(1, 2)
        k = self.k_norm(self.k_proj(both).unflatten(-1, (-1, self.size))).transpose(1, 2)
        v = self.v_proj(both).unflatten(-1, (-1, self.size)).transpose(1, 2)
        q = rotate(q, *(part[:, :, -queries:] for part in rope)).to(v.dtype)
        k = rotate(k, *rope).to(v.dtype)
        if self.kv_heads < self.heads:
            k, v = (t.repeat_interleave(self.heads // self.kv_heads, dim=1) for t in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        return self.o_proj(out.transpose(1, 2).flatten(2))


class BlockLayer(nn.Module):
    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.input_layernorm = Norm(s.D, s.eps)
        self.self_attn = BlockAttention(s)
        self.post_attention_layernorm = Norm(s.D, s.eps)
        self.mlp = Mlp(s)

    def forward(self, x: Tensor, context: Tensor, rope: tuple[Tensor, Tensor], visible: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), context, rope, visible)
        return x + self.mlp(self.post_attention_layernorm(x))


class Markov(nn.Module):
    """What the token before says of the next one, of low rank."""

    def __init__(self, V: int, own: int, rank: int) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(V, rank)
        self.markov_w2 = nn.Linear(rank, own, bias=False)

    def forward(self, before: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings [.., rank] of the tokens before, and the bias [.., own] that they make."""
        embedded = self.markov_w1(before)
        return embedded, self.markov_w2(embedded)


class Confidence(nn.Module):
    """How often the token proposed for a place is right, foretold by the layers and the token before (DSpark)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, 1)

    def forward(self, states: Tensor) -> Tensor:
        """Logits [...] of states [..., width]."""
        return self.proj(states).squeeze(-1)


class Head(nn.Module):
    """Rows of the model's head, which are not trained."""

    def __init__(self, rows: int, D: int) -> None:
        super().__init__()
        self.weight: Tensor
        self.register_buffer("weight", torch.zeros(rows, D))


class BlockDrafter(DraftVocab):
    """Embedding and vocabulary head are the model's, [V, D] each, and stay as they are."""

    def __init__(
        self,
        model: Shape,
        layers: int,
        taps: int,
        block: int,
        rank: int,
        mask: int,
        ids: Tensor | None = None,
        confident: bool = True,
    ) -> None:
        """ids: tokens that it may draft, ascending; None: all. confident: it foretells how often it is right."""
        super().__init__()
        s = replace(model, L=layers, qk_norm=True, qkv_bias=False, o_bias=False, mlp_bias=False)
        self.shape, self.block, self.mask = s, block, mask
        self.layers = nn.ModuleList(BlockLayer(s) for _ in range(layers))
        self.fc = nn.Linear(taps * s.D, s.D, bias=False)
        self.hidden_norm, self.norm = Norm(s.D, s.eps), Norm(s.D, s.eps)
        self.lm_head = Head(len(ids), s.D) if ids is not None else None
        if ids is not None:
            self.set_ids(ids, s.V)
        self.markov_head = Markov(s.V, s.V if ids is None else len(ids), rank) if rank else None
        self.confidence_head = Confidence(s.D + rank) if confident else None
        self.rotary = Rotary(s.ropes[0])

    def forward(
        self,
        features: Tensor,
        tokens: Tensor,
        anchors: Tensor,
        embedding: Tensor,
        logits_of: Callable[[Tensor], Tensor],
    ) -> tuple[Tensor, Tensor | None]:
        """Logits [B, A, block, its tokens] of blocks after each anchor, and [B, A, block] of how sure they are.
        features [B, T, taps * D] of tokens [B, T]; anchors [B, A]: the last place whose features a block may see;
        logits_of: the model's own, of states. The block begins with the token after its anchor; slot j says what
        follows the j-th of the tokens from there on."""
        B, A = anchors.shape
        context = self.hidden_norm(self.fc(features))
        places = anchors[:, :, None] + 1 + torch.arange(self.block, device=anchors.device)  # [B, A, block]
        there = tokens.gather(1, places.flatten(1)).view_as(places)
        ids = torch.full_like(places, self.mask)
        ids[:, :, 0] = there[:, :, 0]
        x = F.embedding(ids.flatten(1), embedding)
        rope, visible = self._angles(places, features.shape[1]), self._visible(anchors, features.shape[1])
        for layer in self.layers:
            x = layer(x, context, rope, visible)
        states = self.norm(x)
        logits = logits_of(states) if self.lm_head is None else F.linear(states, self.lm_head.weight)
        logits = logits.view(B, A, self.block, -1)
        known = [states.view(B, A, self.block, -1)]
        if self.markov_head is not None:
            before, bias = self.markov_head(there)
            known.append(before)
            logits = logits + bias
        return logits, None if self.confidence_head is None else self.confidence_head(torch.cat(known, -1))

    def _angles(self, places: Tensor, text: int) -> tuple[Tensor, Tensor]:
        before = torch.arange(text, device=places.device).expand(len(places), -1)
        cos, sin = self.rotary(torch.cat([before, places.flatten(1)], 1))
        return cos[:, None], sin[:, None]

    def _visible(self, anchors: Tensor, text: int) -> Tensor:
        """A block sees the text up to its anchor, and itself."""
        A = anchors.shape[1]
        seen = torch.arange(text, device=anchors.device) <= anchors[:, :, None]
        own = torch.eye(A, dtype=torch.bool, device=anchors.device).repeat_interleave(self.block, 0)
        own = own.repeat_interleave(self.block, 1).expand(len(anchors), -1, -1)
        return torch.cat([seen.repeat_interleave(self.block, 1), own], -1)[:, None]


def loss_of(log_q: Tensor, p: Tensor, weight: Tensor, tv: float) -> Tensor:
    """Cross entropy with the model's own distribution, and their total variation, of which a share of tokens is refused
    (DSpark). log_q, p [B, A, block, its tokens]: of the drafter, and the model's probabilities at the same places;
    weight [B, A, block]."""
    entropy = -(p * log_q).sum(-1)
    variation = (p - log_q.exp()).abs().sum(-1) / 2
    return (((1 - tv) * entropy + tv * variation) * weight).mean() / weight.mean().clamp(min=1e-9)


def doubt_of(sure: Tensor, log_q: Tensor, p: Tensor, weight: Tensor) -> Tensor:
    """Cross entropy of how sure each place is [B, A, block] with the share of both distributions that overlaps, in
    which a proposed token is right (DSpark). p [.., its tokens]: the model's probabilities of these among all."""
    overlap = torch.minimum(p, log_q.detach().exp()).sum(-1)
    entropy = F.binary_cross_entropy_with_logits(sure.float(), overlap, reduction="none")
    return (entropy * weight).mean() / weight.mean().clamp(min=1e-9)


class Block:
    """The kind, as drafter.py trains it."""

    def __init__(self, s: DrafterSettings, shape: Shape, model: Frozen, ids: np.ndarray) -> None:
        self.settings, self.model, self.places = s, model, s.block
        self.taps = taps_of(shape.L, s.taps)
        own = frequent(ids, s.draft_vocab, shape.V) if s.draft_vocab and s.draft_vocab < shape.V else None
        self.module = BlockDrafter(shape, s.layers or 2, len(self.taps), s.block, s.rank, s.mask, own)
        if self.module.lm_head is not None:
            self.module.lm_head.weight.copy_(model.head.cpu()[own])
        self._read = model.taps(self.taps, s.context + 1).read

    @staticmethod
    def check(s: DrafterSettings, shape: Shape) -> None:
        if s.taps > shape.L or s.mask >= shape.V:
            raise InvalidArgument(
                f"[train] --taps is {s.taps} and --mask {s.mask}, the model has {shape.L} layers and tokens "
                f"0..{shape.V - 1}"
            )

    @torch.no_grad()
    def initialize(self, seed: int) -> None:
        """Normal with deviation 0.02; the bias by the token before begins at nothing."""
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.module.named_parameters():
            if name.endswith(("markov_w2.weight", "proj.bias")):
                parameter.zero_()
            elif parameter.dim() == 2:
                parameter.normal_(0, 0.02, generator=generator)

    def loss(self, batch: Batch, rng: np.random.Generator, done: float) -> Tensor:
        """What is drawn, such as places to draft from, comes from `rng`. done: share of the run."""
        logits, sure, states, counts = self._drafted(batch, rng)
        target = self.model.said(states, self.settings.precision)
        log_q = logits.float().log_softmax(-1)
        decay = _DECAY if self.settings.decay is None else self.settings.decay
        weight = counts * decay ** torch.arange(log_q.shape[2], device=log_q.device)
        p, known = (whole := target.softmax(-1)), weight
        if self.module.lm_head is not None:
            whole, (p, likely) = whole[..., self.module.ids], self.module.likely(target)
            known = weight * likely
        return loss_of(log_q, p, known, self.settings.tv) + doubt_of(sure, log_q, whole, weight)

    def right(self, batch: Batch, rng: np.random.Generator) -> Tensor:
        """[n, places] whether the best token is the model's own, at each place of some drafts."""
        logits, _, states, counts = self._drafted(batch, rng)
        proposals = logits.argmax(-1)
        if self.module.lm_head is not None:
            proposals = self.module.ids[proposals]
        return (proposals == self.model.logits(states).argmax(-1))[counts.all(-1)]

    def config(self) -> dict[str, Any]:
        """config.json as speculators write it for "dspark"; layers' outputs are numbered as transformers' states."""
        return {
            "architectures": ["DSparkSpeculator"],
            "speculators_model_type": "dspark",
            "block_size": self.settings.block,
            "sample_from_anchor": True,
            "mask_token_id": self.settings.mask,
            "aux_hidden_state_layer_ids": [tap + 1 for tap in self.taps],
            "markov_rank": self.settings.rank,
            "markov_head_type": "vanilla",
            "enable_confidence_head": True,
            "confidence_head_with_markov": self.settings.rank > 0,
            "draft_vocab_size": self.module.shape.V if self.module.lm_head is None else len(self.module.d2t),
            "transformer_layer_config": self.model.layers_config("qwen3", self.module.shape),
            "torch_dtype": "bfloat16",
        }

    def _drafted(self, batch: Batch, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The drafter's logits [B, A, block, its tokens], how sure it is, the model's states [B, A, block, D] after the
        last norm, and which places count [B, A, block], of blocks after anchors that are drawn from each sequence,
        where their first token counts."""
        s, model = self.settings, self.model
        features, states = self._read(batch.tokens)
        anchors = np.stack([_some(np.flatnonzero(row[1 : -s.block]), s.anchors, rng) for row in batch.counts])
        behind = anchors[:, :, None] + 1 + np.arange(s.block)
        rows = np.arange(len(anchors))[:, None, None]
        wanted, counts = states[rows, behind], torch.from_numpy(batch.counts[rows, behind])
        tokens, there = (torch.from_numpy(part).to(model.device) for part in (batch.tokens, anchors))
        with autocast(model.device, s.precision):
            logits, sure = self.module(features, tokens, there, model.embedding, model.logits)
        return logits, sure, wanted, counts.to(model.device)


def _some(places: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """[count] of the places, ascending, some more than once where there are fewer; 0 where there is none."""
    return np.sort(rng.choice(places, count, len(places) < count)) if len(places) else np.zeros(count, np.int64)


def taps_of(layers: int, count: int) -> list[int]:
    """So many layers, evenly from an early one to the last."""
    return sorted({round((i + 1) * layers / count) - 1 for i in range(count)})
