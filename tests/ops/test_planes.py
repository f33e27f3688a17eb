"""Float16 weights as two planes of bytes: the values and the bits of the plain layout from both, and the nearest of 3
significant bits from the upper one. Every pattern of 16 bits is tried."""

import numpy as np
import pytest
from swiftk._testing import ops

import reference as ref
from cases import DTYPES, EPS, SHAPES, tolerance
from op_data import causal_rows, normal, weight

ISAS = ops.isas()
ROWS = [1, 2, 5, 17, 33]
EVERY = np.arange(1 << 16, dtype=np.uint16)
FINITE = (EVERY & 0x7FFF) < 0x7C00

pytestmark = pytest.mark.parametrize("isa", ISAS)
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)
each_count = pytest.mark.parametrize("n", ROWS)


def upper_values(bits, highest=0x7B):
    """As drafts read them: sign, exponent and two more bits, rounded to nearest, halves up, never to infinity."""
    byte = np.minimum(((bits & 0x7FFF) + 128) >> 8, highest)
    exponent, fraction = byte >> 2, (byte & 3) / 4
    magnitude = np.where(exponent > 0, (1 + fraction) * 2.0 ** (exponent - 15.0), fraction * 2.0**-14)
    return np.copysign(magnitude, np.where(bits & 0x8000, -1.0, 1.0))


