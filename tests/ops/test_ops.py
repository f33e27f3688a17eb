"""Every op, on every instruction set and dtype, against the oracle. Slots that nothing wrote hold NaN."""

import numpy as np
import pytest
from swiftk._testing import ops

import reference as ref
from cases import DTYPES, EPS, SHAPES, STORE_TOLERANCE, attention_tolerance, tolerance
from op_data import angles, assert_close, causal_rows, normal, size, weight

ISAS = ops.isas()
ROWS = [1, 2, 5, 17]

pytestmark = [pytest.mark.parametrize("isa", ISAS), pytest.mark.parametrize("dtype", DTYPES)]
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)


def test_embed(kernels, dtype, rng, isa):
    table = weight(rng, 13, 37, dtype)
    token = np.int32([3, 0, 12, 12, 1] * 4)
    assert (kernels.embed(table, token) == ref.value(table)[token]).all()


@pytest.mark.parametrize("n", ROWS)
@pytest.mark.parametrize("D", [1, 67, 1000])
def test_rows_of_drafters(kernels, n, D, dtype, isa, rng):
    x, norm = 3 * normal(rng, n, D), normal(rng, D)
    got = kernels.rmsnorm(x, norm, EPS, D + 3)
    assert_close(got[:, :D], ref.rmsnorm(x, norm, EPS), tolerance("float32", isa))
    assert (got[:, D:] == 0).all()
    grouped = normal(rng, 3 * n, D)
    means = grouped.astype(np.float64).reshape(n, 3, D).mean(1)
    assert_close(kernels.mean(grouped, 3), means, tolerance("float32", isa))
    token, logits = np.int32(rng.permutation(D + 9)[:D]), normal(rng, n, D + 9)
    spread = logits.copy()
    spread[:, token] = x
    assert np.array_equal(kernels.spread(x, token, logits), spread)


@each_shape
@pytest.mark.parametrize("n", ROWS)
def test_residual(kernels, shape, n, dtype, isa, rng):
    for op, down in (("o_proj", False), ("down", True)):
        rows, columns = shape.matrix(op)
        w = weight(rng, rows, columns, dtype)
        bias = normal(rng, rows) if shape.bias else None
        x, inp = normal(rng, n, rows), normal(rng, n, columns)
        got = kernels.residual(inp, kernels.pack([w], dtype, bias=bias), x, down)
        assert_close(got, ref.residual(x, inp, w, bias), tolerance(dtype, isa))


@each_shape
@pytest.mark.parametrize("n", ROWS)
def test_gate_up(kernels, shape, n, dtype, isa, rng):
    gate, up = (weight(rng, shape.F, shape.D, dtype) for _ in range(2))
    bias, turns = None, None
    if shape.bias:
        bias = normal(rng, 2 * shape.F)
        pieces = [part[i : i + 32] for i in range(0, shape.F, 32) for part in (bias[: shape.F], bias[shape.F :])]
        turns = np.concatenate(pieces)
    x, norm = 3 * normal(rng, n, shape.D), normal(rng, shape.D)
    w = kernels.pack([gate, up], dtype, group=32, interleave=True, bias=turns)
    got = kernels.gate_up(x, norm, EPS, w)
    assert_close(got, ref.gate_up(x, norm, EPS, gate, up, bias), 4 * tolerance(dtype, isa))


@each_shape
@pytest.mark.parametrize("n", ROWS)
def test_lm_head(kernels, shape, n, dtype, isa, rng):
    w = weight(rng, shape.V, shape.D, dtype)
    x, norm = normal(rng, n, shape.D), normal(rng, shape.D)
    got = kernels.lm_head(x, norm, EPS, kernels.pack([w], dtype))
    assert_close(got, ref.lm_head(x, norm, EPS, w), tolerance(dtype, isa))


def test_extreme_activations(kernels, dtype, isa, rng):
    """The gate saturates: silu is 0 far below, the identity far above."""
    gate, up = np.float32([[400.0], [-400.0], [0.0], [80.0]]), np.ones((4, 1), np.float32)
    w = kernels.pack([ref.stored(gate, dtype), ref.stored(up, dtype)], dtype, group=32, interleave=True)
    got = kernels.gate_up(np.ones((1, 1), np.float32), np.ones(1, np.float32), 0.0, w)[0]
    assert got[0] == 400 and got[1] == 0 and got[2] == 0 and got[3] == 80


