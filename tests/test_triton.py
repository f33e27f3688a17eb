"""Triton kernels in the interpreter against the oracle: all but attention. A row's bits are its own."""

import numpy as np
import pytest

import reference as ref
from cases import EPS, SHAPES, STORE_TOLERANCE, Shape, tolerance
from reference import stored, value
from triton_interpreter import DTYPES, Pack, cdiv, interpreter_fixture, unwritten  # noqa: F401

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


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def matrix(rng, rows, columns, dtype):
    return stored(normal(rng, rows, columns) / np.sqrt(columns), dtype)


def close(found, expected, dtype="float32", slack=1.0):
    """Within the sums' error, and one rounding of what is stored."""
    unit = max(np.sqrt((expected * expected).mean()), 1e-3)
    error = np.abs(value(found) - expected)
    assert (error <= slack * tolerance("float32", "") * unit + STORE_TOLERANCE[dtype] * np.abs(expected)).all()


def undo(y):
    """Weights with which the oracle's norm leaves rows as they are: kernels take rows that are normed already."""
    return np.sqrt((y * y).mean(-1, keepdims=True) + EPS)


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


class Matmuls:
    """Each of them on random rows. A method takes which rows to compute, and in programs of how many."""

    def __init__(self, interpreter, shape, dtype, n):
        self.pack, self.shape, self.dtype, self.n = Pack(interpreter, shape, dtype), shape, dtype, n
        rng = np.random.default_rng(n)
        self.w = {op: matrix(rng, *shape.matrix(op), dtype) for op in ("qkv", "o_proj", "gate_up", "down", "lm_head")}
        self.bias = {op: normal(rng, len(w)) if shape.bias else np.zeros(1, np.float32) for op, w in self.w.items()}
        self.inputs = {op: stored(normal(rng, n, w.shape[1]), dtype) for op, w in self.w.items()}
        self.x = normal(rng, n, shape.D)
        self.q_norm, self.k_norm = (normal(rng, shape.d) if shape.qk_norm else None for _ in range(2))
        self.slot = np.int32(rng.permutation(n + 3)[:n])
        angle = rng.uniform(0, 6, (n, shape.d // 2))
        self.cos, self.sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)

    def run(self, op, rows, tokens):
        y = np.ascontiguousarray(self.inputs[op][rows])
        n, s = len(y), self.shape
        if op == "qkv":
            return self.qkv(y, rows, tokens)
        if op == "lm_head":
            out = unwritten((n, s.V), np.float32)
            self.pack.matmul(op, tokens, n, s.V, y, self.w[op], out)
        elif op == "gate_up":
            out, halves = unwritten((n, s.F), self.dtype), np.split(self.bias[op], 2) if s.bias else []
            turns = [part[i : i + 32] for i in range(0, s.F, 32) for part in halves] or [self.bias[op]]
            self.pack.matmul(op, tokens, n, s.F, y, self.w[op], np.concatenate(turns), out)
        else:
            out = self.x[rows].copy()
            self.pack.matmul(op, tokens, n, s.D, y, self.w[op], self.bias[op], out)
        return out

    def qkv(self, y, rows, tokens):
        s, n = self.shape, len(y)
        heads = s.H + 2 * s.n_kv
        q, raw = unwritten((n, s.H, s.d), self.dtype), unwritten((n, heads, s.d), np.float32)
        cache = unwritten((2, self.n + 3, s.n_kv, s.d), self.dtype)
        slot, cos, sin = (a[rows].copy() for a in (self.slot, self.cos, self.sin))
        constants = self.pack.entries[f"qkv.{tokens}"].constants
        grid = heads * cdiv(s.d // 2, constants["ROWS"]), cdiv(n, tokens) + 1
        count = np.int32([n])
        self.pack.run(
            f"qkv.{tokens}", grid, count, y, self.w["qkv"], self.bias["qkv"], slot, cos, sin, q, cache[0], cache[1], raw
        )
        if s.qk_norm:
            norms = self.q_norm, self.k_norm
            self.pack.run("qk_norm_rope", (n + 1, heads), count, raw, *norms, slot, cos, sin, q, cache[0], cache[1])
        assert np.isnan(value(np.delete(cache, slot, 1))).all()
        return np.concatenate([q, cache[0][slot], cache[1][slot]], 1)

    def expected(self, op):
        s, y, w = self.shape, value(self.inputs[op]), self.w[op]
        bias = self.bias[op] if s.bias else None
        if op == "qkv":
            parts = np.split(w, [s.H * s.d, (s.H + s.n_kv) * s.d])
            norms = self.q_norm, self.k_norm
            return np.concatenate(ref.qkv(y, undo(y), EPS, *parts, s.d, self.cos, self.sin, bias, *norms), 1)
        if op == "gate_up":
            return ref.gate_up(y, undo(y), EPS, w[: s.F], w[s.F :], bias)
        return ref.lm_head(y, undo(y), EPS, w) if op == "lm_head" else ref.residual(self.x, y, w, bias)


STORED = {"qkv": True, "gate_up": True}


@pytest.mark.parametrize(
    "tokens, n, dtype", [(8, 1, "float32"), (16, 19, "float16"), (64, 70, DTYPES[-1]), (32, 5, DTYPES[-1])]
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
