"""What a kernel gains when its start overlaps the end of the one before (programmatic dependent launch), in Triton."""

from __future__ import annotations

from functools import partial

import clock
import record
import torch
import triton
import triton.language as tl
from triton.language.extra import cuda

_PROGRAMS, _BLOCK, _TURNS = 1024, 4096, 4  # 33.5 MB of bf16 a kernel: a small matrix of a 7 B model
_KERNELS = 96
_BUFFERS = 16


@triton.jit
def link(weights, state, TURNS: tl.constexpr, BLOCK: tl.constexpr, OVERLAP: tl.constexpr):
    """A kernel of a chain: reads its weights, then what the kernel before it left."""
    if OVERLAP:
        cuda.gdc_launch_dependents()
    at = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    base = weights + at.to(tl.int64) * TURNS * BLOCK
    total = tl.zeros((BLOCK,), tl.float32)
    for turn in tl.static_range(TURNS):
        total += tl.load(base + turn * BLOCK + columns).to(tl.float32)
    if OVERLAP:
        cuda.gdc_wait()
    tl.store(state + at, tl.load(state + at) * 0.5 + tl.sum(total, 0))


def chain(weights: torch.Tensor, state: torch.Tensor, overlap: bool) -> None:
    options = {"num_warps": 4, "launch_pdl": overlap}
    for i in range(_KERNELS):
        link[(_PROGRAMS,)](weights[i % _BUFFERS], state, _TURNS, _BLOCK, overlap, **options)


def measure(part: record.Part) -> None:
    weights = torch.randn(_BUFFERS, _PROGRAMS * _TURNS * _BLOCK, device="cuda", dtype=torch.bfloat16)
    state = torch.zeros(_PROGRAMS, device="cuda")
    size = 2 * weights[0].numel()
    for overlap in (False, True):
        taken = clock.seconds(partial(chain, weights, state, overlap), "cuda") / _KERNELS
        part.add("launches in a graph", f"chain of {size / 1e6:.1f} MB reads, {'overlapped' if overlap else 'in turn'}",
                 size / taken / 1e9, "GB/s")
