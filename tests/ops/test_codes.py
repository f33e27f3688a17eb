"""Matmuls of blocks as files have them: by their definition, bit for bit, on every instruction set that fuses."""

import numpy as np
import pytest
from swiftk._testing import ops

from gguf_files import BLOCKS, dequantised, random_blocks
from op_data import angles, causal_rows, normal

pytest.importorskip("gguf")
FORMATS = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]
# Of a code that means zero; None: there are minima.
ZEROS = {"Q8_0": 0, "Q4_0": 8, "Q4_1": None, "Q5_0": 16, "Q5_1": None, "Q4_K": None, "Q5_K": None, "Q6_K": 32}
# The bytes of a block that are codes; those of their low bits last, but in Q6_K.
CODES = {
    "Q8_0": [(2, 34)],
    "Q4_0": [(2, 18)],
    "Q4_1": [(4, 20)],
    "Q5_0": [(2, 6), (6, 22)],
    "Q5_1": [(4, 8), (8, 24)],
    "Q4_K": [(16, 144)],
    "Q5_K": [(16, 48), (48, 176)],
    "Q6_K": [(0, 128), (128, 192)],
}
GROUP = 32
ISAS = ops.isas()
FUSED = [isa for isa in ISAS if isa != "baseline"]
f32 = np.float32

each_isa = pytest.mark.parametrize("isa", ISAS)
each_format = pytest.mark.parametrize("encoding", FORMATS)


def blocks(rng, encoding, rows, k):
    data = random_blocks(encoding, rows, k, rng, 4e-4 if encoding == "Q6_K" else 0.02)
    return np.frombuffer(data, np.uint8).reshape(rows, -1).copy()


def values(encoding, data, k):
    return dequantised(encoding, data.tobytes(), k)


def scales_of(encoding, data, k):
    """Scales and minima or None, [rows, k / 16] each: what the gguf package makes of the blocks with other codes."""

    def decoded(nibbles, without_minima=False):
        out = data.reshape(-1, BLOCKS[encoding][1]).copy()
        for first, last in CODES[encoding]:
            out[:, first:last] = 0
        first, last = CODES[encoding][-1] if encoding != "Q6_K" else CODES[encoding][0]
        out[:, first:last] = nibbles
        if without_minima:
            out[:, 2:4] = 0
        return values(encoding, out.reshape(len(data), -1), k)[:, ::16]

    zero = ZEROS[encoding]
    if zero is None:
        return decoded(0x11, True), decoded(0)
    return (decoded(1) if zero == 0 else decoded(0) / f32(-zero)), None


def as_bytes(x):
    """Bytes [n, groups, 32] and scales [n, groups] of activations."""
    groups = x.reshape(len(x), -1, GROUP)
    most = np.abs(groups).max(-1)
    inverse = np.where(most > 0, f32(127) / np.where(most > 0, most, f32(1)), f32(0))
    return np.rint(groups * inverse[..., None]).astype(np.int64), most * f32(1 / 127)