def planes(data, k):
    """Upper and lower bytes [panels, 32, columns] of a packed matrix."""
    lines = -(-k // 2)
    both = np.frombuffer(data, np.uint8).reshape(-1, 2, lines, 32, 2)
    return both.transpose(1, 0, 3, 2, 4).reshape(2, -1, 32, 2 * lines)


def read_one_by_one(kernels, w, dtype):
    """What a matmul makes of every weight [n, k], by rows of a unit matrix."""
    n, k = w.shape
    packed = kernels.pack([w], dtype)
    return kernels.residual(np.eye(k, dtype=np.float32), packed, np.zeros((k, n), np.float32)).T


@pytest.mark.parametrize("shape", [(1 << 16, 1), (1 << 8, 1 << 8)], ids=str)
def test_planes_hold_every_pattern(kernels, isa, shape):
    w = EVERY.reshape(shape)
    packed = kernels.pack([w.view(np.float16)], "planes")
    assert packed.data == kernels.pack([w.view(np.float16)], "upper").data
    upper, lower = planes(packed.data, shape[1])
    bits = ((upper.astype(np.int32) << 8) + lower - 128).astype(np.uint16)
    assert (bits.reshape(-1, bits.shape[-1])[:, : shape[1]] == w).all()
    if shape[1] % 2:
        assert (bits[..., -1] == 0x8000).all()


def test_every_pattern_reads_as_in_the_plain_layout(kernels, isa):
    """A column of them, so that no other weight is in a sum."""
    w = EVERY.reshape(-1, 1).view(np.float16)
    got, plain = (read_one_by_one(kernels, w, dtype) for dtype in ("planes", "float16"))
    assert got.tobytes() == plain.tobytes()
    assert (got[FINITE] == w[FINITE]).all()


def test_drafts_read_the_nearest_and_nothing_infinite(kernels, isa):
    pairs = isa in ("avx512bf16", "amx")  # bf16's exponents go further; but the instruction takes subnormals for zero
    got = read_one_by_one(kernels, EVERY.reshape(256, 256).view(np.float16), "upper").ravel()
    want = upper_values(EVERY, 0x7C if pairs else 0x7B)
    assert np.isfinite(got).all()
    if pairs:
        tiny = np.abs(want) < 2.0**-14
        assert (got[tiny] == 0).all()
        got[tiny] = want[tiny]
    assert (got == want)[FINITE].all()
    exact = EVERY[FINITE].view(np.float16).astype(np.float64)
    grid = np.unique(np.abs(want[FINITE]))
    nearest = np.abs(np.abs(exact)[:, None] - grid).min(1)
    assert (np.abs(got[FINITE] - exact) == nearest).all()
    assert (np.signbit(got[FINITE]) == np.signbit(exact))[got[FINITE] != 0].all()


def test_a_sum_that_vanished_keeps_its_sign(kernels, isa):
    """Odd columns are padded; what pads must not turn -0 into 0."""
    w = np.full((40, 3), 6e-8, np.float16)
    inp, x = np.full((1, 3), -1e-44, np.float32), np.full((1, 40), -0.0, np.float32)
    got, plain = (kernels.residual(inp, kernels.pack([w], dtype), x) for dtype in ("planes", "float16"))
    assert np.signbit(plain).all() == (isa != "baseline")  # which rounds products before it adds
    assert got.tobytes() == plain.tobytes()


@each_shape
@each_count
@pytest.mark.parametrize("source", DTYPES)
def test_matmuls_have_the_bits_of_the_plain_layout(kernels, shape, n, source, isa, rng):
    s = shape
    dtypes = ("planes", "float16")
    for op, down in (("o_proj", False), ("down", True)):
        rows, columns = s.matrix(op)
        w, bias = weight(rng, rows, columns, source), normal(rng, rows) if s.bias else None
        x, inp = normal(rng, n, rows), normal(rng, n, columns)
        got, plain = (kernels.residual(inp, kernels.pack([w], t, bias=bias), x, down) for t in dtypes)
        assert got.tobytes() == plain.tobytes()
    x, norm = normal(rng, n, s.D), normal(rng, s.D)
    parts = [weight(rng, s.F, s.D, source) for _ in range(2)]
    packed = [kernels.pack(parts, t, group=32, interleave=True) for t in dtypes]
    got, plain = (kernels.gate_up(x, norm, EPS, p) for p in packed)
    assert got.tobytes() == plain.tobytes()
    head = weight(rng, s.V, s.D, source)
    got, plain = (kernels.lm_head(x, norm, EPS, kernels.pack([head], t)) for t in dtypes)
    assert got.tobytes() == plain.tobytes()
    parts = [weight(rng, heads * s.d, s.D, source) for heads in (s.H, s.n_kv, s.n_kv)]
    found = []
    for t in dtypes:
        cache = kernels.cache(s.n_kv, s.d, n, "float16")
        w = kernels.pack(parts, t, group=s.d)
        q = kernels.qkv(x, norm, EPS, w, causal_rows(np.arange(n), s.d), cache, s.H)
        found.append((q.tobytes(), cache.data))
    assert found[0] == found[1]


@each_shape
@each_count
def test_upper_against_the_oracle(kernels, shape, n, isa, rng):
    rows, columns = shape.matrix("down")
    w = weight(rng, rows, columns, "float16")
    x, inp = normal(rng, n, rows), normal(rng, n, columns)
    packed = kernels.pack([w], "upper")
    got, kept = kernels.residual(inp, packed, x, True), upper_values(w.view(np.uint16))
    want = ref.residual(x, inp, kept)
    assert np.abs(got - want).max() <= tolerance("bfloat16", isa) * max(np.sqrt((want * want).mean()), 1e-3)
    alone = np.concatenate([kernels.residual(inp[i : i + 1], packed, x[i : i + 1], True) for i in range(n)])
    assert got.tobytes() == alone.tobytes()


def test_upper_loses_a_twentieth(kernels, isa, rng):
    """Between what int8 (0.5 %) and int4 (8 %) lose of normal weights."""
    w = weight(rng, 64, 256, "float32")
    kept = read_one_by_one(kernels, w, "upper")
    assert np.sqrt(((kept - w) ** 2).mean() / (w * w).mean()) < 0.055


def test_bytes(kernels, isa, rng):
    w = weight(rng, 96, 2048, "float16")
    assert kernels.pack([w], "planes").bytes == kernels.pack([w], "float16").bytes == w.nbytes


@pytest.mark.parametrize("form", ["planes", "upper"])
def test_a_cache_is_not_in_planes(kernels, isa, form):
    with pytest.raises(ValueError, match=form):
        kernels.cache(1, 8, 4, form)
