"""Slots copied onto others, in turn, in every layer; and slots of a layer read as floats."""

import triton
import triton.language as tl


@triton.jit
def move_rows(
    cache, moves, count, layer_stride, v_offset, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """A later move may read what an earlier one wrote: a thread reads and writes the same elements of every slot."""
    base = cache + tl.program_id(0) * layer_stride + tl.program_id(1) * v_offset
    at = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    for m in range(0, count):
        source = tl.load(moves + 2 * m).to(tl.int64)
        target = tl.load(moves + 2 * m + 1).to(tl.int64)
        value = tl.load(base + source * WIDTH + at, mask=at < WIDTH)
        tl.store(base + target * WIDTH + at, value, mask=at < WIDTH)


@triton.jit
def read_rows(cache, slots, out, stride, v_offset, KV: tl.constexpr, HD: tl.constexpr, BLOCK: tl.constexpr):
    """Of each KV head its K, then its V: out[row * stride + (2 * head + part) * HD + i]."""
    row = tl.program_id(0)
    head = tl.program_id(1) // 2
    part = tl.program_id(1) % 2
    at = tl.arange(0, BLOCK)
    slot = tl.load(slots + row).to(tl.int64)
    value = tl.load(cache + part * v_offset + (slot * KV + head) * HD + at, mask=at < HD)
    tl.store(out + row * stride + (2 * head + part) * HD + at, value.to(tl.float32), mask=at < HD)
