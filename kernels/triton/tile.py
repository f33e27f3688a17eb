"""What the matmuls share: which tile a program has, and the loop over K.

The rows of W are the M side of the tensor core's instruction, the tokens its N side. So one output element is one chain
of sums over K, 16 by 16, in one accumulator, and has the same bits however many tokens stand beside it. Both operands
are read along K, which lies in 16-byte pieces in W and y alike, into shared memory, several blocks of K ahead.
"""

import triton
import triton.language as tl

from .low_bit import sliced_product, sliced_products


@triton.jit
def place():
    """(tile of outputs, tile of tokens). Neighbours in time share outputs: W is fetched once, and y stays in L2."""
    token_tiles = tl.num_programs(1)
    program = tl.program_id(0) + tl.program_id(1) * tl.num_programs(0)
    return program // token_tiles, program % token_tiles


@triton.jit
def rows_of(w, row, valid, k, K: tl.constexpr, ROWS: tl.constexpr, WHOLE: tl.constexpr, BLOCK_K: tl.constexpr):
    """W[row : row + ROWS, k : k + BLOCK_K]; 0 from row `valid` of the tile on (none if WHOLE) and beyond K."""
    i = tl.arange(0, ROWS)[:, None]
    at = k + tl.arange(0, BLOCK_K)[None, :]
    # 64 bits for the first row alone: V K may pass 2^31, ROWS K does not.
    from_here = w + row.to(tl.int64) * K + (i * K + at)
    if WHOLE and K % BLOCK_K == 0:
        return tl.load(from_here)
    elif WHOLE:
        return tl.load(from_here, mask=at < K, other=0.0)
    elif K % BLOCK_K == 0:
        return tl.load(from_here, mask=i < valid, other=0.0)
    else:
        return tl.load(from_here, mask=(i < valid) & (at < K), other=0.0)


@triton.jit
def tokens_of(y, first, n, k, K: tl.constexpr, TOKENS: tl.constexpr, BLOCK_K: tl.constexpr):
    """y[first : first + TOKENS, k : k + BLOCK_K], transposed; 0 from row n on and beyond K."""
    j = tl.arange(0, TOKENS)[None, :]
    at = k + tl.arange(0, BLOCK_K)[:, None]
    from_here = y + first.to(tl.int64) * K + (j * K + at)
    if K % BLOCK_K == 0:
        return tl.load(from_here, mask=first + j < n, other=0.0)
    else:
        return tl.load(from_here, mask=(first + j < n) & (at < K), other=0.0)


@triton.jit
def multiply(
    w, y, row, valid, first, n,
    K: tl.constexpr, ROWS: tl.constexpr, WHOLE: tl.constexpr, TOKENS: tl.constexpr, BLOCK_K: tl.constexpr,
    BITS: tl.constexpr,
):  # fmt: skip
    """W[row : row + ROWS] y[first : first + TOKENS]^T, [ROWS, TOKENS]. BITS: of weights that have few, or 0."""
    if BITS:
        return sliced_product(w, y, row, first, n, K, ROWS, TOKENS, BLOCK_K, BITS)
    else:
        acc = tl.zeros((ROWS, TOKENS), tl.float32)
        for k in range(0, K, BLOCK_K):
            a = rows_of(w, row, valid, k, K, ROWS, WHOLE, BLOCK_K)
            acc = tl.dot(a, tokens_of(y, first, n, k, K, TOKENS, BLOCK_K), acc, input_precision="ieee")
        return acc


@triton.jit
def multiply_pair(
    w, y, row, other_row, valid, first, n,
    K: tl.constexpr, ROWS: tl.constexpr, WHOLE: tl.constexpr, TOKENS: tl.constexpr, BLOCK_K: tl.constexpr,
    BITS: tl.constexpr,
):  # fmt: skip
    """The same of two tiles of W, that y is read for once."""
    if BITS:
        return sliced_products(w, y, row, other_row, first, n, K, ROWS, TOKENS, BLOCK_K, BITS)
    else:
        acc = tl.zeros((ROWS, TOKENS), tl.float32)
        other = tl.zeros((ROWS, TOKENS), tl.float32)
        for k in range(0, K, BLOCK_K):
            a = rows_of(w, row, valid, k, K, ROWS, WHOLE, BLOCK_K)
            b = rows_of(w, other_row, valid, k, K, ROWS, WHOLE, BLOCK_K)
            tokens = tokens_of(y, first, n, k, K, TOKENS, BLOCK_K)
            acc = tl.dot(a, tokens, acc, input_precision="ieee")
            other = tl.dot(b, tokens, other, input_precision="ieee")
        return acc, other
