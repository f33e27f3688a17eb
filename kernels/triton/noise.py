"""The Gumbel noise of noise.h, in f32: Philox4x32-10 of (seed, token / 4, stream, position), a word for each token."""

import triton
import triton.language as tl


@triton.jit
def minus_log(word):
    """-log((word + 1/2) / 2^32), to a few units in the last place of f32.

    Above 1/2 it is the distance x from 1 that f32 knows well: -log(1 - x) is taken as -log(y) x / (1 - y) with y the
    f32 nearest to 1 - x, which makes good what y has lost.
    """
    low = (word.to(tl.float32) + 0.5) * 2.0**-32
    x = ((0xFFFFFFFF - word).to(tl.float32) + 0.5) * 2.0**-32
    y = 1.0 - x
    lost = 1.0 - y
    near = tl.where(lost == 0.0, x, -tl.log(y) * (x / tl.where(lost == 0.0, 1.0, lost)))
    return tl.where(word < 0x80000000, -tl.log(low), near)


@triton.jit
def gumbel(seed, pos, stream, first_quad, BLOCK: tl.constexpr):
    """Noise of the BLOCK tokens from 4 first_quad on: four neighbours share what Philox returns."""
    quad = first_quad + tl.arange(0, BLOCK // 4)
    zero = tl.zeros_like(quad)
    w0, w1, w2, w3 = tl.philox(seed, quad, zero, zero + pos, zero + stream)
    word = tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))
    return -tl.log(minus_log(word))
