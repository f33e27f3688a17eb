"""Weights in 8, 4 or 3 bits, that drafts read: blocks of 16 rows and 128 columns, as kernels/cpu/layout.h lays fragments out.

A lane loads, in pieces of 16 bytes, what it multiplies: words become values without a move between lanes, as the lanes of
the loads are those of mma.sync's first operand. That rests on values being made of loads by joins and reshapes alone,
through which the compiler finds the layout; anything else costs speed, and no bit.
"""

import triton
import triton.language as tl


@triton.constexpr_function
def stored_rows(rows, bits):
    """Rows that a part of a matrix has in memory: panels of 32, where bits are few."""
    return (rows + 31) // 32 * 32 if bits else rows


@triton.constexpr_function
def block_words(bits):
    return 16 + 64 * bits


@triton.constexpr_function
def tile_words(K, bits):
    """Of 16 rows: their scales, then their blocks."""
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
def numbers(pairs, BITS: tl.constexpr, DT: tl.constexpr):
    """[.., 2]: codes less the one that stands for 0. A code is the end of a significand whose last place counts 1."""
    ZERO: tl.constexpr = 2 ** (BITS - 1)
    if DT == tl.float16:
        pairs |= 0x64006400
        return tl.join(pairs.to(tl.uint16), (pairs >> 16).to(tl.uint16)).to(DT, bitcast=True) - (1024.0 + ZERO)
    elif DT == tl.bfloat16 and BITS < 8:
        pairs |= 0x43004300
        return tl.join(pairs.to(tl.uint16), (pairs >> 16).to(tl.uint16)).to(DT, bitcast=True) - (128.0 + ZERO)
    else:
        both = tl.join(pairs & 0xFFFF, pairs >> 16) | 0x4B000000
        return (both.to(tl.float32, bitcast=True) - (8388608.0 + ZERO)).to(DT)


@triton.jit
def values_of(
    w, row, k,
    K: tl.constexpr, ROWS: tl.constexpr, BLOCK_K: tl.constexpr, BITS: tl.constexpr, DT: tl.constexpr,
):  # fmt: skip
    """W[row : row + ROWS, k : k + BLOCK_K] over the rows' scales, in y's dtype; 0 beyond K."""
    TILES: tl.constexpr = ROWS // 16
    BLOCKS: tl.constexpr = BLOCK_K // 128
    STRIDE: tl.constexpr = tile_words(K, BITS)
    SIZE: tl.constexpr = block_words(BITS)
    w += (row // 16).to(tl.int64) * STRIDE + 16
    p = tl.arange(0, TILES * BLOCKS)
    block = k // 128 + p % BLOCKS
    there = block * 128 < K
    at = p // BLOCKS * STRIDE + block * SIZE + 16
    if BITS == 3:
        low = plane(w, at, there, TILES * BLOCKS, 2)
        pairs = low | plane(w, at + 128, there, TILES * BLOCKS, 1) << 2
    else:
        pairs = plane(w, at, there, TILES * BLOCKS, BITS)
    # [.., row % 8, k % 16 / 4, k % 128 / 32, k % 32 / 16, k % 4 / 2, row % 16 / 8, k % 2] as [ROWS, BLOCK_K]
    numbered = tl.reshape(numbers(pairs, BITS, DT), (TILES, BLOCKS, 8, 4, 4, 2, 2, 2, 2))
    numbered = tl.reshape(tl.permute(numbered, (0, 7, 2, 1, 4, 5, 3, 6, 8)), (ROWS, BLOCK_K))

    i = tl.arange(0, ROWS)[:, None]
    block = k // 128 + tl.arange(0, BLOCKS)[None, :]
    four = tl.load(w + (i // 16 * STRIDE + block * SIZE + i % 16), mask=block * 128 < K, other=0)
    four = tl.join(tl.join(four << 24, four << 8), tl.join(four << 16, four)) >> 24
    scale = tl.reshape(four, (ROWS, BLOCKS * 4)).to(tl.float32).to(DT)[:, :, None]
    return numbered * tl.reshape(tl.broadcast_to(scale, (ROWS, BLOCKS * 4, 32)), (ROWS, BLOCK_K))


@triton.jit
def scale_of(w, row, K: tl.constexpr, ROWS: tl.constexpr, BITS: tl.constexpr):
    """[ROWS]: scales of rows."""
    i = tl.arange(0, ROWS)
    STRIDE: tl.constexpr = tile_words(K, BITS)
    return tl.load(w + (row // 16).to(tl.int64) * STRIDE + (i // 16 * STRIDE + i % 16)).to(tl.float32, bitcast=True)
