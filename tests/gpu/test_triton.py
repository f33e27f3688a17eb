"""Triton kernels in the interpreter against the oracle: all but attention. A row's bits are its own."""

import numpy as np
import pytest

import reference as ref
from cases import EPS, SHAPES, Shape
from marks import exhaustive
from reference import stored, value
from triton_interpreter import DTYPES, Pack, interpreter_fixture, unwritten  # noqa: F401
from triton_matmuls import Matmuls, close, normal

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
