"""Single ops with the shapes of real models: bandwidth of one row, price of 8 and 12 rows, operations of a prefill; and
matmuls of what drafts may read, low-bit copies and upper bytes of the weights, beside the weights themselves.

Copies of a weight take turns, so that no cache holds what the next call reads; row counts take turns, so that all see
the same machine.
"""

from itertools import cycle
from statistics import median
from time import perf_counter

import numpy as np
import pytest

from cases import EPS, LOW_BIT, MATMULS, MODELS, Shape
from swiftk import _testing

ROWS = [1, 8, 12, 512]
DTYPE = "bfloat16"
COLD_BYTES = 256 << 20
CONTEXTS = [512, 4096]
HALVES = ["float16", "planes", "upper"]  # float16: as it is; in two planes; the upper one alone
DRAFT_ROWS = [1, 4, 8, 32]  # a draft step, beams, a scored window
READS = {"MB": "MB:.1f", "us, 1 row": "us:.0f", "GB/s": "GB_per_s:.1f", "% of reads": "of_reads:.0%"}
COLUMNS = {"op": "op", **READS, "v(8)": "v8:.2f", "v(12)": "v12:.2f"}
COLUMNS |= {"GFLOP/s, 512 rows": "GFLOP_per_s:.0f", "% of peak": "of_peak:.0%"}
LOW_BIT_COLUMNS = {"op": "op", "weights": "weights", **READS, **{f"c({n})": f"c{n}:.2f" for n in DRAFT_ROWS}}


