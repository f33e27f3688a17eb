"""y = x / rms(x) * weight. A program has a whole row, so its sum has one order."""

import triton
import triton.language as tl

from .overlap import begin


@triton.jit
def rmsnorm(n_ptr, x, weight, y, D: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    begin(EARLY)
    i = tl.program_id(0)
    if i >= tl.load(n_ptr):
        return
    at = tl.arange(0, BLOCK)
    row = i.to(tl.int64) * D
    value = tl.load(x + row + at, mask=at < D, other=0.0)
    scale = tl.rsqrt(tl.sum(value * value, 0) / D + EPS)
    out = value * scale * tl.load(weight + at, mask=at < D, other=0.0)
    tl.store(y + row + at, out.to(y.dtype.element_ty), mask=at < D)
