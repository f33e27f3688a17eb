"""Online softmax over the keys of one split.

Where rows are a tree, a key's slot is not its position. Up to the last whole tile of the prefix all rows see the same
keys; the rest of a branch is gathered by position, for one token after another: every row of the query tile takes the
step, and those of that token keep the result. So a branch has the bits of the same text decoded alone.
"""

import triton
import triton.language as tl

from .path import nth_set_bit

FAR = tl.constexpr(1 << 30)  # beyond every position


@triton.jit
def split_start(s):
    """First position of a split: 256 positions each at first, so that short texts are spread wide; later 2048."""
    return tl.where(s <= 16, 256 * s, 4096 + 2048 * (s - 16))


@triton.jit
def split_of(position):
    return tl.where(position < 4096, position // 256, 16 + (position - 4096) // 2048)


@triton.jit
def step(q, k, v, visible, m, mass, acc, SCALE: tl.constexpr, MASKED: tl.constexpr):
    """One tile of keys: k is [HD, KEYS], v [KEYS, HD], both 0 where no row sees the key."""
    score = tl.dot(q, k, input_precision="ieee") * SCALE
    if MASKED:
        score = tl.where(visible, score, float("-inf"))
    top = tl.maximum(m, tl.max(score, 1))
    base = tl.where(top == float("-inf"), 0.0, top)  # nothing seen so far: all exponentials are 0, as mass and acc are
    alpha = tl.exp(m - base)
    p = tl.exp(score - base[:, None])
    mass = mass * alpha + tl.sum(p, 1)
    acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
    return top, mass, acc


@triton.jit
def load_tile(k_cache, v_cache, at, seen, HD: tl.constexpr, BLOCK: tl.constexpr, MASKED: tl.constexpr):
    """k [BLOCK, KEYS] and v [KEYS, BLOCK] at the offsets `at` of their keys; 0 where a key is not seen."""
    d = tl.arange(0, BLOCK)
    k_at = k_cache + (at[None, :] + d[:, None])
    v_at = v_cache + (at[:, None] + d[None, :])
    if MASKED:
        k = tl.load(k_at, mask=seen[None, :] & (d < HD)[:, None], other=0.0)
        v = tl.load(v_at, mask=seen[:, None] & (d < HD)[None, :], other=0.0)
    elif HD < BLOCK:
        k = tl.load(k_at, mask=(d < HD)[:, None], other=0.0)
        v = tl.load(v_at, mask=(d < HD)[None, :], other=0.0)
    else:
        k = tl.load(k_at)
        v = tl.load(v_at)
    return k, v


@triton.jit
def scan(
    s, query, token, first, last, n, meta, pos, ancestors, k_cache, v_cache, window,
    STRIDE: tl.constexpr, HD: tl.constexpr, SCALE: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """(m, mass, acc) of split s for the rows of a query tile, that see the positions first..last of their token.

    What comes out for rows that are none (last < 0) is nobody's.
    """
    QROWS: tl.constexpr = query.shape[0]
    BLOCK: tl.constexpr = query.shape[1]
    m = tl.full((QROWS,), float("-inf"), tl.float32)
    mass = tl.zeros((QROWS,), tl.float32)
    acc = tl.zeros((QROWS, BLOCK), tl.float32)
    prefix = tl.where(tl.load(meta + 3) != 0, tl.load(meta + 1), FAR)
    scratch = tl.load(meta + 2)
    key = tl.arange(0, KEYS)
    lowest = tl.min(first, 0)
    highest = tl.max(last, 0)
    begin = tl.maximum(split_start(s), lowest // KEYS * KEYS)
    end = tl.minimum(split_start(s + 1), highest + 1)

    # Tiles that every row sees whole need no masks. A split that a window cuts is taken to have none of them.
    common = tl.minimum(tl.min(tl.where(last < 0, FAR, last + 1), 0), prefix)
    uncut = begin >= tl.max(tl.where(last < 0, 0, first), 0)
    ragged = tl.where(uncut, tl.maximum(tl.minimum(end, common) // KEYS * KEYS, begin), begin)
    stride = tl.full((), STRIDE, tl.int64)
    for base in range(begin, ragged, KEYS):
        at = stride * base
        k, v = load_tile(k_cache + at, v_cache + at, key * STRIDE, key, HD, BLOCK, False)
        m, mass, acc = step(query, k, v, True, m, mass, acc, SCALE, False)

    # The rest: `joint` tiles for all rows at once, where slots are positions; then the others, token by token.
    tiles = tl.maximum(end - ragged + KEYS - 1, 0) // KEYS
    joint = tl.minimum(tl.maximum(prefix - ragged, 0) // KEYS, tiles)
    t0 = tl.min(token, 0)
    tokens = tl.minimum(tl.max(token, 0) + 1, n) - t0
    for i in tl.range(0, joint + tokens * (tiles - joint), num_stages=2):
        of_all = i < joint
        apart = tl.maximum(tiles - joint, 1)
        t = t0 + tl.where(of_all, 0, (i - joint) // apart)
        p = ragged + tl.where(of_all, i, joint + (i - joint) % apart) * KEYS + key
        t_last = tl.load(pos + t)
        low = tl.where(of_all, lowest, tl.where(window > 0, t_last - window + 1, 0))
        high = tl.where(of_all, highest, t_last)
        slot = tl.where(p < prefix, p, scratch + nth_set_bit(tl.load(ancestors + t), p - prefix))
        # Found by one lane a key. Without the gather, the compiler repeats it in every thread that loads from the slot.
        slot = tl.gather(tl.where((p >= low) & (p <= high), slot, -1), key, 0)
        k, v = load_tile(k_cache, v_cache, slot * stride, slot >= 0, HD, BLOCK, True)
        from_here = tl.where(of_all | (token == t), first, FAR)
        visible = (p[None, :] >= from_here[:, None]) & (p[None, :] <= last[:, None])
        m, mass, acc = step(query, k, v, visible, m, mass, acc, SCALE, True)
    return m, mass, acc
