"""The k best of scale * scores + noise, best first, and sums of exponentials of logits: block by block, then merged.

A score and its id are one 64-bit key: the score's bits in an order of integers above, the id's complement below. So
one maximum finds the best and, among equals, the lowest id.
"""

import triton
import triton.language as tl

from .noise import gumbel

LISTED = tl.constexpr(64)  # places of a block's list
NONE = tl.constexpr(-(1 << 63))  # below every key


@triton.jit
def key_of(score, id):
    """NONE where the score is -inf or NaN."""
    bits = (score + 0.0).to(tl.int32, bitcast=True)  # + 0: -0 and 0 are one score
    order = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    key = (order.to(tl.int64) << 32) | (0xFFFFFFFF - id.to(tl.int64))
    return tl.where(score > float("-inf"), key, NONE)


@triton.jit
def id_of(key):
    return tl.where(key == NONE, -1, 0xFFFFFFFF - (key & 0xFFFFFFFF)).to(tl.int32)


@triton.jit
def score_of(key):
    order = (key >> 32).to(tl.int32)
    bits = tl.where(order < 0, order ^ 0x7FFFFFFF, order)
    return tl.where(key == NONE, float("-inf"), bits.to(tl.float32, bitcast=True))


@triton.jit
def topk_partial(
    logits, scores, pos, seed, scale, noisy, stream, k, part_score, part_id, part_lse,
    V: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    row = tl.program_id(1)
    scale = tl.load(scale)
    id = block * BLOCK + tl.arange(0, BLOCK)
    at = row.to(tl.int64) * V + id
    logit = tl.load(logits + at, mask=id < V, other=float("-inf"))
    score = tl.load(scores + at, mask=id < V, other=float("-inf")) * scale
    if noisy != 0:
        score += gumbel(tl.load(seed), tl.load(pos + row), stream, block * (BLOCK // 4), BLOCK)

    part = row.to(tl.int64) * tl.num_programs(0) + block
    top = tl.max(logit, 0)
    odd = (id < V) & (tl.abs(logit) == float("inf"))  # the sum shall show; NaN does by itself
    sum = tl.sum(tl.where(odd, float("nan"), tl.exp(logit - top)), 0)
    tl.store(part_lse + 3 * part, top)
    tl.store(part_lse + 3 * part + 1, sum)
    tl.store(part_lse + 3 * part + 2, tl.sum(tl.exp(logit * scale - top * scale), 0))

    key = key_of(score, id)
    for i in range(0, k):
        best = tl.max(key, 0)
        key = tl.where(key == best, NONE, key)
        tl.store(part_score + part * LISTED + i, score_of(best))
        tl.store(part_id + part * LISTED + i, id_of(best))


@triton.jit
def entry(part_score, part_id, at, there):
    """Key of a place in a list."""
    score = tl.load(part_score + at, mask=there, other=float("-inf"))
    return key_of(score, tl.load(part_id + at, mask=there, other=0))


@triton.jit
def topk_merge(
    logits, part_score, part_id, part_lse, scale, k, id, logit, lse, mass,
    V: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Every block's list has a head; the best head is taken, and the next of its list moves up."""
    WIDTH: tl.constexpr = triton.next_power_of_2(BLOCKS)
    row = tl.program_id(0).to(tl.int64)
    scale = tl.load(scale)
    block = tl.arange(0, WIDTH)
    there = block < BLOCKS
    part = row * BLOCKS + block
    top = tl.load(part_lse + 3 * part, mask=there, other=float("-inf"))
    sum = tl.load(part_lse + 3 * part + 1, mask=there, other=0.0)
    scaled = tl.load(part_lse + 3 * part + 2, mask=there, other=0.0)
    highest = tl.max(top, 0)
    total = tl.sum(tl.where(there, sum * tl.exp(top - highest), 0.0), 0)
    tl.store(lse + row, highest + tl.log(total))
    tl.store(mass + row, tl.sum(tl.where(there, scaled * tl.exp(top * scale - highest * scale), 0.0), 0))

    head = part * LISTED
    left = tl.where(there, k, 0)
    key = entry(part_score, part_id, head, left > 0)
    for i in range(0, k):
        best = tl.max(key, 0)
        found = id_of(best)
        value = tl.load(logits + row * V + found, mask=best != NONE, other=float("-inf"))
        tl.store(id + row * LISTED + i, found)
        tl.store(logit + row * LISTED + i, value)
        taken = (key == best) & (left > 0)
        head += taken.to(tl.int64)
        left -= taken.to(tl.int32)
        key = tl.where(taken, entry(part_score, part_id, head, taken & (left > 0)), key)
