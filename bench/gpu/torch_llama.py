"""LLaMA decoding in plain torch as a careful user writes it: joined matrices, a static cache, one recorded graph.

A peer to compare with. Rope scaling is left out: it changes numbers, not what a step costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import clock
import torch
import torch.nn.functional as F
from torch import Tensor


class Llama:
    """The decoder over a cache of `capacity` positions. `token` and `position` are where a step starts and ends."""

    def __init__(self, config: dict[str, Any], weights: Mapping[str, Tensor], capacity: int) -> None:
        self.layers, self.eps = config["num_hidden_layers"], config["rms_norm_eps"]
        self.heads, self.kv_heads, self.head = (
            config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"])
        self.embedding, self.norm = weights["model.embed_tokens.weight"], weights["model.norm.weight"]
        self.lm_head = self.embedding if config["tie_word_embeddings"] else weights["lm_head.weight"]
        self.blocks = [self._block(weights, f"model.layers.{i}.") for i in range(self.layers)]
        like = {"device": self.embedding.device, "dtype": self.embedding.dtype}
        self.cache = torch.zeros(self.layers, 2, 1, self.kv_heads, capacity, self.head, **like)
        self.slots = torch.arange(capacity, device=like["device"])
        half = torch.arange(0, self.head, 2, device=like["device"], dtype=torch.float32) / self.head
        angle = self.slots[:, None] * config["rope_theta"] ** -half
        self.cos, self.sin = (torch.cat([f(angle)] * 2, 1).to(like["dtype"])[:, None] for f in (torch.cos, torch.sin))
        self.token = torch.zeros(1, dtype=torch.int64, device=like["device"])
        self.position = torch.zeros(1, dtype=torch.int64, device=like["device"])

    @staticmethod
    def _block(weights: Mapping[str, Tensor], at: str) -> tuple[Tensor, ...]:
        def joined(*names: str) -> Tensor:
            return torch.cat([weights[f"{at}{name}.weight"] for name in names])

        return (weights[at + "input_layernorm.weight"], joined(*(f"self_attn.{c}_proj" for c in "qkv")),
                weights[at + "self_attn.o_proj.weight"], weights[at + "post_attention_layernorm.weight"],
                joined("mlp.gate_proj", "mlp.up_proj"), weights[at + "mlp.down_proj.weight"])

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Logits after the last of some tokens, which are stored at their positions."""
        n, group = len(tokens), self.heads // self.kv_heads
        x = F.embedding(tokens, self.embedding)
        cos, sin = self.cos[positions], self.sin[positions]
        seen = (self.slots <= positions[:, None]).repeat_interleave(group, 0)
        for block, (k_cache, v_cache) in zip(self.blocks, self.cache):
            norm, qkv, o_proj, next_norm, gate_up, down = block
            y = F.linear(F.rms_norm(x, norm.shape, norm, self.eps), qkv).view(n, -1, self.head)
            q, k, v = y.split([self.heads, self.kv_heads, self.kv_heads], 1)
            q, k = (a * cos + torch.cat([-a[..., self.head // 2 :], a[..., : self.head // 2]], 2) * sin for a in (q, k))
            k_cache.index_copy_(2, positions, k.transpose(0, 1)[None])
            v_cache.index_copy_(2, positions, v.transpose(0, 1)[None])
            # The queries of a group are rows of one head: no key is repeated.
            q = q.view(n, self.kv_heads, group, self.head).transpose(0, 1).reshape(1, self.kv_heads, -1, self.head)
            a = F.scaled_dot_product_attention(q, k_cache, v_cache, attn_mask=seen)
            a = a.view(self.kv_heads, n, group * self.head).transpose(0, 1).reshape(n, -1)
            x = x + F.linear(a, o_proj)
            gate, up = F.linear(F.rms_norm(x, next_norm.shape, next_norm, self.eps), gate_up).chunk(2, 1)
            x = x + F.linear(F.silu(gate) * up, down)
        return F.linear(F.rms_norm(x[-1:], self.norm.shape, self.norm, self.eps), self.lm_head).float()

    def step(self) -> None:
        """One greedy token, without the host: the next one takes its place."""
        self.token.copy_(self.forward(self.token, self.position).argmax(1))
        self.position.add_(1)

    def start(self, prompt: list[int]) -> None:
        """Prefill; `token` is then the first of the text."""
        tokens = torch.tensor(prompt, device=self.token.device)
        self.token.copy_(self.forward(tokens, self.slots[: len(prompt)]).argmax(1))
        self.position.fill_(len(prompt))


@torch.inference_mode()
def seconds_per_token(model: Llama, prompt: list[int], count: int, compiled: bool) -> float:
    """Mean of `count` steps after a prompt, replayed one after another."""
    step = model.step
    if compiled:
        step = torch.compile(step, fullgraph=True, options={"coordinate_descent_tuning": True})
    if model.token.device.type != "cuda":
        model.start(prompt)
        return clock.seconds(step, "cpu")
    model.start(prompt)
    graph = clock.recorded(step)
    taken = []
    for _ in range(4):
        model.start(prompt)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            graph.replay()
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end) / 1e3 / count)
    return min(taken[1:])
