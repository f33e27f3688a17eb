"""q, k, v = W y + bias; q and k rotated; k and v stored in the cache at the rows' slots.

Element i of a head pairs with i + HD / 2 in the rotation, so a program has the same rows of both halves of a head.
"""

import triton
import triton.language as tl

from .low_bit import stored_rows
from .overlap import begin
from .tile import multiply_pair, place


@triton.jit
def rotate(a, b, cos, sin):
    return a * cos - b * sin, b * cos + a * sin


@triton.jit
def qkv(
    n_ptr, y, w, bias, slot, cos, sin, q, k_cache, v_cache, raw,
    D: tl.constexpr, H: tl.constexpr, KV: tl.constexpr, HD: tl.constexpr, HAS_BIAS: tl.constexpr, QK_NORM: tl.constexpr,
    ROWS: tl.constexpr, TOKENS: tl.constexpr, BLOCK_K: tl.constexpr, BITS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    begin(EARLY)
    HALF: tl.constexpr = HD // 2
    TILES: tl.constexpr = (HALF + ROWS - 1) // ROWS
    tile, token_tile = place()
    n = tl.load(n_ptr)
    first = token_tile * TOKENS
    if first >= n:
        return
    head = tile // TILES
    r0 = tile % TILES * ROWS
    STORED: tl.constexpr = stored_rows(HALF, BITS)
    row = head * (2 * STORED) + r0
    a, b = multiply_pair(w, y, row, row + STORED, HALF - r0, first, n, D, ROWS, HALF % ROWS == 0, TOKENS, BLOCK_K, BITS)
    i = r0 + tl.arange(0, ROWS)[:, None]
    j = first + tl.arange(0, TOKENS)[None, :]
    there = (i < HALF) & (j < n)
    if HAS_BIAS:
        a += tl.load(bias + head * HD + i, mask=i < HALF, other=0.0)
        b += tl.load(bias + head * HD + HALF + i, mask=i < HALF, other=0.0)
    if QK_NORM:
        to = raw + (j.to(tl.int64) * (H + 2 * KV) + head) * HD + i
        tl.store(to, a, mask=there)
        tl.store(to + HALF, b, mask=there)
    else:
        if head < H + KV:
            at = j * HALF + i
            a, b = rotate(a, b, tl.load(cos + at, mask=there, other=0.0), tl.load(sin + at, mask=there, other=0.0))
        DT: tl.constexpr = q.dtype.element_ty
        a = a.to(DT)
        b = b.to(DT)
        if head < H:
            to = q + (j.to(tl.int64) * H + head) * HD + i
            tl.store(to, a, mask=there)
            tl.store(to + HALF, b, mask=there)
        else:
            place_in_cache = tl.load(slot + j, mask=j < n, other=0).to(tl.int64) * KV
            if head < H + KV:
                to = k_cache + (place_in_cache + head - H) * HD + i
            else:
                to = v_cache + (place_in_cache + head - H - KV) * HD + i
            tl.store(to, a, mask=there)
            tl.store(to + HALF, b, mask=there)


@triton.jit
def qk_norm_rope(
    n_ptr, raw, q_norm, k_norm, slot, cos, sin, q, k_cache, v_cache,
    H: tl.constexpr, KV: tl.constexpr, HD: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """What is left of a head where q and k are normed: it needs the whole head, which no program of qkv has."""
    begin(EARLY)
    HALF: tl.constexpr = HD // 2
    j = tl.program_id(0)
    head = tl.program_id(1)
    if j >= tl.load(n_ptr):
        return
    i = tl.arange(0, BLOCK)
    there = i < HALF
    row = raw + (j.to(tl.int64) * (H + 2 * KV) + head) * HD + i
    a = tl.load(row, mask=there, other=0.0)
    b = tl.load(row + HALF, mask=there, other=0.0)
    if head < H + KV:
        norm = k_norm + i
        if head < H:
            norm = q_norm + i
        scale = tl.rsqrt(tl.sum(a * a + b * b, 0) / HD + EPS)
        a = a * scale * tl.load(norm, mask=there, other=0.0)
        b = b * scale * tl.load(norm + HALF, mask=there, other=0.0)
        at = j * HALF + i
        a, b = rotate(a, b, tl.load(cos + at, mask=there, other=0.0), tl.load(sin + at, mask=there, other=0.0))
    DT: tl.constexpr = q.dtype.element_ty
    at = tl.load(slot + j).to(tl.int64) * KV
    to = q + (j.to(tl.int64) * H + head) * HD + i
    if head >= H + KV:
        to = v_cache + (at + head - H - KV) * HD + i
    elif head >= H:
        to = k_cache + (at + head - H) * HD + i
    tl.store(to, a.to(DT), mask=there)
    tl.store(to + HALF, b.to(DT), mask=there)
