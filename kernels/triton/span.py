"""Online softmax over the keys of one split: those that the rows of a query tile share, then those of a branch.

A sequence's slots lie in blocks, by a table of its own: a tile of keys is within one of them. Where rows are a tree, a
key's slot is not its position. Up to the last whole tile of the prefix all rows see the same keys (`scan`); the rest of
a branch is gathered by position, for one token alone (`scan_branch`), from the state that the shared keys left. So a
branch has the bits of the same text decoded alone.
"""

import triton
import triton.language as tl

from .manifest import KV_BLOCK, SPLITS
from .path import nth_set_bit

FAR = tl.constexpr(1 << 30)  # beyond every position
IN_BLOCK = tl.constexpr(KV_BLOCK)
SHORT, MIDDLE, LONG = (tl.constexpr(keys) for keys, _ in SPLITS)
SHORT_END, MIDDLE_END = (tl.constexpr(end) for _, end in SPLITS[:2])
MIDDLES = tl.constexpr(SHORT_END.value // SHORT.value)  # the first split of MIDDLE keys
LONGS = tl.constexpr(MIDDLES.value + (MIDDLE_END.value - SHORT_END.value) // MIDDLE.value)


@triton.jit
def split_start(s):
    """First position of a split."""
    later = tl.where(s <= LONGS, SHORT_END + MIDDLE * (s - MIDDLES), MIDDLE_END + LONG * (s - LONGS))
    return tl.where(s <= MIDDLES, SHORT * s, later)


@triton.jit
def split_of(position):
    later = tl.where(
        position < MIDDLE_END, MIDDLES + (position - SHORT_END) // MIDDLE, LONGS + (position - MIDDLE_END) // LONG
    )
    return tl.where(position < SHORT_END, position // SHORT, later)


@triton.jit
def seen_by(views, token, tables):
    """(prefix, scratch, blocks) of a row's sequence; prefix is FAR where its rows are no tree."""
    view = views + 4 * token
    return tl.load(view), tl.load(view + 1), tables + tl.load(view + 2)


@triton.jit
def shared_end(prefix, KEYS: tl.constexpr):
    """Where the keys end that a sequence's rows all have at slot == position, in whole tiles."""
    return tl.where(prefix < FAR, prefix // KEYS * KEYS, FAR)


@triton.jit
def place(blocks, slots, block):
    """Where a slot of a block, or several of one, lie in the cache."""
    return slots + (tl.load(blocks + block) - block) * IN_BLOCK


@triton.jit
def nothing(QROWS: tl.constexpr, BLOCK: tl.constexpr):
    """(m, mass, acc) of rows that have seen no key."""
    m = tl.full((QROWS,), float("-inf"), tl.float32)
    return m, tl.zeros((QROWS,), tl.float32), tl.zeros((QROWS, BLOCK), tl.float32)


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
    s, query, first, last, limit, blocks, k_cache, v_cache,
    STRIDE: tl.constexpr, HD: tl.constexpr, SCALE: tl.constexpr, KEYS: tl.constexpr, RAGGED_STAGES: tl.constexpr,
):  # fmt: skip
    """(m, mass, acc) of split s up to position `limit`, for rows that see the positions first..last of their token.

    RAGGED_STAGES: how many of the tiles that not every row sees whole are under way at once. What comes out for rows
    that are none (last < 0) is nobody's.
    """
    QROWS: tl.constexpr = query.shape[0]
    BLOCK: tl.constexpr = query.shape[1]
    m, mass, acc = nothing(QROWS, BLOCK)
    key = tl.arange(0, KEYS)
    lowest = tl.min(first, 0)
    end = tl.minimum(tl.minimum(split_start(s + 1), tl.max(last, 0) + 1), limit)
    begin = tl.maximum(split_start(s), lowest // KEYS * KEYS)

    # Tiles that every row sees whole need no masks. A split that a window cuts is taken to have none of them.
    common = tl.min(tl.where(last < 0, FAR, last + 1), 0)
    uncut = begin >= tl.max(tl.where(last < 0, 0, first), 0)
    ragged = tl.where(uncut, tl.maximum(tl.minimum(end, common) // KEYS * KEYS, begin), begin)
    stride = tl.full((), STRIDE, tl.int64)
    # A tile's block is looked up a tile ahead: the compiler prefetches tiles only where addresses wait for no load.
    ahead = tl.load(blocks + begin // IN_BLOCK, mask=begin < end, other=0)
    for base in range(begin, ragged, KEYS):
        tile = (base + (ahead - base // IN_BLOCK) * IN_BLOCK) * stride
        ahead = tl.load(blocks + (base + KEYS) // IN_BLOCK, mask=base + KEYS < end, other=0)
        k, v = load_tile(k_cache + tile, v_cache + tile, key * STRIDE, key, HD, BLOCK, False)
        m, mass, acc = step(query, k, v, True, m, mass, acc, SCALE, False)
    for base in tl.range(ragged, end, KEYS, num_stages=RAGGED_STAGES):
        p = base + key
        tile = place(blocks, base, base // IN_BLOCK) * stride
        k, v = load_tile(k_cache + tile, v_cache + tile, key * STRIDE, (p >= lowest) & (p < end), HD, BLOCK, True)
        visible = (p[None, :] >= first[:, None]) & (p[None, :] <= last[:, None])
        m, mass, acc = step(query, k, v, visible, m, mass, acc, SCALE, True)
    return m, mass, acc


@triton.jit
def scan_branch(
    s, query, first, last, begin, mask, prefix, scratch, blocks, m, mass, acc, k_cache, v_cache,
    STRIDE: tl.constexpr, HD: tl.constexpr, SCALE: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Goes on with split s from position `begin`, for heads of one token, which sees first..last, and of its scratch
    rows those in `mask`."""
    key = tl.arange(0, KEYS)
    stride = tl.full((), STRIDE, tl.int64)
    begin = tl.maximum(tl.maximum(split_start(s), begin), first // KEYS * KEYS)
    for base in tl.range(begin, tl.minimum(split_start(s + 1), last + 1), KEYS, num_stages=2):
        p = base + key
        slot = tl.where(p < prefix, p, scratch + nth_set_bit(mask, p - prefix))
        there = (p >= first) & (p <= last)
        block = slot // IN_BLOCK
        lies = slot + (tl.load(blocks + block, mask=there, other=0) - block) * IN_BLOCK
        # Found by one lane a key. Without the gather, the compiler repeats it in every thread that loads from the slot.
        slot = tl.gather(tl.where(there, lies, -1), key, 0)
        k, v = load_tile(k_cache, v_cache, slot * stride, slot >= 0, HD, BLOCK=query.shape[1], MASKED=True)
        visible = (slot >= 0)[None, :]
        m, mass, acc = step(query, k, v, visible, m, mass, acc, SCALE, True)
    return m, mass, acc
