"""Attention of decoding by itself: this engine's kernels and flash-attn's, over the same cache, in one shape.

The kernels, their constants and their grids are those of the runtime: kernels/triton/manifest.py and csrc/cuda/ops.cc.
"""

from __future__ import annotations

import importlib
import importlib.util
from functools import partial
from typing import Any

import clock
import models
import record
import torch
import triton

from swiftk.files.folders import kernel_sources
from swiftk.gpu.pack_compile import PACKAGE, load_kernels

_MODEL = "8b"
_CONTEXTS = (512, 4096, 32768)
_ROWS = (1, 16)
_BLOCK = 64  # tokens: KV_BLOCK of kernels/triton/manifest.py
_COLD = 600_000_000  # bytes of caches that take turns, so that none is in L2 when its turn comes


class Problem:
    """n rows of a chain after `context` cached tokens; caches [2, slots, KV, HD] that take turns."""

    def __init__(self, config: dict[str, Any], context: int, n: int, like: dict[str, Any], cold: int) -> None:
        self.H, self.KV, self.HD = (
            config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"])
        self.context, self.n = context, n
        self.q = torch.randn(n, self.H, self.HD, **like)
        self.blocks = -(-(context + n) // _BLOCK)
        self.cache = [torch.randn(2, _BLOCK * self.blocks, self.KV, self.HD, **like)]
        self.bytes = self.cache[0].numel() * self.cache[0].element_size()
        self.cache += [self.cache[0].clone() for _ in range(cold // self.bytes)]


class Ours:
    """The runtime's two launches of attention over a problem."""

    def __init__(self, p: Problem) -> None:
        load_kernels(str(kernel_sources()))
        self.manifest = importlib.import_module(f"{PACKAGE}.manifest")
        dtype = str(p.q.dtype).removeprefix("torch.")
        shape = {"H": p.H, "KV": p.KV, "HD": p.HD, "dtype": dtype, "eps": 1e-5, **dict.fromkeys(("D", "F", "V"), 1),
                 **dict.fromkeys(("qk_norm", "qkv_bias", "o_bias", "mlp_bias"), False)}
        self.entries = {e.name: e for e in self.manifest.attention(self.manifest.Shape(shape, early=False))}
        self.rows = next(b for b in self.manifest.BUCKETS if p.n <= b)
        self.splits = self.manifest.splits_of(p.context + p.n)
        there, f32 = {"device": p.q.device}, {"device": p.q.device, "dtype": torch.float32}
        self.count = torch.tensor([p.n], dtype=torch.int32, **there)
        group, most = p.H // p.KV, self.entries["attention_split"].constants["QROWS"]
        begins = range(0, self.rows * group, most)
        tiles = [[at, min(at + most, p.n * group)] if at < p.n * group else [0, 0] for at in begins]
        self.tiles = torch.tensor(tiles, dtype=torch.int32, **there)
        self.views = torch.tensor([[1 << 30, 0, 0, 0]] * self.rows, dtype=torch.int32, **there)
        self.tables = torch.arange(p.blocks, dtype=torch.int32, **there)
        self.pos = torch.zeros(self.rows, dtype=torch.int32, **there)
        self.pos[: p.n] = p.context + torch.arange(p.n, **there)
        self.q = torch.zeros(self.rows, p.H, p.HD, dtype=p.q.dtype, **there)
        self.q[: p.n] = p.q
        self.out = torch.zeros_like(self.q)
        self.acc = torch.empty(self.rows, p.H, self.splits, p.HD, **f32)
        self.ml = torch.empty(self.rows, p.H, self.splits, 2, **f32)
        self.problem = p

    def _launch(self, name: str, grid: tuple[int, ...], *arguments: Any) -> None:
        e = self.entries[name]
        kernel = getattr(importlib.import_module(f"{PACKAGE}.{e.module}"), e.function)
        kernel[grid](*arguments, **e.constants, **e.options)

    def run(self, cache: torch.Tensor) -> torch.Tensor:
        """[n, H, HD]"""
        p = self.problem
        reads, parts = (self.views, self.tables, self.q, cache[0], cache[1]), (self.acc, self.ml)
        grid = len(self.tiles), p.KV, self.splits
        self._launch("attention_split", grid, self.tiles, self.pos, *reads, *parts, 0, self.splits)
        self._launch("attention_merge", (self.rows, p.H), self.count, self.pos, *parts, self.out, self.splits)
        return self.out[: p.n]


class Flash:
    """flash-attn's way of decoding with a cache."""

    def __init__(self, p: Problem) -> None:
        self.run_kernel = importlib.import_module("flash_attn").flash_attn_with_kvcache
        self.q, self.lengths = p.q[None], torch.tensor([p.context + p.n], dtype=torch.int32, device=p.q.device)

    def run(self, cache: torch.Tensor) -> torch.Tensor:
        """[n, H, HD]"""
        return self.run_kernel(self.q, cache[0][None], cache[1][None], cache_seqlens=self.lengths, causal=True)[0]


def _all(way: Ours | Flash, caches: list[torch.Tensor]) -> None:
    for cache in caches:
        way.run(cache)


def _pair(part: record.Part, problem: Problem, flash: bool) -> None:
    """Time of both, and how far apart their results are."""
    device, reads = part.given.device, record.reads(part.given)
    case = f"{models.label(_MODEL)}, attention over {problem.context}"
    taken, results = {}, []
    for name, way in (("swiftk", Ours), ("flash_attn", Flash))[: 1 + flash]:
        made = way(problem)
        results.append(made.run(problem.cache[0]).float())
        taken[name] = clock.seconds(partial(_all, made, problem.cache), device) / len(problem.cache)
        share = problem.bytes / taken[name] / reads if reads else None
        part.add(case, f"{name}, {problem.n} rows", taken[name] * 1e6, "us", of_reads=share)
    part.keep(f"attention_{problem.context}_{problem.n}", taken)
    if flash:
        part.add(case, f"swiftk over flash_attn, {problem.n} rows", taken["flash_attn"] / taken["swiftk"])
        part.add(case, f"largest difference, {problem.n} rows", (results[0] - results[1]).abs().max().item())
    else:
        part.add(case, f"flash_attn, {problem.n} rows", "not installed")


def measure(part: record.Part) -> None:
    if part.given.device != "cuda" and not triton.knobs.runtime.interpret:
        part.note("attention needs a GPU, or Triton's interpreter")
        return
    flash = importlib.util.find_spec("flash_attn") is not None
    if flash:
        part.note(f"flash_attn {importlib.import_module('flash_attn').__version__}")
    tiny, config = part.given.tiny, models.config(_MODEL, part.given.tiny)
    like = {"device": part.given.device, "dtype": torch.float16 if tiny else torch.bfloat16}
    for context in _CONTEXTS:
        for n in _ROWS:
            problem = Problem(config, context // 64 if tiny else context, n, like, 0 if tiny else _COLD)
            part.attempt(f"attention over {problem.context}, {n} rows", _pair, part, problem, flash)
            del problem
