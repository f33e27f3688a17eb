"""x += W in + bias: the output projection of attention, and the down projection."""

import triton
import triton.language as tl

from .overlap import begin
from .tile import multiply, place


@triton.jit
def residual(
    n_ptr, y, w, bias, x,
    N: tl.constexpr, K: tl.constexpr, HAS_BIAS: tl.constexpr,
    ROWS: tl.constexpr, TOKENS: tl.constexpr, BLOCK_K: tl.constexpr, BITS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    begin(EARLY)
    tile, token_tile = place()
    n = tl.load(n_ptr)
    first = token_tile * TOKENS
    if first >= n:
        return
    row = tile * ROWS
    i = row + tl.arange(0, ROWS)[:, None]
    j = first + tl.arange(0, TOKENS)[None, :]
    there = (i < N) & (j < n)
    to = x + j.to(tl.int64) * N + i
    before = tl.load(to, mask=there, other=0.0)  # early: what waits at the end of a program waits for nothing else
    out = multiply(w, y, row, N - row, first, n, K, ROWS, N % ROWS == 0, TOKENS, BLOCK_K, BITS)
    if HAS_BIAS:
        out += tl.load(bias + i, mask=i < N, other=0.0)
    tl.store(to, before + out, mask=there)
