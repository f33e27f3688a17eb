"""CUDA C++ matmuls on the CPU against the oracle, bit by bit over row counts; and what the compiler makes of them."""

from dataclasses import dataclass, field

import numpy as np
import pytest

import cuda_shim
import reference
from cuda_shim import aligned
from reference import stored, value

plan = cuda_shim.load_plan()
NARROW = {"ROW_WARPS": 1, "K_WARPS": 4, "CLUSTER": 1}  # a slice of K for each warp
WIDE = {"ROW_WARPS": 4, "K_WARPS": 1, "CLUSTER": 1}  # slices one after another
SPREAD = {"ROW_WARPS": 2, "K_WARPS": 1, "CLUSTER": 4}  # a slice for each block of a cluster
BOTH = {"ROW_WARPS": 1, "K_WARPS": 2, "CLUSTER": 2}
TOLERANCE = {"bfloat16": 1.2e-2, "float16": 2e-3, "float32": 3e-5}
COUNTS = (1, 2, 5, 8, 9, 16, 17, 31, 33, 64, 70)


def shape(**sizes):
    bias = sizes.pop("bias", False)
    base = {"D": 64, "H": 1, "KV": 1, "HD": 32, "F": 64, "V": 64, "dtype": "bfloat16", "qk_norm": False}
    return {**base, "qkv_bias": bias, "o_bias": bias, "mlp_bias": bias, **sizes}


# Nothing divides: outputs by 16, K by 64 or 256, halves of heads by 16; K of one and of several stages a slice.
ODD = shape(D=616, H=3, KV=1, HD=24, F=75, V=101, bias=True)
EVEN = shape(D=520, H=2, KV=2, HD=64, F=88, V=150, dtype="float16")
NORMED = shape(D=72, H=2, KV=1, HD=48, F=40, V=20, qk_norm=True)


@dataclass
class Case:
    """One operation, built with several tiles that must agree."""

    name: str
    shape: dict
    unit: int
    tiles: list
    first: int = 0  # place of its first kernel in the library
    sizes: dict = field(init=False)

    def __post_init__(self):
        found = {o[0]: o for o in plan.operations(self.shape)}[self.name]
        _, self.source, self.sizes, self.outputs, self.K, self.pairs = found
        choices = [{"BLOCKS": 1, "UNIT": self.unit, **t} for t in self.tiles]
        self.kernels = [plan.Kernel(self.name, self.source, self.sizes, t, self.outputs, self.K) for t in choices]

    def defines(self):
        pack = [f"-DSWIFTK_K={self.K}", f"-DSWIFTK_UNIT={self.unit}"]
        return [("pack", pack), *((self.source, k.defines(self.shape["dtype"])) for k in self.kernels)]


def tiles(*choices, stages=3):
    return [{"TOKENS": t, "TILES": m, "STAGES": stages, **warps} for t, m, warps in choices]


FOUR = tiles((8, 2, NARROW), (16, 2, BOTH), (32, 2, WIDE), (64, 2, SPREAD))
CASES = [
    Case("o_proj", ODD, 1, tiles((8, 1, NARROW), (16, 1, WIDE), (64, 2, SPREAD))),
    Case("down", EVEN, 2, FOUR),
    Case("gate_up", ODD, 2, tiles((8, 2, NARROW), (32, 2, SPREAD))),
    Case("gate_up", EVEN, 2, tiles((16, 2, NARROW), (64, 2, WIDE))),
    Case("qkv", ODD, 2, FOUR),
    Case("qkv", EVEN, 2, tiles((8, 2, NARROW), (64, 2, SPREAD))),
    Case("qkv", NORMED, 2, tiles((16, 2, NARROW), (32, 2, WIDE))),
    Case("lm_head", ODD, 1, tiles((8, 1, NARROW), (32, 2, {**WIDE, "ROW_WARPS": 2}))),
    Case("lm_head", EVEN, 2, tiles((16, 4, {**NARROW, "ROW_WARPS": 2}), (32, 2, WIDE), stages=2)),
]
names = [f"{c.name}-{c.shape['D']}" for c in CASES]
SOME = ["down-520", "gate_up-616", "qkv-72", "lm_head-616"]  # each kernel; halves, biases, norms; a cluster, slices


