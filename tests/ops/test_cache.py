"""Keys and values in each dtype that a cache has: attention over them against the oracle, moved, read and written.
Slots that nothing wrote hold NaN."""

import numpy as np
import pytest
from swiftk._testing import ops

import reference as ref
from cases import CACHES, EPS, HEADS, SHAPES, attention_tolerance
from marks import exhaustive
from op_data import Keys, assert_close, causal_rows, normal, path, random_tree, size, tree_rows, weight

each_isa = pytest.mark.parametrize("isa", ops.isas())
each_dtype = pytest.mark.parametrize("dtype", CACHES)
SIZES = [(1, 2), (3, 20), (2, 36), (1, 96)]  # KV heads, head dimension


@pytest.mark.parametrize("heads", [*HEADS[1::2], *exhaustive(*((heads,) for heads in HEADS[::2]))], ids=str)
@pytest.mark.parametrize("context, window", [(1, 0), (15, 0), (40, 7), (530, 0), (1100, 600)])
@each_dtype
@each_isa
def test_attention_causal(kernels, heads, context, window, dtype, isa, rng):
    H, n_kv, d = heads
    keys = Keys(rng, context, n_kv, d, dtype)
    cache = kernels.cache(n_kv, d, context + 20, dtype)
    seen = range(max(0, context - window - 12), context) if window else range(context)
    keys.write(kernels, cache, list(seen), list(seen))  # what is out of every window stays NaN
    pos = list(range(max(context - 13, seen[0] + max(window, 1) - 1, 0), context))
    q = normal(rng, len(pos), H, d)
    got = kernels.attention(q, causal_rows(pos, d), cache, window, d**-0.5)
    want = ref.attention(q, [keys.k[: p + 1] for p in pos], [keys.v[: p + 1] for p in pos], window, d**-0.5)
    assert_close(got, want, attention_tolerance(dtype, isa), unit=1)


@pytest.mark.parametrize("heads", HEADS[1::2], ids=str)
@pytest.mark.parametrize("prefix, window, nodes", [(0, 0, 1), (0, 0, 9), (30, 0, 64), (508, 0, 30), (520, 9, 20)])
@each_dtype
@each_isa
def test_attention_tree(kernels, heads, prefix, window, nodes, dtype, isa, rng):
    H, n_kv, d = heads
    parents = random_tree(rng, nodes)
    scratch = prefix + 5  # slots between are never seen
    keys = Keys(rng, prefix + nodes, n_kv, d, dtype)
    cache = kernels.cache(n_kv, d, scratch + 64, dtype)
    slots = list(range(prefix)) + [scratch + i for i in range(nodes)]
    keys.write(kernels, cache, slots, list(range(prefix + nodes)))
    q = normal(rng, nodes, H, d)
    got = kernels.attention(q, tree_rows(parents, d, prefix, scratch), cache, window, d**-0.5)
    sees = [list(range(prefix)) + [prefix + j for j in path(parents, i)] for i in range(nodes)]
    want = ref.attention(q, [keys.k[s] for s in sees], [keys.v[s] for s in sees], window, d**-0.5)
    assert_close(got, want, attention_tolerance(dtype, isa), unit=1)


@each_dtype
@each_isa
def test_attention_with_large_scores(kernels, dtype, isa, rng):
    """Scores of hundreds: exponentials must not overflow, and the largest wins."""
    keys = Keys(rng, 600, 1, 16, dtype)
    keys.k *= 64  # exact in every dtype
    cache = kernels.cache(1, 16, 600, dtype)
    keys.write(kernels, cache, range(600), slice(None))
    q = 8 * normal(rng, 1, 1, 16)
    got = kernels.attention(q, causal_rows([599], 16), cache, 0, 1.0)
    assert_close(got, ref.attention(q, [keys.k], [keys.v], 0, 1.0), 1e-3, unit=1)


@each_dtype
@each_isa
def test_move_row(kernels, dtype, isa, rng):
    keys = Keys(rng, 40, 2, 20, dtype)
    expected, cache = (kernels.cache(2, 20, 40, dtype) for _ in range(2))
    keys.write(kernels, cache, range(40), slice(None))
    moved = np.arange(40)
    for source, target in ((39, 3), (17, 16), (0, 31)):
        kernels.move_row(cache, source, target)
        moved[target] = moved[source]
    keys.write(kernels, expected, range(40), moved)
    assert cache.data == expected.data


@pytest.mark.parametrize(("n_kv", "d", "gap"), [(1, 2, 0), (3, 20, 0), (2, 36, 7)])
@each_dtype
@each_isa
def test_read_rows(kernels, n_kv, d, gap, dtype, isa, rng):
    """To the bit, in any order; what lies between rows of the output stays as it is."""
    keys, width = Keys(rng, 150, n_kv, d, dtype), 2 * n_kv * d
    cache = kernels.cache(n_kv, d, 150, dtype)
    keys.write(kernels, cache, range(150), slice(None))
    slots = np.int32([149, 0, 63, 64, 17, 17])
    got = kernels.read_rows(cache, slots, width + gap)
    want = np.stack([keys.k[slots], keys.v[slots]], 2).reshape(len(slots), width)
    assert got[:, :width].tobytes() == want.tobytes()
    assert (got[:, width:] == 0).all()