@pytest.mark.parametrize("n", [1, 5, 23])
def test_what_other_families_compute(kernels, n, dtype, isa, rng):
    """Scales, caps, a norm over what a sublayer adds, gelu, other rotary tables or none: alone and by rows."""
    s = next(shape for shape in SHAPES if shape.name == "biased")
    slack, rows_of = tolerance(dtype, isa), lambda op: weight(rng, *s.matrix(op), dtype)

    def check(call, want, unit=None, tolerance=slack):
        got = call(slice(None))
        assert_close(got, want, tolerance, unit)
        assert np.concatenate([call(slice(i, i + 1)) for i in range(n)]).tobytes() == got.tobytes()

    x, inp, norm = normal(rng, n, s.D), normal(rng, n, s.F), normal(rng, s.D)
    w, bias = rows_of("down"), normal(rng, s.D)
    packed = kernels.pack([w], dtype, bias=bias)
    for options in ({"scale": 0.22}, {"norm": norm, "eps": EPS}, {"scale": 0.22, "norm": norm, "eps": EPS}):
        want = ref.residual(x, inp, w, bias, **options)
        check(lambda i: kernels.residual(inp[i], packed, x[i], True, **options), want)  # noqa: B023

    gate, up = (weight(rng, s.F, s.D, dtype) for _ in range(2))
    packed = kernels.pack([gate, up], dtype, group=32, interleave=True)
    for before in (norm, None):
        want = ref.gate_up(3 * x, before, EPS, gate, up, activation=ref.gelu_tanh)
        check(lambda i: kernels.gate_up(3 * x[i], before, EPS, packed, gelu=True), want, None, 4 * slack)  # noqa: B023

    head = rows_of("lm_head")
    packed = kernels.pack([head], dtype)
    for options in ({"scale": 0.125}, {"soft_cap": 3.0}, {"scale": 2.0, "soft_cap": 30.0}):
        want, unit = ref.lm_head(x, norm, EPS, head, **options), options.get("scale", 1) * size(x)
        check(lambda i: kernels.lm_head(x[i], norm, EPS, packed, **options), want, unit * 8, slack)  # noqa: B023

    table, token = weight(rng, 40, s.D, dtype), rng.integers(0, 40, n)
    assert np.array_equal(kernels.embed(table, token, scale=1.5), kernels.embed(table, token) * np.float32(1.5))

    wq, wk, wv = (weight(rng, heads * s.d, s.D, dtype) for heads in (s.H, s.n_kv, s.n_kv))
    packed, pos = kernels.pack([wq, wk, wv], dtype, group=s.d), np.arange(n)
    tables = [angles(pos, s.d), angles(7 * pos, s.d)]
    cos, sin = (np.stack(t) for t in zip(*tables))
    for rope in (0, 1, -1):
        cache, rows = kernels.cache(s.n_kv, s.d, n, dtype), ops.Rows(pos, pos, cos, sin)
        q = kernels.qkv(x, norm, EPS, packed, rows, cache, s.H, rope=rope)
        want_q, k, v = ref.qkv(x, norm, EPS, wq, wk, wv, s.d, *(tables[rope] if rope >= 0 else (None, None)))
        assert_close(q, want_q, 2 * slack)
        stored = kernels.read_rows(cache, pos, 2 * s.n_kv * s.d).reshape(n, s.n_kv, 2, s.d)
        assert_close(stored[:, :, 0], k, 2 * slack + 4 * STORE_TOLERANCE[dtype])
        seen = [stored[: i + 1, :, 0] for i in range(n)], [stored[: i + 1, :, 1] for i in range(n)]
        for cap in (0.5, 50.0):
            got = kernels.attention(q, rows, cache, 0, 0.3, soft_cap=cap)
            assert_close(got, ref.attention(q, *seen, 0, 0.3, cap), attention_tolerance(dtype, isa) * 4, unit=size(v))


@pytest.mark.parametrize("over", ["heads", "rotated heads", "whole"])
def test_norms_of_q_and_k_and_tables_of_their_own(kernels, over, dtype, isa, rng):
    """Norms over heads before or after they are rotated, or over all heads; q may take another table than k."""
    s, n = next(shape for shape in SHAPES if shape.name == "biased"), 7
    wq, wk, wv = (weight(rng, heads * s.d, s.D, dtype) for heads in (s.H, s.n_kv, s.n_kv))
    sizes = (s.H * s.d, s.n_kv * s.d) if over == "whole" else (s.d, s.d)
    q_norm, k_norm = (normal(rng, size) for size in sizes)
    x, norm, bias, pos = normal(rng, n, s.D), normal(rng, s.D), normal(rng, s.matrix("qkv")[0]), np.arange(n)
    w = kernels.pack([wq, wk, wv], dtype, group=s.d, bias=bias)
    tables = [angles(pos, s.d), tuple(1.5 * t for t in angles(pos, s.d))]
    cos, sin = (np.stack(t) for t in zip(*tables))

    def call(i):
        cache, rows = kernels.cache(s.n_kv, s.d, n, dtype), ops.Rows(pos[i], pos[i], cos[:, i], sin[:, i])
        q = kernels.qkv(x[i], norm, EPS, w, rows, cache, s.H, q_norm, k_norm, rope=0, query_rope=1, norm_over=over)
        stored = kernels.read_rows(cache, pos[i], 2 * s.n_kv * s.d).reshape(-1, s.n_kv, 2, s.d)
        return q, stored

    q, stored = call(slice(None))
    want_q, want_k, want_v = ref.qkv(
        x, norm, EPS, wq, wk, wv, s.d, *tables[0], bias, q_norm, k_norm, over=over, of_q=tables[1]
    )
    slack = 4 * tolerance(dtype, isa)
    assert_close(q, want_q, slack)
    assert_close(stored[:, :, 0], want_k, slack + 8 * STORE_TOLERANCE[dtype])
    assert_close(stored[:, :, 1], want_v, slack + 8 * STORE_TOLERANCE[dtype])
    for i in range(n):
        alone = call(slice(i, i + 1))
        assert alone[0].tobytes() == q[i].tobytes() and alone[1].tobytes() == stored[i].tobytes()