def build(folder, cases, bulk):
    kernels = []
    for case in cases:
        case.first = len(kernels)
        kernels += case.defines()
    return cuda_shim.Library(folder, kernels, bulk)


@pytest.fixture(name="library", scope="module")
def library_fixture(tmp_path_factory):
    return build(tmp_path_factory.mktemp("cuda_shim"), CASES, bulk=True)


class Data:
    """Inputs of a case, and its outputs for some of the rows."""

    def __init__(self, case, library, rows=70, seed=1):
        rng = np.random.default_rng(seed)
        self.case, self.library, s = case, library, case.shape
        self.dtype = s["dtype"]
        self.matrix_rows, *self.mapping = plan.rows_of_units(case.name, s, case.unit)
        self.w = aligned(stored(rng.standard_normal((self.matrix_rows, case.K)) / np.sqrt(case.K), self.dtype))
        self.y = stored(rng.standard_normal((rows, case.K)), self.dtype)
        self.bias = None
        if s["qkv_bias"] and case.name != "lm_head":
            self.bias = rng.standard_normal(self.matrix_rows).astype(np.float32)
        self.x = rng.standard_normal((rows, case.outputs)).astype(np.float32)
        self.cos, self.sin = rng.standard_normal((2, rows, s["HD"] // 2)).astype(np.float32)
        self.slot = rng.permutation(rows).astype(np.int32)
        self.packed = self.pack()

    def pack(self):
        units, columns = plan.packed_shape(self.case.outputs, self.case.K, self.case.unit)
        to = aligned(np.full((units, columns // 16, self.case.unit, 32, 8), 0xFFFF, np.uint16))
        arguments = self.w, to, self.matrix_rows, *self.mapping
        self.library.run(self.case.first, (3, 1), 0, *arguments)
        return to

    def run(self, tile, rows, seed=0, grid=None):
        """What the kernel writes for these rows, as an array [rows, ...] of bits; what surrounds it stays as it was."""
        case, s, n = self.case, self.case.shape, len(rows)
        kernel = case.kernels[tile]
        y, count = aligned(self.y[rows]), np.int32([n])
        half = np.uint16
        if case.source == "residual":
            outputs = [np.concatenate([self.x[rows], self.x[:1]])]
            arguments = [y, self.packed, self.bias, *outputs]
        elif case.source == "lm_head":
            outputs = [np.full((n + 1, s["V"]), np.nan, np.float32)]
            arguments = [y, self.packed, *outputs]
        elif case.source == "gate_up":
            outputs = [np.full((n + 1, s["F"]), 0xFFFF, half)]
            arguments = [y, self.packed, self.interleaved_bias(), *outputs]
        else:
            heads = s["H"] + 2 * s["KV"]
            q, raw = np.full((n, s["H"], s["HD"]), 0xFFFF, half), np.full((n, heads, s["HD"]), np.nan, np.float32)
            k, v = np.full((2, len(self.slot), s["KV"], s["HD"]), 0xFFFF, half)
            outputs = [q, k, v, raw]
            tables = (np.ascontiguousarray(a[rows]) for a in (self.slot, self.cos, self.sin))
            arguments = [y, self.packed, self.bias, *tables, *outputs]
        blocks = kernel.tiles * kernel.tile["CLUSTER"] if grid is None else grid * kernel.tile["CLUSTER"]
        where = blocks, plan.cdiv(n, kernel.tile["TOKENS"])
        beyond = outputs[0][n:].copy()
        self.library.run(case.first + 1 + tile, where, kernel.shared, count, *arguments, seed=seed)
        if case.source == "qkv":
            return self.of_qkv(rows, *outputs)
        assert outputs[0][n:].tobytes() == beyond.tobytes()
        return outputs[0][:n]

    def of_qkv(self, rows, q, k, v, raw):
        if self.case.shape["qk_norm"]:
            assert (q == 0xFFFF).all() and (k == 0xFFFF).all() and (v == 0xFFFF).all()
            return raw
        assert np.isnan(raw).all()
        slots = self.slot[rows]
        others = np.setdiff1d(np.arange(len(k)), slots)
        assert (k[others] == 0xFFFF).all() and (v[others] == 0xFFFF).all()
        return np.concatenate([q, k[slots], v[slots]], 1)

    def interleaved_bias(self):
        if self.bias is None:
            return None
        gate, up = np.split(self.bias, 2)
        turns = range(0, len(gate), 32)
        return np.concatenate([part[t : t + 32] for t in turns for part in (gate, up)])

    def expected(self):
        case, s = self.case, self.case.shape
        out = value(self.y) @ value(self.w).T
        if self.bias is not None:
            out = out + self.bias
        if case.source == "residual":
            return self.x + out
        if case.source == "lm_head":
            return out
        if case.source == "gate_up":
            g, u = np.split(out, 2, axis=1)
            return g / (1 + np.exp(-g)) * u
        out = out.reshape(len(out), -1, s["HD"])
        if s["qk_norm"]:
            return out
        turned = s["H"] + s["KV"]
        return np.concatenate([reference.rope(out[:, :turned], self.cos, self.sin), out[:, turned:]], 1)


@pytest.mark.parametrize("case", CASES, ids=names)
def test_layout_is_as_stated(library, case):
    data = Data(case, library)
    units, columns = plan.packed_shape(case.outputs, case.K, case.unit)
    wide = np.zeros((units * case.unit, 16, columns), np.uint16)
    for i, tile in enumerate(wide):
        for row in range(16):
            r = row_of(case, i // case.unit, i % case.unit, row)
            if r is not None:
                tile[row, : case.K] = data.w[r].view(np.uint16)
    g, c, e = np.arange(32)[:, None] // 4, np.arange(32)[:, None] % 4, np.arange(8)[None]
    for t in range(columns // 16):
        k = 32 * (t // 2) + 8 * c + 4 * (t % 2) + 2 * (e // 4) + e % 2
        fragments = wide.reshape(units, case.unit, 16, columns)[:, :, g + 8 * (e // 2 % 2), k]
        assert np.array_equal(data.packed[:, t], fragments)


def row_of(case, unit, m, i):
    """Row of the matrix that is output i of tile m of a unit; None: no row."""
    s = case.shape
    if case.name == "qkv":
        per = plan.cdiv(s["HD"] // 2, 16)
        head, within = unit // per, unit % per * 16 + i
        there = head < s["H"] + 2 * s["KV"] and within < s["HD"] // 2
        return head * s["HD"] + m * (s["HD"] // 2) + within if there else None
    if case.name == "gate_up":
        return m * s["F"] + unit * 16 + i if unit * 16 + i < s["F"] else None
    row = (unit * case.unit + m) * 16 + i
    return row if row < case.outputs else None


@pytest.mark.parametrize("case", CASES, ids=names)
def test_against_the_oracle(library, case):
    data = Data(case, library)
    expected = data.expected()
    for tile in range(len(case.tiles)):
        out = data.run(tile, range(70))
        found = value(out.view(np.float16) if data.dtype == "float16" and out.dtype == np.uint16 else out)
        unit = np.sqrt((expected * expected).mean())
        kind = "float32" if out.dtype == np.float32 else data.dtype
        assert (np.abs(found - expected) <= TOLERANCE[kind] * np.maximum(np.abs(expected), unit)).all()


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=id, marks=() if id in SOME else pytest.mark.exhaustive) for c, id in zip(CASES, names)],
)
def test_bits_are_a_rows_own(library, case):
    """Whatever the number of rows, their order, the tiles, the grid, or who comes first."""
    data = Data(case, library)
    whole = data.run(0, range(70))
    rng = np.random.default_rng(2)
    for tile, choice in enumerate(case.tiles):
        for seed, n in enumerate(COUNTS):
            if n > 2 * choice["TOKENS"]:
                continue
            rows = rng.permutation(70)[:n] if seed % 2 else np.arange(n)
            found = data.run(tile, rows, seed=seed, grid=(None, 1, 2)[seed % 3])
            assert found.tobytes() == whole[rows].tobytes(), (choice, n)


def test_copies_of_older_machines(tmp_path):
    cases = [Case("lm_head", EVEN, 2, tiles((8, 2, NARROW), (32, 2, WIDE)))]
    data = Data(cases[0], build(tmp_path, cases, bulk=False))
    whole = data.run(0, range(10))
    assert np.abs(whole - data.expected()[:10]).max() < 1e-4
    assert data.run(1, range(9), seed=3).tobytes() == whole[:9].tobytes()
