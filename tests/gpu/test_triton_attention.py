"""Triton's attention in the interpreter: against the oracle, and to the bit against itself.

Slots that nothing wrote hold NaN. Texts run split by split with a merge, and in one go; trees split by split, and then
along their branches.
"""

import numpy as np
import pytest

import reference as ref
from cases import Shape
from marks import exhaustive
from op_data import path, random_tree
from reference import stored, value
from triton_interpreter import DTYPES, ON_GPU, Pack, cdiv, interpreter_fixture, manifest, unwritten  # noqa: F401

TOLERANCE = {"float32": 2e-5, "float16": 2e-3, "bfloat16": 1.6e-2}  # probabilities are rounded, too
HEADS = [(1, 1, 2), (4, 2, 10), (3, 1, 16), (2, 2, 24), (6, 2, 64), (1, 1, 80), (8, 1, 96), (16, 1, 128), (40, 1, 4)]
FEW = [(2, 1, 10), (3, 1, 24)]
BLOCK, FAR = manifest.KV_BLOCK, 1 << 30


class Attention:
    """Random keys and values by position, and a cache that has some of them."""

    def __init__(self, interpreter, heads, dtype, positions, slots, rows, seed=0):
        self.H, self.KV, self.HD = heads
        self.pack = Pack(interpreter, Shape("", D=1, H=self.H, n_kv=self.KV, d=self.HD, F=1, V=1), dtype)
        rng = np.random.default_rng(seed)
        shape = positions, self.KV, self.HD
        self.k, self.v = (stored(rng.standard_normal(shape).astype(np.float32), dtype) for _ in range(2))
        self.q = stored(rng.standard_normal((rows, self.H, self.HD)).astype(np.float32), dtype)
        self.blocks = rng.permutation(cdiv(slots, BLOCK) + 1).astype(np.int32)  # one of them is nobody's
        self.dtype, self.cache = dtype, unwritten((2, BLOCK * len(self.blocks), self.KV, self.HD), dtype)

    def write(self, slots, positions):
        """The cache with these slots, and no others, written."""
        cache, slots = unwritten(self.cache.shape, self.dtype), np.asarray(slots)
        lies = self.blocks[slots // BLOCK] * BLOCK + slots % BLOCK
        cache[0][lies], cache[1][lies] = self.k[positions], self.v[positions]
        self.cache = cache

    def run(self, pos, queries, window=0, masks=None, prefix=0, scratch=0):
        """[n, H, HD] of a text's rows by all splits' kernels and in one go, to the same bits; or of a tree's."""
        return self.run_all([(pos, queries, masks, prefix, scratch, self.blocks)], window)

    def run_all(self, texts, window=0):
        """Texts in one call: (pos, queries, masks, prefix, scratch, blocks) each.

        Buckets have room for two rows and splits more.
        """
        group, H, HD = self.H // self.KV, self.H, self.HD
        pos, queries, masks, views, tables, tiles = [], [], [], [], [], []
        for its_pos, its_queries, its_masks, prefix, scratch, blocks in texts:
            begin, end = len(pos) * group, (len(pos) + len(its_pos)) * group
            tiles += [[at, min(at + 16, end)] for at in range(begin, end, 16)]
            views += [[FAR if its_masks is None else prefix, scratch, len(tables), 0]] * len(its_pos)
            masks += [0] * len(its_pos) if its_masks is None else [*its_masks]
            pos, queries, tables = [*pos, *its_pos], [*queries, *its_queries], [*tables, *blocks]
        n = len(pos)
        count, tiles = np.int32([n]), np.int32([*tiles, [0, 0], [0, 0]])
        views, tables = np.int32([*views, [0] * 4, [0] * 4]), np.int32(tables)
        known = manifest.splits_of(int(max(pos)) + 1)
        pos, reads = np.int32([*pos, 0, 0]), (views, tables, self.q[queries].copy(), self.cache[0], self.cache[1])
        splits = known + 2
        acc = np.full((n, H, splits, HD), np.nan, np.float32)
        ml = np.full((n, H, splits, 2), np.nan, np.float32)
        out = unwritten((n + 2, H, HD), self.dtype)
        grid = len(tiles), self.KV, splits
        self.pack.run("attention_split", grid, tiles, pos, *reads, acc, ml, window, splits)
        if any(masks):
            masks = np.uint64([*masks, 0, 0]).view(np.int64)
            grid = n + 2, self.KV, cdiv(group, 16)
            self.pack.run("attention_branch", grid, count, pos, masks, *reads, acc, ml, window, splits)
        self.pack.run("attention_merge", (n + 2, H), count, pos, acc, ml, out, splits)
        if not any(masks):
            other = unwritten(out.shape, self.dtype)
            self.pack.run("attention_serial", (len(tiles) - 2, self.KV), tiles, pos, *reads, other, window)
            assert out.tobytes() == other.tobytes()
        assert np.isnan(value(out[n:])).all()
        assert np.isnan(ml[:, :, known:]).all() and np.isnan(acc[ml[..., 1] == 0]).all()
        return out[:n]

    def check(self, found, queries, paths, window=0):
        keys, values = ([value(t)[p] for p in paths] for t in (self.k, self.v))
        expected = ref.attention(value(self.q[queries]), keys, values, window, self.HD**-0.5)
        assert np.abs(value(found) - expected).max() <= TOLERANCE[self.dtype]


def alternate(*cases):
    """Each case with one of the dtypes, in turn, for the interpreter is slow; on a GPU with each."""
    return [(*case, dtype) for i, case in enumerate(cases) for dtype in (DTYPES if ON_GPU else [DTYPES[i % 2]])]


@pytest.mark.parametrize("heads, dtype", alternate(*[(h,) for h in HEADS]), ids=str)
def test_heads(interpreter, heads, dtype):
    """Two rows of a text that has two splits; then one of them alone, in a cache that ends with it."""
    case = Attention(interpreter, heads, dtype, 290, 300, 2)
    case.write(np.arange(290), np.arange(290))
    found = case.run([288, 289], [0, 1])
    case.check(found, [0, 1], [np.arange(p + 1) for p in (288, 289)])
    case.write(np.arange(289), np.arange(289))
    assert case.run([288], [0]).tobytes() == found[0].tobytes()


@pytest.mark.parametrize(
    "first, n, window, dtype",
    alternate((0, 1, 0), (0, 1, 7), (0, 20, 7), (0, 20, 0), (505, 10, 0), (505, 10, 260), (505, 10, 7)),
)
def test_causal(interpreter, first, n, window, dtype):
    """A text's rows, and each alone: the same bits. What is out of every window holds NaN."""
    case = Attention(interpreter, FEW[1], dtype, first + n, first + n + 9, n)
    pos = np.arange(first, first + n)
    seen = np.arange(max(first - window + 1, 0) if window else 0, first + n)
    case.write(seen, seen)
    found = case.run(pos, pos - first, window)
    case.check(found, pos - first, [np.arange(p + 1) for p in pos], window)
    for i in sorted({0, n // 3, n - 1}):
        p = first + i
        seen = np.arange(max(p - window + 1, 0) if window else 0, p + 1)
        case.write(seen, seen)
        assert case.run([p], [i], window).tobytes() == found[i].tobytes()


@pytest.mark.parametrize(
    "prefix, nodes, window, dtype",
    alternate((0, 1, 0), (0, 9, 0), (30, 64, 0), (30, 64, 9), (250, 20, 9), (250, 20, 0), (512, 5, 0), (512, 5, 9)),
)
def test_tree(interpreter, prefix, nodes, window, dtype):
    """A row of a tree has the bits of the same text decoded alone, where slots are positions."""
    rng = np.random.default_rng(prefix + nodes)
    parents = random_tree(rng, nodes)
    paths = [path(parents, i) for i in range(nodes)]
    texts = [np.r_[:prefix, prefix + np.int64(p)] for p in paths]
    masks = [sum(1 << j for j in p) for p in paths]
    pos = np.int32([prefix + len(p) - 1 for p in paths])
    scratch = prefix + 5
    case = Attention(interpreter, FEW[nodes % 2], dtype, prefix + nodes, scratch + 64, nodes)
    rows = np.r_[rng.permutation(nodes - 1)[:9], nodes - 1]
    visible = np.arange(max(pos[rows].min() - window + 1, 0) if window else 0, prefix)
    case.write(np.r_[visible, scratch : scratch + nodes], np.r_[visible, prefix : prefix + nodes])

    def run(rows):
        return case.run(pos[rows], rows, window, [masks[i] for i in rows], prefix, scratch)

    found = run(rows)
    case.check(found, rows, [texts[i] for i in rows], window)
    few = rows[-3:][::-1]
    assert run(few).tobytes() == found[-3:][::-1].tobytes()
    for i in few[:2]:
        case.write(np.arange(len(texts[i])), texts[i])
        assert case.run([pos[i]], [i], window).tobytes() == found[list(rows).index(i)].tobytes()


@pytest.mark.parametrize("end, window", [(6144, 2000), *exhaustive((6144, 0), (16384, 0), (33792, 0), (33792, 600))])
def test_long_text(interpreter, end, window):
    """Where splits are longer: a branch across the boundary `end` of two."""
    case = Attention(interpreter, (2, 1, 4), "float32", end + 50, end + 60, 4)
    shared = np.arange(end - 1)
    texts = [np.r_[shared, end - 1], np.r_[shared, end - 1, end], np.r_[shared, end + 6, end + 16]]
    branches = [end - 1, end, end + 6, end + 16]
    case.write(np.r_[shared, end + 1 + np.arange(4)], np.r_[shared, branches])
    masks, pos = [0b0001, 0b0011, 0b1100], [end - 1, end, end]
    found = case.run(pos, [0, 1, 3], window, masks, end - 1, end + 1)
    case.check(found, [0, 1, 3], texts, window)
    case.write(np.arange(end + 1), texts[2])
    assert case.run([end], [3], window).tobytes() == found[2].tobytes()


@pytest.mark.parametrize("window, dtype", alternate((0,), (40,)))
def test_sequences(interpreter, window, dtype):
    """A tree, a prompt's rows, a lone row and a text that shares the prompt's first block: together as alone."""
    case = Attention(interpreter, (6, 2, 10), dtype, 700, 13 * BLOCK, 12, seed=3)
    b = case.blocks
    tables = b[:2], b[2:4], b[4:10], np.r_[b[2], b[10]]
    lengths = 70 + 5, 90, 300, 80
    slots, positions, at = [], [], 0
    for blocks, length in zip(tables, lengths):
        every = np.arange(length)
        slots.append(blocks[every // BLOCK] * BLOCK + every % BLOCK)
        positions.append(at + every)
        at += length
    case.blocks, own = np.arange(len(b)), case.blocks
    positions[3][:BLOCK] = positions[1][:BLOCK]
    case.write(np.concatenate(slots), np.concatenate(positions))
    case.blocks = own
    tree = [70, 71, 71, 72, 72], [0, 1, 2, 3, 4], [0b1, 0b11, 0b101, 0b1011, 0b10101], 70, 70, tables[0]
    prompt = np.arange(84, 90), np.arange(6) + 5, None, 0, 0, tables[1]
    texts = [tree, ([299], [11], None, 0, 0, tables[2]), ([79], [3], None, 0, 0, tables[3]), prompt]
    alone = [case.run_all([text], window) for text in texts]
    assert case.run_all(texts, window).tobytes() == b"".join(one.tobytes() for one in alone)
    assert case.run_all(texts[1:], window).tobytes() == b"".join(one.tobytes() for one in alone[1:])
    case.check(alone[2], [3], [positions[3]], window)


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_scores(interpreter, dtype):
    """Scores of a hundred: exponentials must not overflow, and the largest wins."""
    case = Attention(interpreter, (1, 1, 16), dtype, 300, 300, 1)
    case.k, case.q = (stored(8 * value(t), dtype) for t in (case.k, case.q))
    case.write(np.arange(300), np.arange(300))
    case.check(case.run([299], [0]), [0], [np.arange(300)])
