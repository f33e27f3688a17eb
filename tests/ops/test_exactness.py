"""The promises of the ops, by bits: a row does not depend on its company, its slots, its tree or the threads."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from swiftk._testing import ops

from cases import CACHES, DTYPES, EPS, LOW_BIT, Shape
from marks import exhaustive
from op_data import Keys, angles, causal_rows, normal, path, random_tree, tree_parts, tree_rows, weight

ISAS = ops.isas()
THREADS = [1, 2, 3]
SHAPE = Shape("exact", D=523, H=6, n_kv=2, d=36, F=145, V=333)  # several tiles of k, none whole

each_isa = pytest.mark.parametrize("isa", ISAS)
each_dtype = pytest.mark.parametrize("dtype", DTYPES)
each_cache = pytest.mark.parametrize("dtype", CACHES)
each_weight = pytest.mark.parametrize("dtype", [*DTYPES, *LOW_BIT])


def same(a, b):
    return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


class Layer:
    """The ops with a weight, packed, as functions of some rows of the same 230 inputs."""

    N = 230

    def __init__(self, isa, dtype):
        rng = np.random.default_rng(5)
        source, s = "bfloat16" if dtype in LOW_BIT else dtype, SHAPE
        self.dtype = "int8" if dtype == "int8" else source  # of the cache
        self.make = lambda threads: ops.Kernels(isa, threads)
        k = self.make(1)
        draw = lambda op: weight(rng, *s.matrix(op), source)  # noqa: E731
        qkv, gate_up = draw("qkv"), draw("gate_up")
        self.qkv_w = k.pack([qkv[: s.H * s.d], qkv[s.H * s.d : -s.n_kv * s.d], qkv[-s.n_kv * s.d :]], dtype, group=s.d)
        self.gate_up_w = k.pack([gate_up[: s.F], gate_up[s.F :]], dtype, group=32, interleave=True)
        self.down_w, self.head_w = k.pack([draw("down")], dtype), k.pack([draw("lm_head")], dtype)
        self.x, self.h = normal(rng, self.N, s.D), normal(rng, self.N, s.F)
        self.norm, self.head_norm = normal(rng, s.D), normal(rng, s.d)

    def run(self, threads, rows):
        k, s = self.make(threads), SHAPE
        x, rows = self.x[rows], np.asarray(rows)
        cache = k.cache(s.n_kv, s.d, self.N, self.dtype)
        q = k.qkv(x, self.norm, EPS, self.qkv_w, causal_rows(rows, s.d), cache, s.H, self.head_norm, self.head_norm)
        # With a window of one, the value that was stored; the key shows in test_chunks_of_a_prompt.
        v = k.attention(q, causal_rows(rows, s.d), cache, 1, 1.0)
        return [
            q,
            v,
            k.gate_up(x, self.norm, EPS, self.gate_up_w),
            k.residual(self.h[rows], self.down_w, x, down=True),
            k.lm_head(x, self.norm, EPS, self.head_w),
        ]


@each_isa
@each_weight
def test_rows_do_not_depend_on_their_company(isa, dtype):
    layer = Layer(isa, dtype)
    alone = [np.concatenate(out) for out in zip(*(layer.run(1, [i]) for i in range(layer.N)))]
    rng = np.random.default_rng(1)
    batches = [list(range(n)) for n in (*range(2, 32), 64, layer.N)]
    batches += [sorted(rng.choice(layer.N, int(rng.integers(2, 65)), replace=False)) for _ in range(12)]
    for i, rows in enumerate(batches):
        for got, want in zip(layer.run(THREADS[i % 3], rows), alone):
            assert same(got, want[rows]), f"{len(rows)} rows"


@each_isa
def test_segments_of_unlike_formats(isa):
    """Each part of a matrix is multiplied as it is in a matrix of its own format alone."""
    s, rng, n = SHAPE, np.random.default_rng(6), 29
    k, rows = ops.Kernels(isa, 3), np.arange(29)
    x, h, norm, head_norm = normal(rng, n, s.D), normal(rng, n, s.F), normal(rng, s.D), normal(rng, s.d)
    wide = weight(rng, *s.matrix("qkv"), "bfloat16")
    parts = [wide[: s.H * s.d], wide[s.H * s.d : -s.n_kv * s.d], wide[-s.n_kv * s.d :]]

    def qkv(w):
        cache = k.cache(s.n_kv, s.d, n, "bfloat16")
        q = k.qkv(x, norm, EPS, w, causal_rows(rows, s.d), cache, s.H, head_norm, head_norm)
        return q, *np.split(k.read_rows(cache, rows, 2 * s.n_kv * s.d).reshape(n, s.n_kv, 2, s.d), 2, axis=2)

    bias = normal(rng, len(wide))
    for formats in (("int4", "bfloat16", "int8"), ("int3", "float32", "int3"), ("bfloat16",) * 3):
        joined = k.join([k.pack([part], f, group=s.d) for part, f in zip(parts, formats)], bias=bias)
        alone = {f: qkv(k.pack(parts, f, group=s.d, bias=bias)) for f in formats}
        for i, (got, f) in enumerate(zip(qkv(joined), formats)):
            assert same(got, alone[f][i]), f"part {i}, {f}"

    gate_up = weight(rng, *s.matrix("gate_up"), "bfloat16")
    gate, up = gate_up[: s.F], gate_up[s.F :]
    pair = k.join([k.pack([part], "int4") for part in (gate, up)])
    assert same(k.gate_up(x, norm, EPS, pair), k.gate_up(x, norm, EPS, k.pack([gate, up], "int4", 32, True)))

    down = weight(rng, *s.matrix("down"), "bfloat16")
    top, bottom = (k.pack([part], f) for part, f in ((down[:96], "float16"), (down[96:], "int8")))
    want = [k.residual(h, w, x[:, part].copy(), down=True) for w, part in ((top, slice(96)), (bottom, slice(96, None)))]
    assert same(k.residual(h, k.join([top, bottom]), x, down=True), np.concatenate(want, axis=1))


def one_by_one(kernels, keys, positions, q, window, d, dtype):
    """Attention of single causal rows in a cache of their own, as plain decoding has it."""
    n, n_kv = keys.k.shape[:2]
    cache = kernels.cache(n_kv, d, n, dtype)
    keys.write(kernels, cache, range(n), slice(None))
    return np.concatenate(
        [kernels.attention(q[i : i + 1], causal_rows([p], d), cache, window, d**-0.5) for i, p in enumerate(positions)]
    )


@each_isa
@each_cache
@pytest.mark.parametrize("heads", [(4, 4, 34), (8, 2, 16), *exhaustive(((5, 1, 64),))], ids=str)
@pytest.mark.parametrize("window", [0, 700, *exhaustive(5)])
def test_attention_rows_do_not_depend_on_their_company(isa, dtype, heads, window):
    H, n_kv, d = heads
    n = 1100
    rng = np.random.default_rng(n + d)
    keys, one = Keys(rng, n, n_kv, d, dtype), ops.Kernels(isa, 1)
    pos = np.unique([*range(0, 20), *range(505, 530), *range(1015, 1035), *range(1080, n), *rng.integers(0, n, 30)])
    q = normal(rng, len(pos), H, d)
    alone = one_by_one(one, keys, pos, q, window, d, dtype)
    for threads in THREADS:
        kernels = ops.Kernels(isa, threads)
        cache = kernels.cache(n_kv, d, n + 77, dtype)  # another capacity, poison after
        keys.write(kernels, cache, range(n), slice(None))
        for size in (2, 7, 13, 64, len(pos)):
            which = np.sort(rng.choice(len(pos), size, replace=False))
            got = kernels.attention(q[which], causal_rows(pos[which], d), cache, window, d**-0.5)
            assert same(got, alone[which]), f"{size} rows, {threads} threads"


@each_isa
@each_cache
def test_attention_reads_no_slot_that_a_row_does_not_see(isa, dtype):
    """The bits are those of a cache in which everything else is NaN."""
    H, n_kv, d, n = 4, 2, 24, 600
    rng = np.random.default_rng(2)
    keys, kernels = Keys(rng, n, n_kv, d, dtype), ops.Kernels(isa, 2)
    full = kernels.cache(n_kv, d, n, dtype)
    keys.write(kernels, full, range(n), slice(None))
    for window in (0, 40):
        for first, last in ((3, 9), (37, 38), (509, 515), (560, 580)):
            seen = list(range(max(0, first - window + 1) if window else 0, last))
            bare = kernels.cache(n_kv, d, n, dtype)
            keys.write(kernels, bare, seen, seen)
            q, rows = normal(rng, last - first, H, d), causal_rows(range(first, last), d)
            a, b = (kernels.attention(q, rows, c, window, 0.2) for c in (full, bare))
            assert np.isfinite(b).all() and same(a, b)


@given(
    isa=st.sampled_from(ISAS),
    dtype=st.sampled_from(CACHES),
    threads=st.sampled_from(THREADS),
    heads=st.sampled_from([(2, 2, 6), (6, 2, 32), (3, 1, 18)]),
    prefix=st.one_of(st.integers(0, 40), st.integers(490, 530), st.integers(1000, 1030)),
    gap=st.integers(0, 40),
    nodes=st.integers(1, 64),
    window=st.sampled_from([0, 0, 1, 3, 30, 515]),
    seed=st.integers(0, 10**6),
)
def test_tree_rows_have_the_bits_of_their_path(isa, dtype, threads, heads, prefix, gap, nodes, window, seed):
    """Every node equals the last row of its root-leaf path run as a chain; so does any part of the tree run alone."""
    H, n_kv, d = heads
    rng = np.random.default_rng(seed)
    parents, scratch = random_tree(rng, nodes), prefix + gap
    kernels = ops.Kernels(isa, threads)
    keys = Keys(rng, prefix + nodes, n_kv, d, dtype)
    cache = kernels.cache(n_kv, d, scratch + 64, dtype)
    keys.write(kernels, cache, [*range(prefix), *range(scratch, scratch + nodes)], slice(None))
    q = normal(rng, nodes, H, d)
    tree = kernels.attention(q, tree_rows(parents, d, prefix, scratch), cache, window, 0.3)
    assert np.isfinite(tree).all()
    some = np.sort(rng.choice(nodes, int(rng.integers(1, nodes + 1)), replace=False))
    part = kernels.attention(q[some], tree_rows(parents, d, prefix, scratch, some), cache, window, 0.3)
    assert same(part, tree[some])
    for leaf in set(range(nodes)) - set(parents):
        nodes_of_path = path(parents, leaf)
        chain = kernels.cache(n_kv, d, prefix + len(nodes_of_path), dtype)
        order = [*range(prefix), *(prefix + i for i in nodes_of_path)]
        keys.write(kernels, chain, range(len(order)), order)
        pos = range(prefix, len(order))
        got = kernels.attention(q[nodes_of_path], causal_rows(pos, d), chain, window, 0.3)
        assert same(got, tree[nodes_of_path])
        if prefix > 40:
            break  # long chains are slow to write


BLOCK = 64  # kKvBlock of kernels/ops.h


@given(
    isa=st.sampled_from(ISAS),
    dtype=st.sampled_from(CACHES),
    threads=st.sampled_from(THREADS),
    heads=st.sampled_from([(2, 2, 6), (6, 2, 32), (14, 1, 18)]),
    texts=st.lists(
        st.tuples(st.one_of(st.integers(1, 70), st.integers(500, 530)), st.integers(0, 24)), min_size=1, max_size=6
    ),
    window=st.sampled_from([0, 0, 3, 515]),
    seed=st.integers(0, 10**6),
)
def test_sequences_have_their_bits_in_any_company_and_any_blocks(isa, dtype, threads, heads, texts, window, seed):
    """Texts of (prefix, tree nodes; 0: its last rows, causal) in one call, their blocks strewn over one cache, equal
    each of them alone in a cache of its own, where blocks lie in order."""
    H, n_kv, d = heads
    rng, kernels = np.random.default_rng(seed), ops.Kernels(isa, threads)
    sizes = [-(-(prefix + nodes) // BLOCK) for prefix, nodes in texts]
    order = rng.permutation(sum(sizes) + 2).tolist()
    cache = kernels.cache(n_kv, d, BLOCK * len(order), dtype)
    rows, views, want, queries = [], [], [], []
    for number, ((prefix, nodes), size) in enumerate(zip(texts, sizes)):
        blocks, order = order[:size], order[size:]
        keys = Keys(rng, prefix + nodes, n_kv, d, dtype)
        lies = [blocks[slot // BLOCK] * BLOCK + slot % BLOCK for slot in range(prefix + nodes)]
        keys.write(kernels, cache, lies, slice(None))
        own = kernels.cache(n_kv, d, BLOCK * (size + 1), dtype)
        keys.write(kernels, own, range(prefix + nodes), slice(None))
        if nodes:
            parts = tree_parts(random_tree(rng, nodes), prefix, prefix)
        else:
            last = np.arange(max(0, prefix - int(rng.integers(1, 20))), prefix, dtype=np.int32)
            parts = last, last, np.zeros(len(last), np.uint64)
        q = normal(rng, len(parts[0]), H, d)
        alone = ops.Rows(*parts[:2], *angles(parts[0], d), parts[2], prefix, prefix)
        want.append(kernels.attention(q, alone, own, window, 0.3))
        views.append((blocks, prefix, prefix))
        rows.append((*parts, np.full(len(parts[0]), number, np.int32)))
        queries.append(q)
    pos, slot, masks, sequence = (np.concatenate(part) for part in zip(*rows))
    together = ops.Rows(pos, slot, *angles(pos, d), masks, sequence=sequence, views=views)
    got = kernels.attention(np.concatenate(queries), together, cache, window, 0.3)
    assert np.isfinite(got).all() and same(got, np.concatenate(want))


@each_isa
@each_weight
def test_chunks_of_a_prompt(isa, dtype):
    """Layer by layer, as the runtime does: K and V of a prompt in any chunks, by any threads, have the same bits."""
    s, n = SHAPE, 90
    layer = Layer(isa, dtype)

    def run(threads, chunk):
        k = layer.make(threads)
        cache = k.cache(s.n_kv, s.d, n, layer.dtype)
        outs = []
        for first in range(0, n, chunk):
            rows = np.arange(first, min(first + chunk, n))
            r = causal_rows(rows, s.d)
            q = k.qkv(layer.x[rows], layer.norm, EPS, layer.qkv_w, r, cache, s.H)
            outs.append(k.attention(q, r, cache, 0, s.d**-0.5))
        return np.concatenate(outs), cache.data

    want, data = run(1, n)
    for threads, chunk in ((1, 1), (2, 1), (3, 7), (2, 33), (3, n)):
        out, other = run(threads, chunk)
        assert same(out, want) and other == data


@each_isa
@pytest.mark.parametrize("noisy", [False, True])
def test_topk_rows_do_not_depend_on_their_company(isa, noisy):
    rng = np.random.default_rng(8)
    logits, pos = 4 * normal(rng, 9, 20000), np.arange(9, dtype=np.int32)
    seed = 77 if noisy else None
    alone = [ops.Kernels(isa, 1).topk(logits[i : i + 1], 20, seed=seed, pos=pos[i : i + 1]) for i in range(9)]
    for threads in THREADS:
        together = ops.Kernels(isa, threads).topk(logits, 20, seed=seed, pos=pos)
        for part, whole in zip(zip(*alone), together):
            assert same(np.concatenate(part), whole)


@each_isa
@each_weight
def test_nan_stays_in_its_row(isa, dtype):
    layer = Layer(isa, dtype)
    clean = layer.run(2, list(range(20)))
    layer.x[7] = np.nan
    layer.h[7] = np.nan
    others = [i for i in range(20) if i != 7]
    for got, want in zip(layer.run(2, list(range(20))), clean):
        assert np.isnan(got[7]).all() and same(got[others], want[others])


@each_isa
@each_dtype
@pytest.mark.parametrize("k", [1, 2, 31, 34, 66])
def test_a_panel_reads_no_other(isa, dtype, k, rng):
    """Lines of the next panel are not even multiplied by zeros: there they are infinite."""
    w = weight(rng, 64, k, dtype)
    w[32:] = np.inf if dtype != "bfloat16" else 0x7F80
    kernels, x = ops.Kernels(isa, 1), np.ones((17, k), np.float32)
    for n in (1, 16, 17):
        out = kernels.residual(x[:n], kernels.pack([w], dtype), np.zeros((n, 64), np.float32))
        assert np.isfinite(out[:, :32]).all() and np.isposinf(out[:, 32:]).all()