def matrix(rows, columns):
    """Ordinary values: what they are costs nothing, but zeros, denormals and NaN might."""
    block = np.random.default_rng(rows + 31 * columns).standard_normal((16, columns), np.float32) / columns**0.5
    bits = (block.view(np.uint32) >> 16).astype(np.uint16)
    return np.ascontiguousarray(np.tile(bits, (-(-rows // 16), 1))[:rows])


def vectors(*shape):
    return np.random.default_rng(shape[0]).standard_normal(shape, np.float32)


def rows_after(n, d, first):
    """n rows of a text after `first` cached ones; slot == position."""
    at = np.arange(first, first + n, dtype=np.int32)
    angle = at[:, None] * np.ones((1, d // 2), np.float32) / 100
    return _testing.ops.Rows(at, at, np.cos(angle), np.sin(angle))


def packer(k, s, op):
    """pack(dtype): a fresh copy of the op's weight."""
    sizes = {"qkv": [s.H * s.d, s.n_kv * s.d, s.n_kv * s.d], "gate_up": [s.F, s.F]}.get(op, [s.matrix(op)[0]])
    parts = [matrix(rows, s.matrix(op)[1]) for rows in sizes]
    layout = {"qkv": {"group": s.d}, "gate_up": {"group": 32, "interleave": True}}.get(op, {})
    return lambda dtype=DTYPE: k.pack(parts, dtype, **layout)


def runner(k, s, op, counts):
    """run(weight, n): the op over n rows, for each n of `counts`."""
    x = {n: vectors(n, s.matrix(op)[1]) for n in counts}
    norm = np.ones(s.D, np.float32)
    if op == "qkv":
        cache, rows = k.cache(s.n_kv, s.d, max(counts), DTYPE), {n: rows_after(n, s.d, 0) for n in counts}
        return lambda w, n: k.qkv(x[n], norm, EPS, w, rows[n], cache, s.H)
    if op == "gate_up":
        return lambda w, n: k.gate_up(x[n], norm, EPS, w)
    if op == "lm_head":
        return lambda w, n: k.lm_head(x[n], norm, EPS, w)
    out = {n: vectors(n, s.D) for n in counts}
    return lambda w, n: k.residual(x[n], w, out[n], down=op == "down")


@pytest.fixture(scope="module")
def shapes(model, grow):
    """The grown demo model's own, and in a full run those of other models."""
    c = model.config
    own = Shape(
        "model",
        D=c["hidden_size"],
        H=c["num_heads"],
        n_kv=c["num_kv_heads"],
        d=c["head_dim"],
        F=c["ffn"],
        V=c["vocab_size"],
    )
    return {s.name: s for s in (own, *(MODELS if grow > 1 else []))}


@pytest.fixture(scope="module")
def kernels(model):
    return _testing.ops.Kernels(model.isa, model.threads)


@pytest.fixture(scope="module")
def table(results):
    return results(
        "ops",
        "Single ops of a layer, beside the machine's bandwidth and peak.",
        COLUMNS,
        f"{DTYPE} weights and cache, copies in turn so that no cache of the CPU holds them; bandwidth and peak probed "
        "before and behind each op",
        "v(n): n rows over one row; 'model': shapes of the grown demo model; times include Python's call",
    )


@pytest.fixture(scope="module")
def low_bit_table(results):
    return results(
        "low_bit",
        "Matmuls over weights in fewer bits, which drafts read.",
        LOW_BIT_COLUMNS,
        "copies in turn, as the study `ops` does; shapes of the grown demo model; "
        f"c(n): n rows over one row of {DTYPE}, all of them in turns; times include Python's call",
    )


def copies(size, grow):
    """How many copies of that size it takes, so that none is still cached when its turn comes."""
    return 1 + COLD_BYTES // size if grow > 1 else 1


def measure(benchmark, kernels, run, keys, rounds):
    """Median seconds of run(key) for each key, and the machine's bandwidth and peak around them."""
    seconds = {key: [] for key in keys}

    def once():
        for key in keys:
            began = perf_counter()
            run(key)
            seconds[key].append(perf_counter() - began)

    before = kernels.probe(DTYPE)
    benchmark.pedantic(once, rounds=rounds, warmup_rounds=1)
    after = kernels.probe(DTYPE)
    reads, peak = (max(before[fact], after[fact]) for fact in ("read_bytes_per_s", "flops_per_s"))
    return {key: median(found[1:]) for key, found in seconds.items()}, reads, peak


def row(op, size, seconds, reads):
    rate = size / seconds
    return {"op": op, "MB": size / 1e6, "us": seconds * 1e6, "GB_per_s": rate / 1e9, "of_reads": rate / reads}


def record(table, op, size, operations, measured):
    seconds, reads, peak = measured
    flops = operations / seconds[max(ROWS)]
    more = {f"v{n}": seconds[n] / seconds[1] for n in (8, 12)}
    more |= {"GFLOP_per_s": flops / 1e9, "of_peak": flops / peak}
    table.rows.append({**row(op, size, seconds[1], reads), **more})


@pytest.mark.parametrize("op", MATMULS)
@pytest.mark.parametrize("name", ["model", *(s.name for s in MODELS)])
def test_matmul(benchmark, table, kernels, shapes, grow, rounds, op, name):
    if name not in shapes:
        pytest.skip("a trial leaves the sizes of other models out")
    shape = shapes[name]
    size = shape.weight_bytes(op, DTYPE)
    pack, run = packer(kernels, shape, op), runner(kernels, shape, op, ROWS)
    weights = cycle([pack() for _ in range(copies(size, grow))])
    measured = measure(benchmark, kernels, lambda n: run(next(weights), n), ROWS, rounds)
    record(table, f"{name} {op}", size, shape.flops(op, max(ROWS)), measured)


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", ["model", *(s.name for s in MODELS)])
def test_attention(benchmark, table, kernels, shapes, grow, rounds, name, context):
    if name not in shapes:
        pytest.skip("a trial leaves the sizes of other models out")
    s = shapes[name]
    size = s.attention_bytes(context, DTYPE)
    fill = rows_after(context + max(ROWS), s.d, 0)
    weight = kernels.pack([matrix(r, 32) for r in (s.H * s.d, s.n_kv * s.d, s.n_kv * s.d)], DTYPE, group=s.d)
    caches = [kernels.cache(s.n_kv, s.d, context + max(ROWS), DTYPE) for _ in range(copies(size, grow))]
    for cache in caches:
        kernels.qkv(vectors(context + max(ROWS), 32), np.ones(32, np.float32), EPS, weight, fill, cache, s.H)
    q, rows = {n: vectors(n, s.H, s.d) for n in ROWS}, {n: rows_after(n, s.d, context) for n in ROWS}
    turns = cycle(caches)
    measured = measure(
        benchmark, kernels, lambda n: kernels.attention(q[n], rows[n], next(turns), 0, s.d**-0.5), ROWS, rounds
    )
    record(
        table, f"{name} attention over {context}", size, s.attention_flops(context + max(ROWS) / 2, max(ROWS)), measured
    )


@pytest.mark.parametrize("op", MATMULS)
def test_low_bit(benchmark, low_bit_table, kernels, shapes, grow, rounds, op):
    pack, run = packer(kernels, shapes["model"], op), runner(kernels, shapes["model"], op, DRAFT_ROWS)
    held = {dtype: pack(dtype).bytes for dtype in (DTYPE, *LOW_BIT, *HALVES)}
    size = {dtype: n // 2 if dtype == "upper" else n for dtype, n in held.items()}  # that a matmul reads
    weights = {dtype: cycle([pack(dtype) for _ in range(copies(size[dtype], grow))]) for dtype in size}
    keys = [(dtype, n) for n in DRAFT_ROWS for dtype in size]
    seconds, reads, _ = measure(benchmark, kernels, lambda key: run(next(weights[key[0]]), key[1]), keys, rounds)
    for dtype, read in size.items():
        cost = {f"c{n}": seconds[dtype, n] / seconds[DTYPE, 1] for n in DRAFT_ROWS}
        low_bit_table.rows.append({**row(op, read, seconds[dtype, 1], reads), "weights": dtype, **cost})
