"""x[i] = table[token[i]], widened to f32."""

import triton
import triton.language as tl

from .overlap import begin


@triton.jit
def embed(n_ptr, token, table, x, D: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    begin(EARLY)
    i = tl.program_id(0)
    if i >= tl.load(n_ptr):
        return
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(token + i).to(tl.int64)
    value = tl.load(table + row * D + at, mask=at < D)
    tl.store(x + i.to(tl.int64) * D + at, value.to(tl.float32), mask=at < D)
