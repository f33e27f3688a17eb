"""softmax(q k^T) v over the visible keys, one query tile of a KV head at a time, split by split.

Row r of a call's queries of a KV head is head r % G of the group, of token r // G. A query tile is rows [begin, end) of
one sequence, at most QROWS; the host lists them (`tiles`, [begin, end] each; begin == end: none), and what tokens see
(`views`, [prefix, scratch, where its blocks begin in `tables`, 0] each). Keys come in tiles of KEYS at fixed positions,
tiles in splits that start at fixed positions, and every row takes the same steps over them alone or among others: a key
that it does not see changes nothing, to the bit.

Few rows of a sequence: a program for each split (attention_split); where rows are a tree, those of the last splits that
go on along a token's own branch (attention_branch); then the splits are joined in order (attention_merge). Of a prompt,
whose rows are many and never a tree, a program does all splits in turn, and joins them (attention_serial). Query tiles
are the fastest axis of a grid, so that programs that read the same keys run side by side.
"""

import triton
import triton.language as tl

from .overlap import begin
from .span import FAR, nothing, scan, scan_branch, seen_by, shared_end, split_of, split_start


@triton.jit
def join(m, mass, acc, top, weight, part):
    """Takes the next split, if anything was seen in it: the one rule of merging, in registers or from memory."""
    seen = weight > 0.0
    best = tl.where(seen, tl.maximum(m, top), m)
    base = tl.where(best == float("-inf"), 0.0, best)
    alpha = tl.exp(m - base)
    beta = tl.exp(top - base)
    mass = tl.where(seen, mass * alpha + weight * beta, mass)
    acc = tl.where(seen[:, None], acc * alpha[:, None] + part * beta[:, None], acc)
    return best, mass, acc


@triton.jit
def query_rows(tiles, pos, window, kv, H: tl.constexpr, KV: tl.constexpr, QROWS: tl.constexpr):
    """A query tile's first token, which of its rows there are, their head of q or out [n H], and their first and last
    visible position (none where there is no row)."""
    G: tl.constexpr = H // KV
    tile = tiles + 2 * tl.program_id(0)
    begin_row = tl.load(tile)
    r = begin_row + tl.arange(0, QROWS)
    there = r < tl.load(tile + 1)
    token = r // G
    last = tl.load(pos + token, mask=there, other=-1)
    first = tl.where(there, tl.maximum(last - window + 1, 0), FAR)
    first = tl.where((window > 0) | (last < 0), first, 0)
    return begin_row // G, there, token.to(tl.int64) * H + kv * G + r % G, first, last


@triton.jit
def load_queries(q, head, there, HD: tl.constexpr, BLOCK: tl.constexpr):
    d = tl.arange(0, BLOCK)[None, :]
    return tl.load(q + head[:, None] * HD + d, mask=there[:, None] & (d < HD), other=0.0)


