"""Triton kernels in the interpreter against the oracle: all but attention. A row's bits are its own."""

import numpy as np
import pytest

import reference as ref
from cases import EPS, SHAPES, Shape
from marks import exhaustive
from reference import stored, value
from triton_interpreter import DTYPES, Pack, interpreter_fixture, unwritten  # noqa: F401
from triton_matmuls import Matmuls, close, matrix, normal

ODD = [s for s in SHAPES if s.name not in ("normed", "wide")]  # without the larger ones
ODD.append(Shape("normed", D=130, H=3, n_kv=1, d=48, F=20, V=70, qk_norm=True))
HEADS = [  # of qkv: dimensions that tiles do not divide
    Shape("ten", D=20, H=2, n_kv=1, d=10, F=1, V=1),
    Shape("eighty", D=33, H=1, n_kv=1, d=80, F=1, V=1, bias=True),
    Shape("whole", D=64, H=2, n_kv=2, d=128, F=1, V=1, qk_norm=True),
]
BUCKETED = [
    Shape("blocks", D=300, H=2, n_kv=1, d=12, F=40, V=50, bias=True),
    Shape("block", D=128, H=1, n_kv=1, d=32, F=64, V=32, qk_norm=True),
]

each_dtype = pytest.mark.parametrize("dtype", DTYPES)
by_name = {"ids": lambda s: s.name}


@each_dtype
def test_embed(interpreter, dtype):
    rng = np.random.default_rng(0)
    pack = Pack(interpreter, Shape("", D=1030, H=1, n_kv=1, d=2, F=1, V=9), dtype)
    table, token = stored(normal(rng, 9, 1030), dtype), np.int32([3, 0, 8, 8])
    x = unwritten((4, 1030), np.float32)
    pack.run("embed", (4, 2), np.int32([3]), token, table, x)
    assert np.array_equal(x[:3], value(table)[token[:3]])
    assert np.isnan(x[3]).all()


@each_dtype
@pytest.mark.parametrize("D", [1, 67, 1000])
def test_rmsnorm(interpreter, dtype, D):
    rng = np.random.default_rng(D)
    pack = Pack(interpreter, Shape("", D=D, H=1, n_kv=1, d=2, F=1, V=1), dtype)
    x, weight, y = 3 * normal(rng, 3, D), normal(rng, D), unwritten((3, D), dtype)
    pack.run("rmsnorm", (3,), np.int32([2]), x, weight, y)
    close(y[:2], ref.rmsnorm(x[:2], weight, EPS), dtype)
    assert np.isnan(value(y[2])).all()


