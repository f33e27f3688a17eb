"""What rows of drafters need beside the ops of a pass: a norm by itself, rounding, a mean of some, a place in a larger
vocabulary."""

import triton
import triton.language as tl

from .overlap import begin


@triton.jit
def norm_rows(n_ptr, x, weight, out, stride, D: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr,
              EARLY: tl.constexpr):  # fmt: skip
    """out = x / rms(x) * weight in f32, rows of `out` so many floats apart. It may be x."""
    begin(EARLY)
    i = tl.program_id(0)
    if i >= tl.load(n_ptr):
        return
    at = tl.arange(0, BLOCK)
    value = tl.load(x + i.to(tl.int64) * D + at, mask=at < D, other=0.0)
    scale = tl.rsqrt(tl.sum(value * value, 0) / D + EPS)
    weights = tl.load(weight + at, mask=at < D, other=0.0)
    tl.store(out + i.to(tl.int64) * stride + at, value * scale * weights, mask=at < D)


@triton.jit
def round_rows(n_ptr, x, y, width, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    """y = x in the weights' dtype."""
    begin(EARLY)
    i = tl.program_id(0)
    if i >= tl.load(n_ptr):
        return
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = i.to(tl.int64) * width
    value = tl.load(x + row + at, mask=at < width, other=0.0)
    tl.store(y + row + at, value.to(y.dtype.element_ty), mask=at < width)


@triton.jit
def mean_rows(x, out, group, width, BLOCK: tl.constexpr):
    """out = the mean of each `group` rows of x, summed from the first on."""
    i = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for g in range(0, group):
        total += tl.load(x + (i * group + g) * width + at, mask=at < width, other=0.0)
    tl.store(out + i * width + at, total / group, mask=at < width)


@triton.jit
def spread_rows(n_ptr, own, token, logits, own_vocab, vocab, BLOCK: tl.constexpr):
    """logits[token[j]] = own[j], row by row."""
    i = tl.program_id(0)
    if i >= tl.load(n_ptr):
        return
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = at < own_vocab
    value = tl.load(own + i.to(tl.int64) * own_vocab + at, mask=there, other=0.0)
    to = tl.load(token + at, mask=there, other=0)
    tl.store(logits + i.to(tl.int64) * vocab + to, value, mask=there)