@pytest.mark.parametrize(("n_kv", "d", "gap"), [(1, 2, 0), (3, 20, 0), (2, 36, 7)])
@each_dtype
@each_isa
def test_write_rows(kernels, n_kv, d, gap, dtype, isa, rng):
    """The other way: what was read, written to another cache; nothing else of that changes."""
    keys, width = Keys(rng, 150, n_kv, d, dtype), 2 * n_kv * d
    cache, other = kernels.cache(n_kv, d, 150, dtype), kernels.cache(n_kv, d, 150, dtype)
    keys.write(kernels, cache, range(150), slice(None))
    slots = np.int32([149, 0, 63, 64, 17])
    every = np.arange(150, dtype=np.int32)
    read, before = (kernels.read_rows(one, every, width) for one in (cache, other))
    kernels.write_rows(other, slots, kernels.read_rows(cache, slots, width + gap))
    want = np.where(np.isin(every, slots)[:, None], read, before)
    assert kernels.read_rows(other, every, width).tobytes() == want.tobytes()


def numbers(rng, n, n_kv, d):
    """[n, n_kv, d] of every size, zeros and ties among them."""
    x = normal(rng, n, n_kv, d) * np.float32(10) ** rng.integers(-30, 30, (n, n_kv, 1)).astype(np.float32)
    x[0], x[1, :, 1:], x[2] = 0, 0, -x[2]
    x[3] = np.float32(2.0**-149) * rng.integers(-9, 9, (n_kv, d))  # denormal: zeros
    x[4] = np.float32(3e38)
    x[5] = np.linspace(-127, 127, d) // 1 + 0.5
    x[5, :, 0] = 127
    x[6] = np.float32(2.0**-120) * normal(rng, n_kv, d)
    x[7, :, 0] = np.finfo(np.float32).max
    return x


def read(kernels, cache, n, n_kv, d):
    """K and V [n, n_kv, d] of the first slots."""
    rows = kernels.read_rows(cache, np.arange(n, dtype=np.int32), 2 * n_kv * d).reshape(n, n_kv, 2, d)
    return rows[:, :, 0], rows[:, :, 1]


@pytest.mark.parametrize(("n_kv", "d"), SIZES)
@each_isa
def test_int8_rounds_to_the_nearest_code(kernels, n_kv, d, isa, rng):
    """Bit for bit the oracle's; so half a step, 1/254 of the largest number, is the largest error."""
    n = 70
    k, v = numbers(rng, n, n_kv, d), numbers(rng, n, n_kv, d)
    cache = kernels.cache(n_kv, d, n, "int8")
    kernels.set_rows(cache, np.arange(n, dtype=np.int32), k, v)
    for got, x in zip(read(kernels, cache, n, n_kv, d), (k, v)):
        assert got.tobytes() == ref.cached(x, "int8").tobytes()
        most = np.abs(x).max(-1, keepdims=True).astype(np.float64)
        assert (np.abs(got.astype(np.float64) - x) <= most * (1 + 2.0**-12) / 254 + 2.0**-103).all()


@pytest.mark.parametrize(("n_kv", "d"), SIZES)
@each_isa
def test_int8_that_is_read_and_written_stays_as_it_is(kernels, n_kv, d, isa, rng):
    """Its codes and its scales. Numbers that are not finite make a key or a value NaN, and no other."""
    n = 2000
    k, v = numbers(rng, n, n_kv, d), numbers(rng, n, n_kv, d)
    k[20, :, 0], v[21, :, -1], k[22], v[23] = np.inf, -np.inf, np.nan, np.inf
    cache, other = (kernels.cache(n_kv, d, n, "int8") for _ in range(2))
    slots = np.arange(n, dtype=np.int32)
    kernels.set_rows(cache, slots, k, v)
    rows = kernels.read_rows(cache, slots, 2 * n_kv * d)
    kernels.write_rows(other, slots, rows)
    assert other.data == cache.data
    for got, broken in zip(read(kernels, cache, n, n_kv, d), ([20, 22], [21, 23])):
        assert np.isnan(got[broken]).all() and np.isfinite(np.delete(got, broken, 0)).all()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)
@pytest.mark.parametrize("n", [1, 5, 17])
@each_isa
def test_int8_of_computed_keys_and_values(kernels, shape, n, isa, rng):
    """What qkv stores is what it computes for a cache of float32, rounded; attention then reads that."""
    s, pos = shape, np.arange(n)
    w = kernels.pack(
        [weight(rng, heads * s.d, s.D, "float32") for heads in (s.H, s.n_kv, s.n_kv)], "float32", group=s.d
    )
    x, norm, head_norm = normal(rng, n, s.D), normal(rng, s.D), normal(rng, s.d)
    whole, coded = (kernels.cache(s.n_kv, s.d, n, dtype) for dtype in ("float32", "int8"))
    for cache in (whole, coded):
        q = kernels.qkv(x, norm, EPS, w, causal_rows(pos, s.d), cache, s.H, head_norm, head_norm)
    exact, got = (read(kernels, cache, n, s.n_kv, s.d) for cache in (whole, coded))
    for a, b in zip(exact, got):
        assert b.tobytes() == ref.cached(a, "int8").tobytes()
    out = kernels.attention(q, causal_rows(pos, s.d), coded, 0, 0.3, 5.0)
    want = ref.attention(q, [got[0][: p + 1] for p in pos], [got[1][: p + 1] for p in pos], 0, 0.3, 5.0)
    assert_close(out, want, attention_tolerance("int8", isa) * 4, unit=size(got[1]))