@each_dtype
@pytest.mark.parametrize("D", [1, 67, 1000])
def test_rows_that_drafters_norm_and_round(interpreter, dtype, D):
    rng = np.random.default_rng(D)
    pack = Pack(interpreter, Shape("", D=D, H=1, n_kv=1, d=2, F=1, V=1), dtype)
    x, weight, out = 3 * normal(rng, 3, D), normal(rng, D), unwritten((3, D + 5), np.float32)
    pack.run("norm_rows", (3,), np.int32([2]), x, weight, out, D + 5)
    close(out[:2, :D], ref.rmsnorm(x[:2], weight, EPS))
    assert np.isnan(out[2]).all() and np.isnan(out[:, D:]).all()
    there = x.copy()
    pack.run("norm_rows", (3,), np.int32([3]), there, weight, there, D)
    assert there[:2].tobytes() == out[:2, :D].tobytes()
    y = unwritten((3, D), dtype)
    pack.run("round_rows", (3, -(-D // 1024)), np.int32([2]), x, y, D)
    assert y[:2].tobytes() == stored(x[:2], dtype).tobytes() and np.isnan(value(y[2])).all()


def test_logits_of_some_tokens_are_spread(interpreter):
    rng = np.random.default_rng(0)
    pack = Pack(interpreter, ODD[0])
    own, token = normal(rng, 3, 1500), np.int32(rng.permutation(2000)[:1500])
    logits = np.full((3, 2000), -7, np.float32)
    pack.run("spread_rows", (3, 2), np.int32([2]), own, token, logits, 1500, 2000)
    want = np.full((3, 2000), -7, np.float32)
    want[:2, token] = own[:2]
    assert np.array_equal(logits, want)


def test_means_of_rows(interpreter):
    x, out = normal(np.random.default_rng(0), 2, 5, 1100), unwritten((3, 1100), np.float32)
    Pack(interpreter, ODD[0]).run("mean_rows", (2, 2), x, out, 5, 1100)
    close(out[:2], x.astype(np.float64).mean(1))
    assert np.isnan(out[2]).all()


@each_dtype
def test_keys_and_values_are_read(interpreter, dtype):
    rng, shape = np.random.default_rng(0), HEADS[0]
    cache = stored(normal(rng, 2, 8, shape.n_kv, shape.d), dtype)
    slots, out = np.int32([5, 0, 5]), unwritten((3, 50), np.float32)
    Pack(interpreter, shape, dtype).run("read_rows", (3, 2 * shape.n_kv), cache, slots, out, 50, cache[0].size)
    width = 2 * shape.n_kv * shape.d
    assert np.array_equal(out[:, :width], value(cache[:, slots]).transpose(1, 2, 0, 3).reshape(3, width))
    assert np.isnan(out[:, width:]).all()


@each_dtype
@pytest.mark.parametrize("rows, columns", [(33, 8), (130, 300)])
def test_matrices_beside_the_layers_of_a_head(interpreter, dtype, rows, columns):
    rng = np.random.default_rng(rows)
    pack = Pack(interpreter, ODD[0], dtype, linears=[[rows, columns, True]])
    w, bias, y = matrix(rng, rows, columns, dtype), normal(rng, rows), stored(normal(rng, 19, columns), dtype)
    x = normal(rng, 19, rows)
    want = ref.residual(x, value(y), w, bias)
    pack.matmul(f"linear.{rows}x{columns}", 16, 19, rows, y, w, bias, x)
    close(x, want, slack=4)


@each_dtype
@pytest.mark.parametrize("name", ["qkv_wide", "qkv_q", "qkv_kv"])
def test_parts_of_first_layers(interpreter, dtype, name):
    """The same kernel where q, k and v are made of two rows, or q alone, or k and v alone."""
    rng, n, shape = np.random.default_rng(0), 9, HEADS[0]
    pack, wide = Pack(interpreter, shape, dtype, wide=2 * shape.D, apart=True), shape.D * (1 + (name == "qkv_wide"))
    H, n_kv = shape.H * (name != "qkv_kv"), shape.n_kv * (name != "qkv_q")
    heads = H + 2 * n_kv
    y, w = stored(normal(rng, n, wide), dtype), matrix(rng, heads * shape.d, wide, dtype)
    q, cache = unwritten((n, shape.H, shape.d), dtype), unwritten((2, n, shape.n_kv, shape.d), dtype)
    half, none = (n, shape.d // 2), np.zeros(1, np.float32)
    cos, sin = np.ones(half, np.float32), np.zeros(half, np.float32)
    halves, tiles = pack.grid(f"{name}.16", n, shape.d // 2)
    arguments = none, np.arange(n, dtype=np.int32), cos, sin, q, cache[0], cache[1], none
    pack.run(f"{name}.16", (heads * halves, tiles), np.int32([n]), y, w, *arguments)
    found = np.concatenate([part for part, there in ((q, H), (cache[0], n_kv), (cache[1], n_kv)) if there], 1)
    assert all(np.isnan(value(part)).all() for part, there in ((q, H), (cache, n_kv)) if not there)
    close(found, (value(y) @ value(w).T).reshape(n, heads, shape.d), dtype, slack=4)


STORED = {"qkv": True, "gate_up": True}


@pytest.mark.parametrize(
    "tokens, n, dtype", [(16, 19, "float16"), *exhaustive((8, 1, "float32"), (64, 70, DTYPES[-1]), (32, 5, DTYPES[-1]))]
)
@pytest.mark.parametrize("shape", ODD, **by_name)
def test_matmuls(interpreter, dtype, shape, tokens, n):
    case = Matmuls(interpreter, shape, dtype, n)
    for op in case.w:
        close(case.run(op, np.arange(n), tokens), case.expected(op), dtype if op in STORED else "float32", slack=4)


@each_dtype
@pytest.mark.parametrize("shape", HEADS, **by_name)
def test_head_dimensions(interpreter, dtype, shape):
    case = Matmuls(interpreter, shape, dtype, 9)
    close(case.run("qkv", np.arange(9), 16), case.expected("qkv"), dtype, slack=4)


@pytest.mark.parametrize("dtype", DTYPES[1:])
@pytest.mark.parametrize("shape", BUCKETED, **by_name)
def test_a_row_has_its_bits_in_every_bucket(interpreter, dtype, shape):
    case = Matmuls(interpreter, shape, dtype, 40)
    for op in case.w:
        many = case.run(op, np.arange(40), 64)
        for tokens, rows in ((8, [37]), (16, [5, 37, 6, 2, 9, 39, 1, 0, 3]), (32, list(range(38, 18, -1)))):
            assert case.run(op, rows, tokens).tobytes() == many[rows].tobytes()


@each_dtype
def test_saturated_gates(interpreter, dtype):
    """silu is 0 far below, the identity far above."""
    pack = Pack(interpreter, Shape("", D=1, H=1, n_kv=1, d=2, F=4, V=1), dtype)
    w = stored(np.float32([[400], [-400], [0], [80], [1], [1], [1], [1]]), dtype)
    h = unwritten((1, 4), dtype)
    pack.matmul("gate_up", 8, 1, 4, stored(np.ones((1, 1)), dtype), w, np.zeros(1, np.float32), h)
    assert value(h[0]).tolist() == [400, 0, 0, 80]


@each_dtype
def test_move_rows(interpreter, dtype):
    """In turn: a slot that was written is read again."""
    pack = Pack(interpreter, Shape("", D=1, H=10, n_kv=5, d=206, F=1, V=1), dtype)
    cache = stored(normal(np.random.default_rng(0), 2, 2, 6, 5, 206), dtype)
    moved, moves = cache.copy(), np.int32([[5, 1], [1, 2], [4, 0]])
    pack.run("move_rows", (2, 2, 2), moved, moves, 3, cache[0].size, cache[0, 0].size)
    for source, target in moves:
        cache[:, :, target] = cache[:, :, source]
    assert np.array_equal(moved, cache)


def test_probes_do_their_sums(interpreter):
    pack = Pack(interpreter, ODD[0])
    chunk = pack.entries["read_probe"].constants
    chunk = chunk["BLOCK"] * chunk["ITERATIONS"]
    data, out = np.arange(chunk + 5000, dtype=np.int32), np.zeros(2, np.int32)
    pack.run("read_probe", (2,), data, out, len(data))
    assert out.tolist() == [data[:chunk].sum(dtype=np.int32), data[chunk:].sum(dtype=np.int32)]
    sums = np.zeros(1, np.float32)
    pack.run("dot_probe", (1,), sums, 2)
    assert sums[0] > 0
