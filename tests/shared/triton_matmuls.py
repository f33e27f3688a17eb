"""Triton's matmuls on random rows, beside the oracle."""

from functools import partial

import numpy as np
from swiftk._testing import ops

import reference as ref
from cases import EPS, MATMULS, STORE_TOLERANCE, tolerance
from low_bit import parts, unpack_fragments
from reference import stored, value
from triton_interpreter import Pack, unwritten


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


def quantised(op, w, shape, dtype, form):
    """(words that kernels read, the matrix that they hold) of a matrix, as the runtime has them made for a GPU."""
    halves = {"qkv": shape.d // 2, "gate_up": shape.F}
    data = ops.Kernels("", 2).pack([w], form, group=halves.get(op, 0), fragments=True).data
    unpack = partial(unpack_fragments, rounding=dtype)
    (kept,) = parts(data, form, w.shape[1], [len(w)], halves.get(op, 0), unpack=unpack)
    return np.frombuffer(data, np.int32).copy(), kept


class Matmuls:
    """Each of them on random rows. A method takes which rows to compute, and in programs of how many.

    form: of the weights, if in fewer bits.
    """

    def __init__(self, interpreter, shape, dtype, n, form=""):
        self.pack = Pack(interpreter, shape, dtype, forms=(form,) if form else ())
        self.shape, self.dtype, self.n, self.suffix = shape, dtype, n, f".{form}" if form else ""
        rng = np.random.default_rng(n)
        self.w = {op: matrix(rng, *shape.matrix(op), dtype) for op in MATMULS}
        self.packed = dict(self.w)  # as kernels read it
        for op in MATMULS if form else ():
            self.packed[op], self.w[op] = quantised(op, self.w[op], shape, dtype, form)
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
            self.pack.matmul(op + self.suffix, tokens, n, s.V, y, self.packed[op], out)
        elif op == "gate_up":
            out, halves = unwritten((n, s.F), self.dtype), np.split(self.bias[op], 2) if s.bias else []
            turns = [part[i : i + 32] for i in range(0, s.F, 32) for part in halves] or [self.bias[op]]
            self.pack.matmul(op + self.suffix, tokens, n, s.F, y, self.packed[op], np.concatenate(turns), out)
        else:
            out = self.x[rows].copy()
            self.pack.matmul(op + self.suffix, tokens, n, s.D, y, self.packed[op], self.bias[op], out)
        return out

    def qkv(self, y, rows, tokens):
        s, n = self.shape, len(y)
        heads = s.H + 2 * s.n_kv
        q, raw = unwritten((n, s.H, s.d), self.dtype), unwritten((n, heads, s.d), np.float32)
        cache = unwritten((2, self.n + 3, s.n_kv, s.d), self.dtype)
        slot, cos, sin = (a[rows].copy() for a in (self.slot, self.cos, self.sin))
        name = f"qkv{self.suffix}.{tokens}"
        halves, token_tiles = self.pack.grid(name, n, s.d // 2)
        grid = heads * halves, token_tiles
        count = np.int32([n])
        matrix = self.packed["qkv"], self.bias["qkv"]
        self.pack.run(name, grid, count, y, *matrix, slot, cos, sin, q, cache[0], cache[1], raw)
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
