"""logits = W y."""

import triton
import triton.language as tl

from .overlap import begin
from .tile import multiply, place


@triton.jit
def lm_head(
    n_ptr, y, w, logits,
    D: tl.constexpr, V: tl.constexpr,
    ROWS: tl.constexpr, TOKENS: tl.constexpr, BLOCK_K: tl.constexpr, BITS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    begin(EARLY)
    tile, token_tile = place()
    n = tl.load(n_ptr)
    first = token_tile * TOKENS
    if first >= n:
        return
    row = tile * ROWS
    out = multiply(w, y, row, V - row, first, n, D, ROWS, V % ROWS == 0, TOKENS, BLOCK_K, BITS)
    i = row + tl.arange(0, ROWS)[:, None]
    j = first + tl.arange(0, TOKENS)[None, :]
    tl.store(logits + j.to(tl.int64) * V + i, out, mask=(i < V) & (j < n))
