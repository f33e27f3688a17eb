"""Slots of a branch: which scratch row is the q-th of those a mask names."""

import triton
import triton.language as tl


@triton.jit
def descend(counts, WIDTH: tl.constexpr, q, at):
    """Passes over WIDTH bits from bit `at` where fewer than q + 1 of them are set; counts has one field per WIDTH."""
    here = (counts >> at) & ((1 << WIDTH) - 1)
    over = q >= here
    return q - tl.where(over, here, 0), at + tl.where(over, WIDTH, 0)


@triton.jit
def nth_set_bit(mask, q):
    """Index of the q-th set bit (from 0) of an int64, for every q of a tensor; below 64 where there is no such bit.

    Bits are counted in fields of 2, 4, ... 32 once, in the scalar; then each lane halves its interval six times.
    """
    c1 = mask.to(tl.uint64, bitcast=True)
    c2 = c1 - ((c1 >> 1) & 0x5555555555555555)
    c4 = (c2 & 0x3333333333333333) + ((c2 >> 2) & 0x3333333333333333)
    c8 = (c4 + (c4 >> 4)) & 0x0F0F0F0F0F0F0F0F
    c16 = (c8 + (c8 >> 8)) & 0x00FF00FF00FF00FF
    c32 = (c16 + (c16 >> 16)) & 0x0000FFFF0000FFFF
    q = tl.maximum(q, 0).to(tl.uint64)
    at = tl.zeros_like(q)
    q, at = descend(c32, 32, q, at)
    q, at = descend(c16, 16, q, at)
    q, at = descend(c8, 8, q, at)
    q, at = descend(c4, 4, q, at)
    q, at = descend(c2, 2, q, at)
    q, at = descend(c1, 1, q, at)
    return tl.minimum(at.to(tl.int32), 63)
