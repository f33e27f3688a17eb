"""Low-bit weights: what packing keeps of them, and every matmul on them against the oracle on the unpacked rows."""

import numpy as np
import pytest
from swiftk._testing import ops

import reference as ref
from cases import DTYPES, EPS, LOW_BIT, LOW_BIT_LOSS, LOW_BIT_TOLERANCE, SHAPES
from low_bit import GROUP, HALF, as_bytes, parts, unpack
from op_data import angles, causal_rows, normal, weight

ISAS = ops.isas()
ROWS = [1, 2, 5, 12, 17, 33]

each_isa = pytest.mark.parametrize("isa", ISAS)
each_dtype = pytest.mark.parametrize("dtype", LOW_BIT)
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)
each_count = pytest.mark.parametrize("n", ROWS)


def groups_of(x, fill=0.0):
    """[..., k] as [..., groups, 32]."""
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % GROUP)], constant_values=fill)
    return padded.reshape(*x.shape[:-1], -1, GROUP)


def whole(rng, n, k):
    """Activations that bytes hold exactly: no rounding in another order can turn into another byte."""
    x = groups_of(rng.integers(-127, 128, (n, k)).astype(np.float32))
    x[..., 0] = 127 * rng.choice([-1, 1], x.shape[:-1])
    return (x * 2.0 ** rng.integers(-9, -4, (*x.shape[:-1], 1))).reshape(n, -1)[:, :k].astype(np.float32)


