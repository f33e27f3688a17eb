"""Weights in 8, 4 or 3 bits, that drafts read: blocks of 16 rows and 128 columns, fragments of kernels/cpu/layout.h.

A lane loads, in pieces of 16 bytes, what it multiplies: words become values without a move between lanes, as the lanes
of the loads are those of mma.sync's first operand. That rests on values being made of loads by joins, reshapes and
arithmetic alone, through which the compiler finds the layout; anything else costs speed, and no bit.

Making values costs more than loading them, so a program has four warps, each with a quarter of K: a slice.
"""

import triton
import triton.language as tl

SLICES = tl.constexpr(4)


@triton.constexpr_function
def stored_rows(rows, bits):
    """Rows that a part of a matrix has in memory: panels of 32, where bits are few."""
    return (rows + 31) // 32 * 32 if bits else rows


@triton.constexpr_function
def slice_blocks(K):
    """Blocks of a slice; the last slices may lack some."""
    return ((K + 127) // 128 + SLICES.value - 1) // SLICES.value


@triton.constexpr_function
def block_words(bits):
    return 16 + 64 * bits


@triton.constexpr_function
def tile_words(K, bits):
    """Words of 16 rows: their scales, then their blocks."""
    return 16 + (K + 127) // 128 * block_words(bits)


@triton.jit
def words_of(w, at, there, N: tl.constexpr, WORDS: tl.constexpr):
    """A plane of N blocks, [N, 32, WORDS]: the words of each lane."""
    NEAR: tl.constexpr = min(WORDS, 4)
    words = tl.load(w + (at[:, None] + tl.arange(0, 32 * WORDS)[None, :]), mask=there[:, None], other=0)
    words = tl.permute(tl.reshape(words, (N, WORDS // NEAR, 32, NEAR)), (0, 2, 1, 3))
    return tl.reshape(words, (N, 32, WORDS))


@triton.jit
def spread(words, BITS: tl.constexpr, STEP: tl.constexpr, COUNT: tl.constexpr):
    """[.., COUNT]: of each word, the pairs of BITS bits at 0, STEP, 2 STEP, ..."""
    if COUNT == 1:
        return (words & ((2**BITS - 1) * 0x10001))[:, :, :, None]
    else:
        even = spread(words, BITS, 2 * STEP, COUNT // 2)
        odd = spread(words >> STEP, BITS, 2 * STEP, COUNT // 2)
        return tl.reshape(tl.join(even, odd), (words.shape[0], words.shape[1], words.shape[2], COUNT))


@triton.jit
def plane(w, at, there, N: tl.constexpr, BITS: tl.constexpr):
    """[N, 32, 32]: the pairs of each lane."""
    return tl.reshape(spread(words_of(w, at, there, N, 2 * BITS), BITS, BITS, 16 // BITS), (N, 32, 32))


@triton.jit
def numbers(pairs, zero, BITS: tl.constexpr, DT: tl.constexpr):
    """[.., 2]: codes less the one that stands for 0. A code is the end of a significand whose last place counts 1.

    zero: 0, unknown to the compiler. With two constants, a mask and an exponent are two instructions instead of one.
    """
    ZERO: tl.constexpr = 2 ** (BITS - 1)
    if DT.is_fp16():
        pairs |= 0x64006400 | zero
        return tl.join(pairs.to(tl.uint16), (pairs >> 16).to(tl.uint16)).to(DT, bitcast=True) - (1024.0 + ZERO)
    elif DT.is_bf16() and BITS < 8:
        pairs |= 0x43004300 | zero
        return tl.join(pairs.to(tl.uint16), (pairs >> 16).to(tl.uint16)).to(DT, bitcast=True) - (128.0 + ZERO)
    else:
        both = tl.join(pairs & 0xFFFF, pairs >> 16) | 0x4B000000
        return (both.to(tl.float32, bitcast=True) - (8388608.0 + ZERO)).to(DT)


@triton.jit
def values_of(
    w, row, k, zero,
    K: tl.constexpr, ROWS: tl.constexpr, BLOCK_K: tl.constexpr, BITS: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """[SLICES, ROWS, BLOCK_K]: rows of W from column k of each slice on, over the rows' scales; 0 beyond K."""
    TILES: tl.constexpr = ROWS // 16
    BLOCKS: tl.constexpr = BLOCK_K // 128
    N: tl.constexpr = SLICES * TILES * BLOCKS
    STRIDE: tl.constexpr = tile_words(K, BITS)
    SIZE: tl.constexpr = block_words(BITS)
    w += (row // 16).to(tl.int64) * STRIDE + 16
    p = tl.arange(0, N)
    within = k // 128 + p % BLOCKS
    block = p // (TILES * BLOCKS) * slice_blocks(K) + within
    there = (within < slice_blocks(K)) & (block * 128 < K)
    at = p // BLOCKS % TILES * STRIDE + block * SIZE + 16
    if BITS == 3:
        low = plane(w, at, there, N, 2)
        pairs = low | plane(w, at + 128, there, N, 1) << 2
    else:
        pairs = plane(w, at, there, N, BITS)
    # [.., row % 8, k % 16 / 4, k % 128 / 32, k % 32 / 16, k % 4 / 2, row % 16 / 8, k % 2] as [.., ROWS, BLOCK_K]
    numbered = tl.reshape(numbers(pairs, zero, BITS, DT), (SLICES, TILES, BLOCKS, 8, 4, 4, 2, 2, 2, 2))
    numbered = tl.reshape(tl.permute(numbered, (0, 1, 8, 3, 2, 5, 6, 4, 7, 9)), (SLICES, ROWS, BLOCK_K))

    i = tl.arange(0, ROWS)[None, :, None]
    within = k // 128 + tl.arange(0, BLOCKS)[None, None, :]
    block = tl.arange(0, SLICES)[:, None, None] * slice_blocks(K) + within
    there = (within < slice_blocks(K)) & (block * 128 < K)
    four = tl.load(w + (i // 16 * STRIDE + block * SIZE + i % 16), mask=there, other=0)
    four = tl.join(tl.join(four << 24, four << 8), tl.join(four << 16, four)) >> 24
    scale = tl.reshape(four, (SLICES, ROWS, BLOCKS * 4)).to(tl.float32).to(DT)[:, :, :, None]
    return numbered * tl.reshape(tl.broadcast_to(scale, (SLICES, ROWS, BLOCKS * 4, 32)), (SLICES, ROWS, BLOCK_K))


@triton.jit
def sliced_tokens(y, first, n, k, K: tl.constexpr, TOKENS: tl.constexpr, BLOCK_K: tl.constexpr):
    """[SLICES, BLOCK_K, TOKENS] of y, from column k of each slice on; 0 from row n on and beyond K."""
    j = tl.arange(0, TOKENS)[None, None, :]
    within = k + tl.arange(0, BLOCK_K)[None, :, None]
    at = tl.arange(0, SLICES)[:, None, None] * (slice_blocks(K) * 128) + within
    there = (first + j < n) & (within < slice_blocks(K) * 128) & (at < K)
    return tl.load(y + first.to(tl.int64) * K + (j * K + at), mask=there, other=0.0)


@triton.jit
def finished(acc, w, row, K: tl.constexpr, ROWS: tl.constexpr, TOKENS: tl.constexpr, BITS: tl.constexpr):
    """The sum of all slices, (0 + 2) + (1 + 3), times the rows' scales."""
    low, high = tl.split(tl.permute(tl.reshape(acc, (2, 2, ROWS, TOKENS)), (1, 2, 3, 0)))
    even, odd = tl.split(tl.permute(low + high, (1, 2, 0)))
    i = tl.arange(0, ROWS)
    STRIDE: tl.constexpr = tile_words(K, BITS)
    scale = tl.load(w + (row // 16).to(tl.int64) * STRIDE + (i // 16 * STRIDE + i % 16))
    return (even + odd) * scale.to(tl.float32, bitcast=True)[:, None]


@triton.jit
def sliced_product(
    w, y, row, first, n,
    K: tl.constexpr, ROWS: tl.constexpr, TOKENS: tl.constexpr, BLOCK_K: tl.constexpr, BITS: tl.constexpr,
):  # fmt: skip
    """As multiply of tile.py, each slice in a chain of sums of its own."""
    acc = tl.zeros((SLICES, ROWS, TOKENS), tl.float32)
    for k in range(0, slice_blocks(K) * 128, BLOCK_K):
        a = values_of(w, row, k, n >> 31, K, ROWS, BLOCK_K, BITS, y.dtype.element_ty)
        acc = tl.dot(a, sliced_tokens(y, first, n, k, K, TOKENS, BLOCK_K), acc, input_precision="ieee")
    return finished(acc, w, row, K, ROWS, TOKENS, BITS)


@triton.jit
def sliced_products(
    w, y, row, other_row, first, n,
    K: tl.constexpr, ROWS: tl.constexpr, TOKENS: tl.constexpr, BLOCK_K: tl.constexpr, BITS: tl.constexpr,
):  # fmt: skip
    acc = tl.zeros((SLICES, ROWS, TOKENS), tl.float32)
    other = tl.zeros((SLICES, ROWS, TOKENS), tl.float32)
    for k in range(0, slice_blocks(K) * 128, BLOCK_K):
        a = values_of(w, row, k, n >> 31, K, ROWS, BLOCK_K, BITS, y.dtype.element_ty)
        b = values_of(w, other_row, k, n >> 31, K, ROWS, BLOCK_K, BITS, y.dtype.element_ty)
        tokens = sliced_tokens(y, first, n, k, K, TOKENS, BLOCK_K)
        acc = tl.dot(a, tokens, acc, input_precision="ieee")
        other = tl.dot(b, tokens, other, input_precision="ieee")
    return finished(acc, w, row, K, ROWS, TOKENS, BITS), finished(other, w, other_row, K, ROWS, TOKENS, BITS)