@triton.jit
def attention_split(
    tiles, pos, views, tables, q, k_cache, v_cache, acc, ml, window, splits,
    H: tl.constexpr, KV: tl.constexpr, HD: tl.constexpr, SCALE: tl.constexpr, QROWS: tl.constexpr, KEYS: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """One split of one query tile, up to where a tree's branches begin; what it sums is not yet divided."""
    begin(EARLY)
    BLOCK: tl.constexpr = triton.next_power_of_2(HD) if HD > 16 else 16
    kv = tl.program_id(1)
    s = tl.program_id(2)
    token, there, head, first, last = query_rows(tiles, pos, window, kv, H, KV, QROWS)
    if split_start(s) > tl.max(last, 0):  # also where the tile has no rows, whose last is -1
        return
    prefix, _, blocks = seen_by(views, token, tables)
    query = load_queries(q, head, there, HD, BLOCK)
    k, v, shared = k_cache + kv * HD, v_cache + kv * HD, shared_end(prefix, KEYS)
    m, mass, part = scan(s, query, first, last, shared, blocks, k, v, KV * HD, HD, SCALE, KEYS, 2)
    to = head * splits + s
    d = tl.arange(0, BLOCK)[None, :]
    tl.store(acc + to[:, None] * HD + d, part, mask=((mass > 0.0) & there)[:, None] & (d < HD))
    tl.store(ml + 2 * to, m, mask=there)
    tl.store(ml + 2 * to + 1, mass, mask=there)


@triton.jit
def attention_branch(
    n_ptr, pos, ancestors, views, tables, q, k_cache, v_cache, acc, ml, window, splits,
    H: tl.constexpr, KV: tl.constexpr, HD: tl.constexpr, SCALE: tl.constexpr, QROWS: tl.constexpr, KEYS: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Heads of a token of a tree that share a KV head: the last splits go on along its branch."""
    begin(EARLY)
    BLOCK: tl.constexpr = triton.next_power_of_2(HD) if HD > 16 else 16
    G: tl.constexpr = H // KV
    token = tl.program_id(0)
    kv = tl.program_id(1)
    if token >= tl.load(n_ptr):
        return
    last = tl.load(pos + token)
    prefix, scratch, blocks = seen_by(views, token, tables)
    own = shared_end(prefix, KEYS)
    mask = tl.load(ancestors + token)
    if own > last:
        return
    g = tl.program_id(2) * QROWS + tl.arange(0, QROWS)
    there = g < G
    head = token.to(tl.int64) * H + kv * G + g
    first = tl.where(window > 0, tl.maximum(last - window + 1, 0), 0)
    query = load_queries(q, head, there, HD, BLOCK)
    d = tl.arange(0, BLOCK)[None, :]
    for s in range(split_of(own), split_of(last) + 1):
        at = head * splits + s
        m = tl.load(ml + 2 * at, mask=there, other=float("-inf"))
        mass = tl.load(ml + 2 * at + 1, mask=there, other=0.0)
        part = tl.load(acc + at[:, None] * HD + d, mask=(mass > 0.0)[:, None] & (d < HD), other=0.0)
        m, mass, part = scan_branch(
            s, query, first, last, own, mask, prefix, scratch, blocks, m, mass, part,
            k_cache + kv * HD, v_cache + kv * HD, KV * HD, HD, SCALE, KEYS,
        )  # fmt: skip
        tl.store(acc + at[:, None] * HD + d, part, mask=(there & (mass > 0.0))[:, None] & (d < HD))
        tl.store(ml + 2 * at, m, mask=there)
        tl.store(ml + 2 * at + 1, mass, mask=there)


@triton.jit
def attention_merge(n_ptr, pos, acc, ml, out, splits, H: tl.constexpr, HD: tl.constexpr, EARLY: tl.constexpr):
    """A head of a row: its splits, joined in order."""
    begin(EARLY)
    BLOCK: tl.constexpr = triton.next_power_of_2(HD) if HD > 16 else 16
    row = tl.program_id(0)
    last = tl.load(pos + row)
    if row >= tl.load(n_ptr):
        return
    head = row.to(tl.int64) * H + tl.program_id(1) + tl.arange(0, 1)
    d = tl.arange(0, BLOCK)[None, :]
    m, mass, total = nothing(1, BLOCK)
    for s in tl.range(0, split_of(last) + 1, num_stages=4):
        at = head * splits + s
        top = tl.load(ml + 2 * at)
        weight = tl.load(ml + 2 * at + 1)
        part = tl.load(acc + at[:, None] * HD + d, mask=d < HD, other=0.0)
        m, mass, total = join(m, mass, total, top, weight, part)
    tl.store(out + head[:, None] * HD + d, (total / mass[:, None]).to(out.dtype.element_ty), mask=d < HD)


@triton.jit
def attention_serial(
    tiles, pos, views, tables, q, k_cache, v_cache, out, window,
    H: tl.constexpr, KV: tl.constexpr, HD: tl.constexpr, SCALE: tl.constexpr, QROWS: tl.constexpr, KEYS: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """All splits in turn and their merge, for rows so many that splits need no programs of their own."""
    begin(EARLY)
    BLOCK: tl.constexpr = triton.next_power_of_2(HD) if HD > 16 else 16
    kv = tl.program_id(1)
    token, there, head, first, last = query_rows(tiles, pos, window, kv, H, KV, QROWS)
    _, _, blocks = seen_by(views, token, tables)
    query = load_queries(q, head, there, HD, BLOCK)
    m, mass, total = nothing(QROWS, BLOCK)
    k, v = k_cache + kv * HD, v_cache + kv * HD
    for s in range(split_of(tl.min(first, 0)), split_of(tl.max(last, 0)) + 1):
        # One stage: a second one does not fit into the registers, and a prompt's tiles are few that are ragged.
        top, weight, part = scan(s, query, first, last, FAR, blocks, k, v, KV * HD, HD, SCALE, KEYS, 1)
        m, mass, total = join(m, mass, total, top, weight, part)
    d = tl.arange(0, BLOCK)[None, :]
    to = out + head[:, None] * HD + d
    tl.store(to, (total / mass[:, None]).to(out.dtype.element_ty), mask=there[:, None] & (d < HD))