@each_shape
@pytest.mark.parametrize("n", ROWS)
def test_qkv(kernels, shape, n, dtype, isa, rng):
    """q directly; k and v through attention: with one visible key its value comes back, and scores show the keys."""
    s = shape
    wq, wk, wv = (weight(rng, heads * s.d, s.D, dtype) for heads in (s.H, s.n_kv, s.n_kv))
    bias = normal(rng, s.matrix("qkv")[0]) if s.bias else None
    q_norm, k_norm = (normal(rng, s.d), normal(rng, s.d)) if s.qk_norm else (None, None)
    x, norm = normal(rng, n, s.D), normal(rng, s.D)
    pos = np.arange(3, 3 + n)
    cos, sin = angles(pos, s.d)
    cache = kernels.cache(s.n_kv, s.d, 3 + n, dtype)
    rows = causal_rows(pos, s.d)
    w = kernels.pack([wq, wk, wv], dtype, group=s.d, bias=bias)
    q = kernels.qkv(x, norm, EPS, w, rows, cache, s.H, q_norm, k_norm)
    want_q, k, v = ref.qkv(x, norm, EPS, wq, wk, wv, s.d, cos, sin, bias, q_norm, k_norm)
    slack = tolerance(dtype, isa) * 2
    assert_close(q, want_q, slack)
    alone = kernels.attention(q, rows, cache, 1, 1.0)  # window 1: the row itself
    assert_close(alone, np.repeat(v, s.H // s.n_kv, axis=1), slack + STORE_TOLERANCE[dtype] * 4)
    last = causal_rows(pos[-1:], s.d)
    window = min(n, 4)
    probe = normal(rng, 1, s.H, s.d)
    got = kernels.attention(probe, last, cache, window, 0.3)
    want = ref.attention(probe, [k], [v], window, 0.3)
    assert_close(got, want, slack * 8 + STORE_TOLERANCE[dtype] * 16, unit=size(v))


@pytest.mark.parametrize("shape", SHAPES[:1], ids=lambda s: s.name)
@pytest.mark.parametrize("n", [1, 5])
def test_q_alone_and_k_and_v_alone(kernels, shape, n, dtype, isa, rng):
    """As their weights' rows say beside each other."""
    s = shape
    wq, wk, wv = (weight(rng, heads * s.d, s.D, dtype) for heads in (s.H, s.n_kv, s.n_kv))
    x, norm, rows = normal(rng, n, s.D), normal(rng, s.D), causal_rows(np.arange(n), s.d)
    both, one, none = (kernels.cache(heads, s.d, n, dtype) for heads in (s.n_kv, s.n_kv, 0))
    q = kernels.qkv(x, norm, EPS, kernels.pack([wq, wk, wv], dtype, group=s.d), rows, both, s.H)
    alone = kernels.qkv(x, norm, EPS, kernels.pack([wq], dtype, group=s.d), rows, none, s.H)
    kernels.qkv(x, norm, EPS, kernels.pack([wk, wv], dtype, group=s.d), rows, one, 0)
    assert alone.tobytes() == q.tobytes() and one.data == both.data


@pytest.mark.parametrize("source", DTYPES)
def test_pack_converts(kernels, source, dtype, isa, rng):
    """Any checkpoint dtype into any other: as rounding first and packing then."""
    w = weight(rng, 70, 33, source)
    x, norm = normal(rng, 3, 33), normal(rng, 33)
    rounded = ref.stored(ref.value(w).astype(np.float32), dtype)
    one, other = (kernels.lm_head(x, norm, EPS, kernels.pack([m], dtype)) for m in (w, rounded))
    assert one.tobytes() == other.tobytes()