def steady(rng, k):
    """Norm weights that differ from group to group only."""
    return np.repeat(normal(rng, -(-k // GROUP)) + 2, GROUP)[:k]


def assert_close(got, want, tolerance=LOW_BIT_TOLERANCE):
    error = np.abs(got - want).max() / max(np.sqrt((want * want).mean()), 1e-3)
    assert error <= tolerance, f"largest error {error:.3g}"


@each_isa
@each_dtype
@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("shape", [(32, 32), (101, 67), (70, 513)], ids=str)
def test_packing_keeps_what_the_bits_allow(kernels, dtype, source, shape, isa, rng):
    w = weight(rng, *shape, source)
    packed = kernels.pack([w], dtype)
    (kept,) = parts(packed.data, dtype, shape[1], [shape[0]])
    w = ref.value(w)
    assert np.sqrt(((kept - w) ** 2).sum() / (w * w).sum()) <= LOW_BIT_LOSS[dtype]


@each_isa
@each_dtype
def test_packing_rounds_to_the_nearest_code_and_beats_a_fixed_scale(kernels, dtype, isa, rng):
    zero, shape = 1 << (LOW_BIT[dtype] - 1), (64, 320)
    w = normal(rng, *shape)
    (kept,) = parts(kernels.pack([w], dtype).data, dtype, shape[1], [shape[0]])
    w, kept = groups_of(w.astype(np.float64)), groups_of(kept)
    step = np.abs(np.diff(np.sort(kept))).reshape(*w.shape[:-1], -1)
    step = np.where(step > 1e-9, step, np.inf).min(-1, keepdims=True)  # between neighbouring codes, where both occur
    inside = (w <= kept.max(-1, keepdims=True)) & (w >= kept.min(-1, keepdims=True))
    assert (np.abs(w - kept)[inside] <= (step / 2 * (1 + 1e-5) * np.ones_like(w))[inside]).all()
    fixed = np.abs(w).max(-1, keepdims=True) / (zero - 1)
    plain = np.rint(w / fixed) * fixed
    gain = {"int8": 0.98, "int4": 0.88, "int3": 0.76}[dtype]
    assert ((kept - w) ** 2).sum() <= gain**2 * ((plain - w) ** 2).sum()


@each_isa
@each_dtype
def test_memory_and_threads(isa, dtype, rng):
    """Scales cost a quarter of a bit; bytes are the same however many threads pack."""
    w = weight(rng, 96, 2048, "bfloat16")
    one, other = (ops.Kernels(isa, threads).pack([w], dtype) for threads in (1, 3))
    assert one.data == other.data
    assert one.bytes * 8 == w.size * (LOW_BIT[dtype] + 0.25 + 32 / 2048)


@each_shape
@each_count
@each_dtype
@each_isa
def test_residual(kernels, shape, n, dtype, isa, rng):
    for op, down in (("o_proj", False), ("down", True)):
        rows, columns = shape.matrix(op)
        bias = normal(rng, rows) if shape.bias else None
        packed = kernels.pack([weight(rng, rows, columns, "float16")], dtype, bias=bias)
        (w,) = parts(packed.data, dtype, columns, [rows])
        x, inp = normal(rng, n, rows), whole(rng, n, columns)
        assert_close(kernels.residual(inp, packed, x, down), ref.residual(x, inp, w, bias))


@each_shape
@each_count
@each_dtype
@each_isa
def test_gate_up(kernels, shape, n, dtype, isa, rng):
    bias, turns = None, None
    if shape.bias:
        bias = normal(rng, 2 * shape.F)
        pieces = [part[i : i + 32] for i in range(0, shape.F, 32) for part in (bias[: shape.F], bias[shape.F :])]
        turns = np.concatenate(pieces)
    sources = [weight(rng, shape.F, shape.D, "bfloat16") for _ in range(2)]
    packed = kernels.pack(sources, dtype, group=32, interleave=True, bias=turns)
    gate, up = parts(packed.data, dtype, shape.D, [shape.F] * 2, group=32, interleave=True)
    x, norm = whole(rng, n, shape.D), steady(rng, shape.D)
    want = ref.gate_up(x, norm, EPS, gate, up, bias)
    assert_close(kernels.gate_up(x, norm, EPS, packed), want, 4 * LOW_BIT_TOLERANCE)


@each_shape
@each_count
@each_dtype
@each_isa
def test_lm_head(kernels, shape, n, dtype, isa, rng):
    packed = kernels.pack([weight(rng, shape.V, shape.D, "float32")], dtype)
    (w,) = parts(packed.data, dtype, shape.D, [shape.V])
    x, norm = whole(rng, n, shape.D), steady(rng, shape.D)
    assert_close(kernels.lm_head(x, norm, EPS, packed), ref.lm_head(x, norm, EPS, w))


@each_shape
@each_count
@each_dtype
@each_isa
def test_qkv(kernels, shape, n, dtype, isa, rng):
    """q directly; v through attention that sees one key."""
    s = shape
    sizes = [heads * s.d for heads in (s.H, s.n_kv, s.n_kv)]
    bias = normal(rng, sum(sizes)) if s.bias else None
    norms = (normal(rng, s.d), normal(rng, s.d)) if s.qk_norm else (None, None)
    packed = kernels.pack([weight(rng, r, s.D, "bfloat16") for r in sizes], dtype, group=s.d, bias=bias)
    matrices = parts(packed.data, dtype, s.D, sizes, group=s.d)
    x, norm, pos = whole(rng, n, s.D), steady(rng, s.D), np.arange(3, 3 + n)
    cache, rows = kernels.cache(s.n_kv, s.d, 3 + n, "float32"), causal_rows(pos, s.d)
    q = kernels.qkv(x, norm, EPS, packed, rows, cache, s.H, *norms)
    want, _, v = ref.qkv(x, norm, EPS, *matrices, s.d, *angles(pos, s.d), bias, *norms)
    assert_close(q, want, 4 * LOW_BIT_TOLERANCE)
    alone = kernels.attention(q, rows, cache, 1, 1.0)
    assert_close(alone, np.repeat(v, s.H // s.n_kv, axis=1), 4 * LOW_BIT_TOLERANCE)


@each_isa
@each_dtype
def test_ordinary_activations_lose_half_a_byte_step_at_most(kernels, dtype, isa, rng):
    n, rows, k = 9, 75, 333
    packed = kernels.pack([weight(rng, rows, k, "bfloat16")], dtype)
    (w,) = parts(packed.data, dtype, k, [rows])
    inp, x = normal(rng, n, k) ** 3, np.zeros((n, rows), np.float32)
    got = kernels.residual(inp, packed, x)
    half_step = np.abs(groups_of(inp)).max(-1) / 254
    bound = half_step @ np.abs(groups_of(w)).sum(-1).T
    assert (np.abs(got - ref.residual(x, inp, w)) <= bound * (1 + 1e-4) + 1e-5).all()
    loss = np.abs(got - ref.residual(x, as_bytes(inp), w)).max()
    assert loss <= bound.max() / 8  # all but a byte or two are the oracle's


@each_isa
@each_dtype
def test_sums_of_extreme_bytes_do_not_overflow(kernels, dtype, isa):
    """The highest code everywhere but at one place, times 127: the largest sum there is; and its negative."""
    zero, k = 1 << (LOW_BIT[dtype] - 1), 96
    w = np.full((40, k), (zero - 1) / zero, np.float32)
    w[:, ::GROUP] = -1
    packed = kernels.pack([np.concatenate([w, -w])], dtype)
    (kept,) = parts(packed.data, dtype, k, [80])
    for sign in (1, -1):
        x = np.full((3, k), sign * 127.0, np.float32)
        got = kernels.residual(x, packed, np.zeros((3, 80), np.float32))
        np.testing.assert_allclose(got, x.astype(np.float64) @ kept.T, rtol=1e-6)


@each_dtype
@pytest.mark.skipif(not {"avx512", "avx512bf16"} <= set(ISAS), reason="this machine has no two vectors of one width")
def test_instructions_agree(dtype, rng):
    """With and without the instruction for bytes: the same panels and the same bits."""
    w, x, norm = weight(rng, 100, 700, "bfloat16"), normal(rng, 13, 700), normal(rng, 700)
    outs = []
    for isa in ("avx512", "avx512bf16"):
        kernels = ops.Kernels(isa, 2)
        packed = kernels.pack([w], dtype)
        outs.append((packed.data, kernels.lm_head(x, norm, EPS, packed).tobytes()))
    assert outs[0] == outs[1]


@each_isa
@each_dtype
def test_zeros(kernels, dtype, isa, rng):
    """Rows, groups and activations of nothing but zeros."""
    w = weight(rng, 40, 130, "float32")
    w[7] = 0
    w[8, 32:64] = 0
    packed = kernels.pack([w], dtype)
    (kept,) = parts(packed.data, dtype, 130, [40])
    assert not kept[7].any() and not kept[8, 32:64].any() and kept[8, :32].any()
    x, inp = np.zeros((2, 40), np.float32), normal(rng, 2, 130)
    assert not kernels.residual(inp, packed, x)[:, 7].any()
    assert not kernels.residual(0 * inp, packed, x).any()


@each_isa
@each_dtype
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_bad_weight_stays_in_its_row(kernels, dtype, isa, bad, rng):
    w, inp, x = weight(rng, 50, 70, "float32"), normal(rng, 3, 70), np.zeros((3, 50), np.float32)
    clean = kernels.residual(inp, kernels.pack([w], dtype), x)
    w[11, 40] = bad
    got = kernels.residual(inp, kernels.pack([w], dtype), x)
    others = np.arange(50) != 11
    assert not np.isfinite(got[:, 11]).any()
    assert np.ascontiguousarray(got[:, others]).tobytes() == np.ascontiguousarray(clean[:, others]).tobytes()


@each_isa
@each_dtype
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_bad_activation_shows(kernels, dtype, isa, bad, rng):
    packed, inp = kernels.pack([weight(rng, 50, 70, "float32")], dtype), normal(rng, 3, 70)
    inp[1, 69] = bad
    got = kernels.residual(inp, packed, np.zeros((3, 50), np.float32))
    assert np.isnan(got[1]).all() and np.isfinite(got[[0, 2]]).all()


@each_isa
@each_dtype
def test_rows_after_the_last_are_zero(kernels, dtype, isa, rng):
    packed = kernels.pack([weight(rng, HALF + 3, 40, "float32")], dtype)
    assert not unpack(packed.data, dtype, 40)[HALF + 3 :].any()


def test_a_cache_is_not_low_bit():
    with pytest.raises(ValueError, match="int4"):
        ops.Kernels("", 1).cache(1, 8, 4, "int4")
