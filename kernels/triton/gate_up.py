"""h = silu(Wg y + bias) * (Wu y + bias). A program has the same rows of Wg and Wu, and makes h in registers."""

import triton
import triton.language as tl

from .low_bit import stored_rows
from .overlap import begin
from .tile import multiply_pair, place


@triton.jit
def gate_up(
    n_ptr, y, w, bias, h,
    D: tl.constexpr, F: tl.constexpr, HAS_BIAS: tl.constexpr,
    ROWS: tl.constexpr, TOKENS: tl.constexpr, BLOCK_K: tl.constexpr, BITS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    begin(EARLY)
    tile, token_tile = place()
    n = tl.load(n_ptr)
    first = token_tile * TOKENS
    if first >= n:
        return
    row = tile * ROWS
    up_row = stored_rows(F, BITS) + row
    g, u = multiply_pair(w, y, row, up_row, F - row, first, n, D, ROWS, F % ROWS == 0, TOKENS, BLOCK_K, BITS)
    i = row + tl.arange(0, ROWS)[:, None]
    j = first + tl.arange(0, TOKENS)[None, :]
    if HAS_BIAS:
        # In turns of 32, gate first, as the runtime interleaves them; the last turn may be short.
        start = i // 32 * 32
        at = bias + start + i
        g += tl.load(at, mask=i < F, other=0.0)
        u += tl.load(at + tl.minimum(32, F - start), mask=i < F, other=0.0)
    out = g / (1.0 + tl.exp(-g)) * u
    tl.store(h + j.to(tl.int64) * F + i, out.to(h.dtype.element_ty), mask=(i < F) & (j < n))