def fused(a, b, c):
    """a b + c rounded once to float32: products are exact in float64, and sums all but always."""
    return (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(f32)


def by_definition(encoding, data, x):
    """[n, rows]: one chain of float32 over groups."""
    k = x.shape[1]
    d, m = scales_of(encoding, data, k)
    w = values(encoding, data, k)
    codes = w - np.repeat(m, 16, 1) if m is not None else w
    t, scale = as_bytes(x)
    acc = np.zeros((len(x), len(data)), f32)
    # Codes from what was decoded: exact but for minima, whose sum was rounded once.
    steps = np.repeat(d.astype(np.float64), 16, 1)
    codes = np.rint(np.divide(codes, steps, where=steps != 0, out=np.zeros_like(steps))).astype(np.int64)
    parts = 2 if encoding == "Q6_K" else 1
    for g in range(k // GROUP):
        for part in range(parts):
            at = slice(part * 16, 16 * (part + 1) if parts == 2 else GROUP)
            sums = t[:, g, at] @ codes[:, g * GROUP : (g + 1) * GROUP][:, at].T
            both = scale[:, g, None] * d[None, :, 2 * g + part]
            acc = fused(sums.astype(f32), both, acc)
        if m is not None:
            total = scale[:, g] * t[:, g].sum(-1).astype(f32)
            acc = fused(np.broadcast_to(m[None, :, 2 * g], acc.shape), total[:, None], acc)
    return acc


def pack(kernels, encoding, data, **layout):
    return kernels.pack([data], encoding.lower(), **layout)


def product(kernels, encoding, data, x):
    return kernels.residual(x, pack(kernels, encoding, data), np.zeros((len(x), len(data)), f32))


@pytest.mark.parametrize("isa", FUSED)
@each_format
@pytest.mark.parametrize("n", [1, 2, 5, 12, 17, 33])
def test_the_definition_bit_for_bit(kernels, encoding, n, isa, rng):
    for rows, k in [(75, 768), (16, 256)] + ([(33, 96), (40, 288)] if BLOCKS[encoding][0] == GROUP else []):
        data, x = blocks(rng, encoding, rows, k), normal(rng, n, k) ** 3
        got = product(kernels, encoding, data, x)
        np.testing.assert_array_equal(got, by_definition(encoding, data, x))


@each_isa
@each_format
def test_close_to_the_product_of_what_is_decoded(kernels, encoding, isa, rng):
    """Activations that are bytes lose nothing; others half a step at most."""
    data, k = blocks(rng, encoding, 70, 512), 512
    w = values(encoding, data, k).astype(np.float64)
    whole = rng.integers(-127, 128, (5, k)).astype(f32)
    whole[:, ::GROUP] = 127
    want = whole @ w.T
    assert np.abs(product(kernels, encoding, data, whole) - want).max() <= 4e-6 * np.sqrt((want * want).mean())
    x = normal(rng, 5, k)
    half_step = np.repeat(np.abs(x.reshape(5, -1, GROUP)).max(-1) / 254, GROUP, 1)
    assert (np.abs(product(kernels, encoding, data, x) - x @ w.T) <= half_step @ np.abs(w).T * (1 + 1e-4)).all()


@each_isa
@each_format
def test_all_matmuls_read_it(kernels, encoding, isa, rng):
    """Those of q, k and v and of gate and up in several formats at once."""
    d, heads, n_kv, k, n = 24, 4, 2, 256, 7
    x, one, pos = normal(rng, n, k), np.ones(k, f32), np.arange(n)
    normed = kernels.rmsnorm(x, one, 1e-5, k)

    def matrix(rows, name):
        data = blocks(rng, name, rows, k)
        return pack(kernels, name, data, group=d), product(kernels, name, data, normed)

    (q, of_q), (k_, _), (v, of_v) = (
        matrix(size * d, name) for size, name in ((heads, encoding), (n_kv, encoding), (n_kv, "Q6_K"))
    )
    cache, rows = kernels.cache(n_kv, d, n, "float32"), causal_rows(pos, d)
    got = kernels.qkv(x, one, 1e-5, kernels.join([q, k_, v]), rows, cache, heads)
    cos, sin = (np.repeat(a[:, None], heads, 1) for a in angles(pos, d))
    first, second = np.split(of_q.reshape(n, heads, d), 2, -1)
    want = np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
    newest = kernels.attention(got, rows, cache, 1, 1.0)
    np.testing.assert_allclose(newest[:, ::2].reshape(n, -1), of_v, rtol=1e-6, atol=1e-6)

    d = 0
    (gate, g), (up, u) = matrix(70, encoding), matrix(70, "Q8_0")
    got = kernels.gate_up(x, one, 1e-5, kernels.join([gate, up]))
    g = g.astype(np.float64)
    np.testing.assert_allclose(got, g / (1 + np.exp(-g)) * u, rtol=2e-5, atol=2e-5)
    head, logits = matrix(45, encoding)
    np.testing.assert_allclose(kernels.lm_head(x, one, 1e-5, head), logits, rtol=2e-5, atol=1e-5)


@each_format
@pytest.mark.skipif(len(FUSED) < 2, reason="this machine has one instruction set that fuses")
def test_instruction_sets_agree(encoding, rng):
    """Panels and products."""
    data, x = blocks(rng, encoding, 100, 1024), normal(rng, 13, 1024)
    found = set()
    for isa in FUSED:
        for threads in (1, 3):
            kernels = ops.Kernels(isa, threads)
            panels = pack(kernels, encoding, data).data
            found.add((panels, product(kernels, encoding, data, x).tobytes()))
    assert len(found) == 1


@each_format
def test_panels_take_what_the_file_takes(encoding, rng):
    """K-quants have bytes for six bits, and room beside a scale for a second one."""
    data = blocks(rng, encoding, 96, 2048)
    packed = pack(ops.Kernels("", 2), encoding, data)
    assert data.size <= packed.bytes <= 1.03 * data.size


@each_isa
@each_format
@pytest.mark.parametrize("sign", [1, -1])
def test_sums_of_extreme_bytes_do_not_overflow(kernels, encoding, isa, sign, rng):
    """The largest and the least code everywhere, times 127."""
    elements, size, halves = BLOCKS[encoding]
    data = np.empty((64, 2 * size), np.uint8)
    data[:32], data[32:] = [[0x7F], [0x80]] if encoding == "Q8_0" else [[0xFF], [0]]
    for row in data.reshape(-1, size):
        for at in halves:
            row[at : at + 2] = np.frombuffer(f32(0.5).astype(np.float16).tobytes(), np.uint8)
    if encoding == "Q6_K":
        data.reshape(-1, size)[:, 192:208] = 0x7F
    x = np.full((3, 2 * elements), sign * 127, f32)
    got = product(kernels, encoding, data, x)
    want = x.astype(np.float64) @ values(encoding, data, 2 * elements).T
    np.testing.assert_allclose(got, want, rtol=2e-6)


@each_isa
@each_format
def test_a_bad_scale_stays_in_its_row_and_a_bad_activation_in_its_own(kernels, encoding, isa, rng):
    data, x = blocks(rng, encoding, 50, 512), normal(rng, 3, 512)
    clean = product(kernels, encoding, data, x)
    at = BLOCKS[encoding][2][0]
    data[11, at : at + 2] = 0xFF  # NaN
    got = product(kernels, encoding, data, x)
    others = np.arange(50) != 11
    assert np.isnan(got[:, 11]).all() and got[:, others].tobytes() == clean[:, others].tobytes()
    data[11] = data[12]
    x[1, 40] = np.inf
    got = product(kernels, encoding, data, x)
    assert np.isnan(got[1]).all() and np.isfinite(got[[0, 2]]).all()


@each_isa
@each_format
def test_zeros_and_rows_after_the_last(kernels, encoding, isa, rng):
    data, x = blocks(rng, encoding, 19, 256), normal(rng, 2, 256)
    for at in BLOCKS[encoding][2]:
        data[7].reshape(-1, BLOCKS[encoding][1])[:, at : at + 2] = 0
    x[1] = 0
    got = product(kernels, encoding, data, x)
    assert not got[:, 7].any() and not got[1].any() and got[0].any()


def kept(kernels, packed, rows, k):
    """The matrix [rows, k] that a packed one means, by products with single inputs."""
    x = 127 * np.eye(k, dtype=f32)
    return (kernels.residual(x, packed, np.zeros((k, rows), f32)).T / 127).astype(f32)


# Of weights from a normal distribution, the error's share of their root mean square: about what llama.cpp's have.
LOSS = {"Q8_0": 0.0056, "Q4_0": 0.085, "Q4_1": 0.075, "Q5_0": 0.042, "Q5_1": 0.037}
LOSS |= {"Q4_K": 0.075, "Q5_K": 0.037, "Q6_K": 0.019}


@each_isa
@each_format
@pytest.mark.parametrize("shape", [(70, 512), (33, 330)], ids=str)
def test_weights_in_more_bits_are_rounded(kernels, encoding, isa, shape, rng):
    w = normal(rng, *shape)
    w[5] = 0
    w[6] = np.abs(w[6])  # minima of 0
    found = kept(kernels, kernels.pack([w], encoding.lower()), *shape)
    assert np.sqrt(((found - w) ** 2).sum() / (w * w).sum()) <= LOSS[encoding]
    assert not found[5].any()
    alone = kept(kernels, kernels.pack([w[7:8]], encoding.lower()), 1, shape[1])
    np.testing.assert_array_equal(alone[0], found[7])


@pytest.mark.parametrize("encoding", ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_searching_loses_about_no_more_than_the_gguf_package(encoding, rng):
    from gguf import GGMLQuantizationType, quants

    kernels, w = ops.Kernels("", 2), normal(rng, 64, 512) ** 3
    theirs = values(encoding, quants.quantize(w, GGMLQuantizationType[encoding]), 512)
    found = kept(kernels, kernels.pack([w], encoding.lower()), *w.shape)
    assert ((found - w) ** 2).sum() <= 1.02 * ((theirs - w) ** 2).sum()


@each_isa
@each_format
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_bad_weight_stays_in_its_row(kernels, encoding, isa, bad, rng):
    w, x = normal(rng, 50, 256), normal(rng, 3, 256)
    clean = kernels.residual(x, kernels.pack([w], encoding.lower()), np.zeros((3, 50), f32))
    w[11, 40] = bad
    got = kernels.residual(x, kernels.pack([w], encoding.lower()), np.zeros((3, 50), f32))
    others = np.arange(50) != 11
    assert not np.isfinite(got[:, 11]).any() and got[:, others].tobytes() == clean[:, others].tobytes()
