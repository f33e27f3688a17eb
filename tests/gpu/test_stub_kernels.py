"""Kernels of the stub driver against the oracle, and their exactness: a row's bits, and a path's, are its own."""

from pathlib import Path

import numpy as np
import pytest

import reference
from reference import stored, value
from stub_cuda import host_fixture, stub_fixture  # noqa: F401
from swiftk.files.folders import load_source

manifest = load_source(Path(__file__).parents[2] / "kernels" / "triton" / "manifest.py")
DTYPES = ("float32", "bfloat16", "float16")
TOLERANCE = {"float32": 1e-5, "bfloat16": 1.6e-2, "float16": 2e-3}
EPS = 1e-5
POISON = {"float32": np.float32(np.nan), "bfloat16": np.uint16(0xFFFF), "float16": np.float16(np.nan)}


def element(dtype):
    return np.uint16 if dtype == "bfloat16" else np.dtype(dtype)


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def cdiv(a, b):
    return -(-a // b)


def close(found, expected, dtype):
    found = value(found) if found.dtype != np.float32 else found
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= TOLERANCE[dtype] * max(1, np.abs(expected).max())


def angles(pos, d):
    a = np.asarray(pos, np.float64)[:, None] * 100.0 ** (-np.arange(d // 2) * 2.0 / d)
    return np.cos(a).astype(np.float32), np.sin(a).astype(np.float32)


def undo(y):
    """Weights with which the oracle's norm leaves rows as they are: kernels take rows that are normed already."""
    return np.sqrt((y * y).mean(-1, keepdims=True) + EPS)


@pytest.mark.parametrize("D, V, HD", [(64, 128, 16), (30, 70, 10), (6, 7, 2)])
def test_arguments_are_those_of_the_pack(stub, D, V, HD):
    shape = {"D": D, "H": 3, "KV": 3, "HD": HD, "F": 40, "V": V, "dtype": "bfloat16", "eps": EPS}
    shape |= dict.fromkeys(("qk_norm", "qkv_bias", "o_bias", "mlp_bias"), True)
    aligned = {"P": True, "D": D % 4 == 0, "V": V % 4 == 0, "C": 3 * HD % 8 == 0, "W": 3 * HD % 16 == 0}
    for entry in manifest.entries(shape):
        letters = stub.arguments(entry.function)
        assert len(letters) == len(entry.signature), entry.name
        for letter, (name, kind) in zip(letters, entry.signature.items()):
            expected = {"i32": "i", "i64": "l", "fp32": "f"}.get(kind)
            assert letter == expected or (kind[0] == "*" and letter in "pPDVCW"), f"{entry.name}: {name}"
            assert kind[0] != "*" or aligned.get(letter, False) == (name in entry.aligned), f"{entry.name}: {name}"


@pytest.mark.parametrize("dtype", DTYPES)
def test_embed(host, dtype):
    rng = np.random.default_rng(0)
    table, token = stored(normal(rng, 50, 24), dtype), np.int32([3, 49, 0])
    x = host.put(np.full((4, 24), 7, np.float32))
    n, constants = host.put(np.int32([3])), {"D": 24, "BLOCK": 16}
    host.run("embed", dtype, constants, (4, 2), n, host.put(token), host.put(table), x)
    found = host.get(x, (4, 24))
    assert np.array_equal(found[:3], value(table)[token])
    assert (found[3] == 7).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_rmsnorm(host, dtype):
    rng = np.random.default_rng(1)
    x, weight = normal(rng, 3, 24), normal(rng, 24)
    y = host.allocate(3 * 24 * 4)
    constants = {"D": 24, "EPS": EPS, "BLOCK": 32}
    host.run("rmsnorm", dtype, constants, (8,), host.put(np.int32([3])), host.put(x), host.put(weight), y)
    close(host.get(y, (3, 24), element(dtype)), reference.rmsnorm(x, weight, EPS), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_drafters(host, dtype):
    rng, constants = np.random.default_rng(1), {"D": 24, "EPS": EPS, "BLOCK": 32}
    x, weight, n = normal(rng, 3, 24), normal(rng, 24), host.put(np.int32([3]))
    out, y = host.put(np.full((3, 30), 7, np.float32)), host.allocate(3 * 24 * 4)
    host.run("norm_rows", dtype, constants, (8,), n, host.put(x), host.put(weight), out, np.int32(30))
    found = host.get(out, (3, 30))
    close(found[:, :24], reference.rmsnorm(x, weight, EPS), "float32")
    assert (found[:, 24:] == 7).all()
    host.run("round_rows", dtype, {"BLOCK": 16}, (8, 2), n, host.put(x), y, np.int32(24))
    assert host.get(y, (3, 24), element(dtype)).tobytes() == stored(x, dtype).tobytes()


def test_logits_of_some_tokens(host):
    own, token = normal(np.random.default_rng(0), 2, 20), np.int32(np.arange(20)[::-1] * 2)
    logits = host.put(np.full((2, 50), -7, np.float32))
    sizes = np.int32(20), np.int32(50)
    n, places = host.put(np.int32([2])), host.put(token)
    host.run("spread_rows", "float32", {"BLOCK": 16}, (2, 2), n, host.put(own), places, logits, *sizes)
    want = np.full((2, 50), -7, np.float32)
    want[:, token] = own
    assert np.array_equal(host.get(logits, (2, 50)), want)


def test_means_of_rows(host):
    x, out = normal(np.random.default_rng(0), 2, 5, 20), host.put(np.full((3, 20), 7, np.float32))
    host.run("mean_rows", "float32", {"BLOCK": 16}, (2, 2), host.put(x), out, np.int32(5), np.int32(20))
    found = host.get(out, (3, 20))
    close(found[:2], x.astype(np.float64).mean(1), "float32")
    assert (found[2] == 7).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_keys_and_values_are_read(host, dtype):
    cache, slots = stored(normal(np.random.default_rng(0), 2, 8, 3, 10), dtype), np.int32([5, 0])
    out = host.put(np.full((2, 65), 7, np.float32))
    sizes = {"KV": 3, "HD": 10, "BLOCK": 16}
    host.run("read_rows", dtype, sizes, (2, 6), host.put(cache), host.put(slots), out, np.int64(65), np.int64(240))
    found = host.get(out, (2, 65))
    assert np.array_equal(found[:, :60], value(cache[:, slots]).transpose(1, 2, 0, 3).reshape(2, 60))
    assert (found[:, 60:] == 7).all()


class Qkv:
    """A projection of n rows into a poisoned cache of 12 slots."""

    D, H, KV, HD, slots = 40, 4, 2, 20, 12

    def __init__(self, host, dtype, n, seed=2):
        rng = np.random.default_rng(seed)
        self.host, self.dtype, self.n = host, dtype, n
        heads = self.H + 2 * self.KV
        self.y = stored(normal(rng, n, self.D), dtype)
        self.w = stored(normal(rng, heads * self.HD, self.D) / 6, dtype)
        self.bias = normal(rng, heads * self.HD)
        self.q_norm, self.k_norm = normal(rng, self.HD), normal(rng, self.HD)
        self.slot = np.int32(rng.permutation(self.slots)[:n])
        self.cos, self.sin = angles(self.slot, self.HD)

    def run(self, has_bias, norm, tokens=8, rows=None):
        """q, K, V; rows: which of them to compute."""
        host, rows = self.host, list(range(self.n)) if rows is None else rows
        heads, n = self.H + 2 * self.KV, host.put(np.int32([len(rows)]))
        sizes = {"D": self.D, "H": self.H, "KV": self.KV, "HD": self.HD}
        cache = np.full((2, self.slots, self.KV, self.HD), POISON[self.dtype])
        q, k = host.allocate(len(rows) * self.H * self.HD * 4), host.put(cache)
        v, raw = k + cache.nbytes // 2, host.allocate(len(rows) * heads * self.HD * 4)
        slot, cos, sin = (host.put(a[rows]) for a in (self.slot, self.cos, self.sin))
        tile = {"HAS_BIAS": has_bias, "QK_NORM": norm, "ROWS": 16, "TOKENS": tokens, "BLOCK_K": 32}
        bias = host.put(self.bias) if has_bias else 0
        grid = heads * cdiv(self.HD // 2, 16), cdiv(len(rows), tokens)
        matrices = host.put(self.y[rows]), host.put(self.w), bias
        host.run("qkv", self.dtype, {**sizes, **tile}, grid, n, *matrices, slot, cos, sin, q, k, v, raw)
        if norm:
            norms = host.put(self.q_norm), host.put(self.k_norm)
            constants = {**sizes, "EPS": EPS, "BLOCK": 16}
            host.run("qk_norm_rope", self.dtype, constants, (len(rows), heads), n, raw, *norms, slot, cos, sin, q, k, v)
        kind = element(self.dtype)
        cache = host.get(k, cache.shape, kind)
        return host.get(q, (len(rows), self.H, self.HD), kind), cache[0], cache[1]

    def expected(self, has_bias, norm):
        parts = np.split(self.w, [self.H * self.HD, (self.H + self.KV) * self.HD])
        norms = (self.q_norm, self.k_norm) if norm else (None, None)
        y = value(self.y)
        bias = self.bias if has_bias else None
        return reference.qkv(y, undo(y), EPS, *parts, self.HD, self.cos, self.sin, bias, *norms)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("has_bias, norm", [(0, 0), (1, 0), (1, 1)])
def test_qkv(host, dtype, has_bias, norm):
    case = Qkv(host, dtype, 5)
    found = case.run(has_bias, norm)
    expected = case.expected(has_bias, norm)
    close(found[0], expected[0], dtype)
    unused = np.setdiff1d(np.arange(case.slots), case.slot)
    for cache, rows in zip(found[1:], expected[1:]):
        close(cache[case.slot], rows, dtype)
        assert np.isnan(value(cache[unused])).all()
    alone = case.run(has_bias, norm, tokens=16, rows=[3])
    assert np.array_equal(alone[0][0], found[0][3])
    assert all(np.array_equal(a[case.slot[3]], b[case.slot[3]]) for a, b in zip(alone[1:], found[1:]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("has_bias", [0, 1])
def test_other_matmuls(host, dtype, has_bias):
    rng = np.random.default_rng(3)
    n, D, F, V = 11, 24, 40, 50
    y, bias, x = stored(normal(rng, n, D), dtype), normal(rng, 2 * F), normal(rng, n, V)
    w = stored(normal(rng, 2 * F, D) / 5, dtype)
    tile = {"ROWS": 16, "TOKENS": 8, "BLOCK_K": 16}
    turns = np.concatenate([bias[0:32], bias[F : F + 32], bias[32:40], bias[F + 32 :]])
    inputs = host.put(np.int32([n])), host.put(y), host.put(w)
    h, logits, out = host.allocate(4 * n * F), host.allocate(4 * n * V), host.put(x)
    extra = {"HAS_BIAS": has_bias, **tile}
    host.run("gate_up", dtype, {"D": D, "F": F, **extra}, (3, 2), *inputs, host.put(turns) if has_bias else 0, h)
    rows = value(y)
    expected = reference.gate_up(rows, undo(rows), EPS, w[:F], w[F:], bias if has_bias else None)
    close(host.get(h, (n, F), element(dtype)), expected, dtype)
    host.run("lm_head", dtype, {"D": D, "V": V, **tile}, (4, 2), *inputs, logits)
    close(host.get(logits, (n, V)), rows @ value(w[:V]).T, "float32")
    host.run("residual", dtype, {"N": V, "K": D, **extra}, (4, 2), *inputs, host.put(bias) if has_bias else 0, out)
    close(host.get(out, (n, V)), reference.residual(x, rows, w[:V], bias[:V] if has_bias else None), "float32")


BLOCK = manifest.KV_BLOCK


class Attention:
    """Rows over a poisoned cache in which positions have keys of their own."""

    H, KV, HD, QROWS = 4, 2, 8, 16

    def __init__(self, host, dtype, positions, slots, seed=4):
        rng = np.random.default_rng(seed)
        self.blocks = rng.permutation(cdiv(slots, BLOCK) + 1).astype(np.int32)  # one of them is nobody's
        self.host, self.dtype, self.slots = host, dtype, BLOCK * len(self.blocks)
        self.k, self.v = (stored(normal(rng, positions, self.KV, self.HD), dtype) for _ in range(2))
        self.q = stored(normal(rng, 64, self.H, self.HD), dtype)

    def cache(self, slot, position):
        """On the device: slot[i] holds position[i]."""
        cache = np.full((2, self.slots, self.KV, self.HD), POISON[self.dtype])
        lies = self.blocks[slot // BLOCK] * BLOCK + slot % BLOCK
        cache[0, lies], cache[1, lies] = self.k[position], self.v[position]
        return self.host.put(cache)

    def run(self, cache, pos, queries, window=0, masks=None, prefix=0, scratch=0):
        """A text's rows by all splits' kernels and in one go, to the same bits; or a tree's."""
        host, n = self.host, len(pos)
        group = self.H // self.KV
        seen = (
            host.put(np.int32([[prefix if masks is not None else 1 << 30, scratch, 0, 0]] * n)),
            host.put(self.blocks),
        )
        tiles = [[at, min(at + self.QROWS, n * group)] for at in range(0, n * group, self.QROWS)]
        listed = host.put(np.int32([*tiles, [0, 0]]))
        v = cache + self.slots * self.KV * self.HD * np.dtype(element(self.dtype)).itemsize
        splits = manifest.splits_of(max(pos) + 1)
        count, places = host.put(np.int32([n])), host.put(np.int32(pos))
        reads = *seen, host.put(self.q[queries]), cache, v
        sizes = {"H": self.H, "KV": self.KV, "HD": self.HD}
        tile = {**sizes, "SCALE": self.HD**-0.5, "QROWS": self.QROWS, "KEYS": 64}
        acc, ml = host.allocate(4 * n * self.H * splits * self.HD), host.allocate(8 * n * self.H * splits)
        one, other = (host.allocate(4 * n * self.H * self.HD) for _ in range(2))
        w, s = np.int32(window), np.int32(splits)
        grid = len(tiles) + 1, self.KV, splits
        host.run("attention_split", self.dtype, tile, grid, listed, places, *reads, acc, ml, w, s)
        if masks is None:
            host.run("attention_serial", self.dtype, tile, (len(tiles), self.KV), listed, places, *reads, other, w)
        else:
            grid, bits = (n, self.KV, cdiv(group, self.QROWS)), host.put(np.uint64(masks))
            host.run("attention_branch", self.dtype, tile, grid, count, places, bits, *reads, acc, ml, w, s)
            other = one
        host.run("attention_merge", self.dtype, sizes, (n, self.H), count, places, acc, ml, one, s)
        one, other = (host.get(a, (n, self.H, self.HD), element(self.dtype)) for a in (one, other))
        assert np.array_equal(one, other)
        return one

    def expected(self, queries, paths, window=0):
        keys, values = ([value(t)[p] for p in paths] for t in (self.k, self.v))
        return reference.attention(value(self.q[queries]), keys, values, window, self.HD**-0.5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", [0, 40])
def test_causal_attention(host, dtype, window):
    case = Attention(host, dtype, 600, 700)
    cache, pos = case.cache(np.arange(600), np.arange(600)), [0, 31, 32, 300, 599]
    found = case.run(cache, pos, [0, 1, 2, 3, 4], window)
    close(found, case.expected([0, 1, 2, 3, 4], [np.arange(p + 1) for p in pos], window), dtype)
    assert np.array_equal(case.run(cache, [300], [3], window)[0], found[3])


@pytest.mark.parametrize("dtype", DTYPES)
def test_tree_attention_has_the_bits_of_each_path_alone(host, dtype):
    prefix, scratch = 250, 300
    parents = [-1, 0, 0, 2, 3, 1, 3, 6, 7, 7]
    paths = [[0]]
    for i, p in enumerate(parents[1:], 1):
        paths.append([*paths[p], i])
    case = Attention(host, dtype, prefix + len(parents), 512)
    slots = np.concatenate([np.arange(prefix), scratch + np.arange(len(parents))])
    pos = [prefix + len(path) - 1 for path in paths]
    masks = [sum(1 << i for i in path) for path in paths]
    rows = list(range(len(parents)))
    found = case.run(case.cache(slots, np.arange(len(slots))), pos, rows, 0, masks, prefix, scratch)
    texts = [np.concatenate([np.arange(prefix), prefix + np.int64(path)]) for path in paths]
    close(found, case.expected(rows, texts), dtype)
    for i in (4, 9):
        alone = case.run(case.cache(np.arange(len(texts[i])), texts[i]), [pos[i]], [i])
        assert np.array_equal(alone[0], found[i])


def test_topk(host):
    rng = np.random.default_rng(5)
    n, V, k, block, seed, scale = 2, 300, 5, 128, -7, 0.8
    logits = normal(rng, n, V)
    scores = logits.copy()
    scores[0, :50], scores[1, [7, 200]], scores[1, 3] = -np.inf, 9, np.nan
    pos, blocks = [11, 300], cdiv(V, block)
    part = [host.allocate(n * blocks * 64 * 4) for _ in range(2)] + [host.allocate(n * blocks * 12)]
    x, y = host.put(logits), host.put(scores)
    out = [host.allocate(n * 64 * 4) for _ in range(2)] + [host.allocate(n * 4) for _ in range(2)]
    count = np.int32(k)
    for noisy in (0, 1):
        scalars = host.put(np.int64([seed])), host.put(np.float32([scale])), np.int32(noisy), np.int32(1), count
        row = host.put(np.int32(pos))
        host.run("topk_partial", "float32", {"V": V, "BLOCK": block}, (blocks, n), x, y, row, *scalars, *part)
        host.run("topk_merge", "float32", {"V": V, "BLOCKS": blocks}, (n,), x, *part, scalars[1], count, *out)
        ids, values = host.get(out[0], (n, 64), np.int32)[:, :k], host.get(out[1], (n, 64))[:, :k]
        noise = np.array([reference.gumbel(seed, p, V, 1) for p in pos]) if noisy else None
        expected, _, lse, mass = reference.topk(logits, k, np.nan_to_num(scores, nan=-np.inf), scale, noise)
        assert np.array_equal(ids, expected)
        assert np.array_equal(values, np.take_along_axis(logits, ids, 1))
        assert np.allclose(host.get(out[2], n), lse, rtol=1e-6)
        assert np.allclose(host.get(out[3], n), mass, rtol=1e-5)


def test_topk_says_where_fewer_are_left_and_where_logits_are_bad(host):
    logits = np.full((1, 20), -np.inf, np.float32)
    logits[0, 4] = 1
    x, pos, k = host.put(logits), host.put(np.int32([0])), np.int32(2)
    part = [host.allocate(2 * 64 * 4) for _ in range(2)] + [host.allocate(24)]
    out = [host.allocate(64 * 4) for _ in range(2)] + [host.allocate(4) for _ in range(2)]
    zero = np.int32(0)
    host.run("topk_partial", "float32", {"V": 20, "BLOCK": 16}, (2, 1), x, x, pos, host.put(np.int64([0])),
             host.put(np.float32([1])), zero, zero, k, *part)  # fmt: skip
    host.run("topk_merge", "float32", {"V": 20, "BLOCKS": 2}, (1,), x, *part, host.put(np.float32([1])), k, *out)
    assert host.get(out[0], 64, np.int32)[:2].tolist() == [4, -1]
    assert host.get(out[1], 64)[:2].tolist() == [1, -np.inf]
    assert not np.isfinite(host.get(out[2], 1)[0])


def test_move_rows(host):
    cache = np.arange(2 * 2 * 6 * 4, dtype=np.float16).reshape(2, 2, 6, 4)
    address, moves = host.put(cache), np.int32([[5, 1], [1, 2], [4, 0]])
    arguments = np.int32(3), np.int64(48), np.int64(24)
    host.run("move_rows", "float16", {"WIDTH": 4, "BLOCK": 16}, (2, 2, 1), address, host.put(moves), *arguments)
    for source, target in moves:
        cache[:, :, target] = cache[:, :, source]
    assert np.array_equal(host.get(address, cache.shape, np.float16), cache)


def test_probes_do_their_sums(host):
    data = np.arange(100, dtype=np.int32)
    out = host.allocate(16)
    constants = {"BLOCK": 16, "ITERATIONS": 2}
    host.run("read_probe", "float32", constants, (4,), host.put(data), out, np.int64(100))
    assert host.get(out, 4, np.int32).tolist() == [data[i : i + 32].sum() for i in range(0, 100, 32)]
    host.run("dot_probe", "float32", {}, (4,), out, np.int32(3))
    assert (host.get(out, 4) == 3).all()
