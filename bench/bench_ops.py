"""Single ops with the shapes of real models: bandwidth of one row, price of 8 and 12 rows, operations of a prefill.

Copies of a weight take turns, so that no cache holds what the next call reads; row counts take turns, so that all see
the same machine.
"""

from statistics import median
from time import perf_counter

import numpy as np
import pytest

from cases import EPS, MATMULS, MODELS, Shape
from swiftk import _core

ROWS = [1, 8, 12, 512]
DTYPE = "bfloat16"
COLD_BYTES = 256 << 20
CONTEXTS = [512, 4096]
COLUMNS = ["op", "MB", "us, 1 row", "GB/s", "% of reads", "v(8)", "v(12)", "GFLOP/s, 512 rows", "% of peak"]


def matrix(rows, columns):
    """Ordinary values: what they are costs nothing, but zeros, denormals and NaN might."""
    block = np.random.default_rng(rows + 31 * columns).standard_normal((16, columns), np.float32) / columns**0.5
    bits = (block.view(np.uint32) >> 16).astype(np.uint16)
    return np.ascontiguousarray(np.tile(bits, (-(-rows // 16), 1))[:rows])


def vectors(*shape):
    return np.random.default_rng(shape[0]).standard_normal(shape, np.float32)


def rows_behind(n, d, first):
    """n rows of a text behind `first` cached ones; slot == position."""
    at = np.arange(first, first + n, dtype=np.int32)
    angle = at[:, None] * np.ones((1, d // 2), np.float32) / 100
    return _core.ops.Rows(at, at, np.cos(angle), np.sin(angle))


def packer(k, s, op):
    """A call that packs a fresh copy of the op's weight."""
    sizes = {"qkv": [s.H * s.d, s.n_kv * s.d, s.n_kv * s.d], "gate_up": [s.F, s.F]}.get(op, [s.matrix(op)[0]])
    parts = [matrix(rows, s.matrix(op)[1]) for rows in sizes]
    layout = {"qkv": {"group": s.d}, "gate_up": {"group": 32, "interleave": True}}.get(op, {})
    return lambda: k.pack(parts, DTYPE, **layout)


def runner(k, s, op):
    """run(weight, n): the op over n rows."""
    x = {n: vectors(n, s.matrix(op)[1]) for n in ROWS}
    norm = np.ones(s.D, np.float32)
    if op == "qkv":
        cache, rows = k.cache(s.n_kv, s.d, max(ROWS), DTYPE), {n: rows_behind(n, s.d, 0) for n in ROWS}
        return lambda w, n: k.qkv(x[n], norm, EPS, w, rows[n], cache, s.H)
    if op == "gate_up":
        return lambda w, n: k.gate_up(x[n], norm, EPS, w)
    if op == "lm_head":
        return lambda w, n: k.lm_head(x[n], norm, EPS, w)
    out = {n: vectors(n, s.D) for n in ROWS}
    return lambda w, n: k.residual(x[n], w, out[n], down=op == "down")


@pytest.fixture(scope="module")
def shapes(model, grow):
    """The grown demo model's own, and in a full run those of other models."""
    c = model.config
    own = Shape("model", D=c["hidden_size"], H=c["num_heads"], n_kv=c["num_kv_heads"], d=c["head_dim"], F=c["ffn"],
                V=c["vocab_size"])
    return {s.name: s for s in (own, *(MODELS if grow > 1 else []))}


@pytest.fixture(scope="module")
def kernels(model):
    return _core.ops.Kernels(model.isa, model.threads)


@pytest.fixture(scope="module")
def table(report):
    found = report("ops", COLUMNS)
    found.notes = [f"{DTYPE} weights and cache, copies in turn so that no cache of the CPU holds them; bandwidth and "
                   "peak probed before and behind each op",
                   "v(n): n rows over one row; 'model': shapes of the grown demo model; times include Python's call"]
    return found


def copies(size, grow):
    """Of something of that size, so that none is still cached when its turn comes."""
    return 1 + COLD_BYTES // size if grow > 1 else 1


def measure(benchmark, kernels, run, turns, rounds):
    """Median seconds of run(turn, n) for each n of ROWS, and the machine's bandwidth and peak around them."""
    seconds = {n: [] for n in ROWS}
    calls = iter(range(1 << 30))

    def once():
        for n in ROWS:
            turn = next(calls) % turns
            began = perf_counter()
            run(turn, n)
            seconds[n].append(perf_counter() - began)

    before = kernels.probe(DTYPE)
    benchmark.pedantic(once, rounds=rounds, warmup_rounds=1)
    reads, peak = (max(pair) for pair in zip(before, kernels.probe(DTYPE)))
    return {n: median(found[1:]) for n, found in seconds.items()}, reads, peak


def record(benchmark, table, name, size, operations, measured):
    seconds, reads, peak = measured
    rate, flops = size / seconds[1], operations / seconds[max(ROWS)]
    figures = {"op": name, "bytes": size, "seconds": seconds, "GB_per_s": rate / 1e9, "of_reads": rate / reads,
               "GFLOP_per_s": flops / 1e9, "of_peak": flops / peak, "reads_GB_per_s": reads / 1e9,
               "peak_GFLOP_per_s": peak / 1e9}
    benchmark.extra_info.update(figures)
    table.add([name, f"{size / 1e6:.1f}", f"{seconds[1] * 1e6:.0f}", f"{rate / 1e9:.1f}", f"{rate / reads:.0%}",
               f"{seconds[8] / seconds[1]:.2f}", f"{seconds[12] / seconds[1]:.2f}", f"{flops / 1e9:.0f}",
               f"{flops / peak:.0%}"], figures)


@pytest.mark.parametrize("op", MATMULS)
@pytest.mark.parametrize("name", ["model", *(s.name for s in MODELS)])
def test_matmul(benchmark, table, kernels, shapes, grow, rounds, op, name):
    if name not in shapes:
        pytest.skip("a trial leaves the sizes of other models out")
    shape = shapes[name]
    size = shape.weight_bytes(op, DTYPE)
    pack, run = packer(kernels, shape, op), runner(kernels, shape, op)
    weights = [pack() for _ in range(copies(size, grow))]
    measured = measure(benchmark, kernels, lambda turn, n: run(weights[turn], n), len(weights), rounds)
    record(benchmark, table, f"{name} {op}", size, shape.flops(op, max(ROWS)), measured)


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", ["model", *(s.name for s in MODELS)])
def test_attention(benchmark, table, kernels, shapes, grow, rounds, name, context):
    if name not in shapes:
        pytest.skip("a trial leaves the sizes of other models out")
    s = shapes[name]
    size = s.attention_bytes(context, DTYPE)
    fill = rows_behind(context + max(ROWS), s.d, 0)
    weight = kernels.pack([matrix(r, 32) for r in (s.H * s.d, s.n_kv * s.d, s.n_kv * s.d)], DTYPE, group=s.d)
    caches = [kernels.cache(s.n_kv, s.d, context + max(ROWS), DTYPE) for _ in range(copies(size, grow))]
    for cache in caches:
        kernels.qkv(vectors(context + max(ROWS), 32), np.ones(32, np.float32), EPS, weight, fill, cache, s.H)
    q, rows = {n: vectors(n, s.H, s.d) for n in ROWS}, {n: rows_behind(n, s.d, context) for n in ROWS}
    measured = measure(benchmark, kernels, lambda turn, n: kernels.attention(q[n], rows[n], caches[turn], 0, s.d**-0.5),
                       len(caches), rounds)
    record(benchmark, table, f"{name} attention over {context}", size,
           s.attention_flops(context + max(ROWS) / 2, max(ROWS)), measured)
