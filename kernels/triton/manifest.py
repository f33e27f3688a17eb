"""The kernels of a pack: which functions, with which constants and argument types, for a model's shape.

Plain data, importable without Triton. Tile sizes, warps and stages live here and nowhere else. What they may not change
is a row's bits: a matmul sums over K in steps of 16 into one accumulator whatever ROWS, TOKENS and BLOCK_K are, as long
as its rows are the M side of mma.sync, which ROWS of 16 or 32 see to. Over weights of few bits there are four such
accumulators, for a quarter of K each, and one order in which they are added.
"""

from dataclasses import dataclass

BUCKETS = (8, 16, 32, 64)  # rows of one program (TOKENS); more rows take several token tiles of 64
MOST_SHARED = 98 * 1024  # bytes of a program's tiles: what every architecture from sm_80 on has
# Splits of attention, by position: (keys of a split, where such splits end); csrc/cuda/stream.cc has them, too. They
# are part of a row's bits. Four to eight tiles take about as long as joining splits does, until memory is the limit.
SPLITS = ((256, 4096), (512, 32768), (1024, None))
KV_BLOCK = 64  # tokens of a block of K and V: kKvBlock of kernels/ops.h
# Registers of a thread where two, three or four programs of attention share a multiprocessor, as their tiles let them.
# Unasked, the assembler spills a few to make room for more.
_A_HALF, _A_THIRD, _A_QUARTER = 255, 168, 128
MOST_AHEAD = 64 * 1024  # bytes of keys and values on their way to a program of attention
OPTIONS = {"enable_fp_fusion": False}  # for every kernel: contraction would be the compiler's choice, case by case
FORMS = {"int8": 8, "int4": 4, "int3": 3}  # of weights that only drafts read, and their bits
HEAD_FORM = "int8"  # of the head in all copies, where it is a small part of the weights
POINTER = {"bfloat16": "*bf16", "float16": "*fp16", "float32": "*fp32"}


@dataclass(frozen=True)
class Entry:
    """One kernel to compile: `function` of `<module>.py`."""

    name: str  # in the pack
    module: str
    function: str
    constants: dict  # compile-time arguments
    signature: dict  # run-time argument: Triton type, in order
    warps: int
    stages: int
    aligned: tuple  # pointers that always point to a multiple of 16 bytes, and integers that are multiples of 16
    registers: int = 0  # of a thread, at most; 0: as the assembler likes

    @property
    def options(self):
        """What Triton is given beside the signature."""
        limit = {"maxnreg": self.registers} if self.registers else {}
        return {"num_warps": self.warps, "num_stages": self.stages, **limit, **OPTIONS}


def power_of_2(n):
    return 1 << max(n - 1, 0).bit_length()


def cdiv(a, b):
    return -(-a // b)


def split_ends(positions):
    """Where each split of so many positions ends."""
    ends, at = [], 0
    for keys, until in SPLITS:
        while at < positions and (until is None or at < until):
            at += keys
            ends.append(min(at, positions))
    return ends


def splits_of(positions):
    """How many splits so many positions have."""
    return len(split_ends(positions))


class Shape:
    """A pack header's shape, with its derived sizes, and whether kernels of a pass start early (overlap.py)."""

    def __init__(self, shape, early):
        self.early = early
        self.D, self.H, self.KV, self.HD, self.F, self.V = (int(shape[key]) for key in ("D", "H", "KV", "HD", "F", "V"))
        self.qk_norm, self.qkv_bias, self.o_bias, self.mlp_bias = (
            bool(shape[key]) for key in ("qk_norm", "qkv_bias", "o_bias", "mlp_bias")
        )
        self.eps = float(shape["eps"])
        self.dtype = shape["dtype"]
        # A head has the width of its first layer's input, where that is not D, and matrices beside its layers: (rows,
        # columns, whether there is a bias).
        self.wide, self.linears = int(shape.get("wide", 0)), shape.get("linears", ())
        self.apart = bool(shape.get("apart", False))  # q is made of other rows than k and v
        self.bytes = 4 if self.dtype == "float32" else 2

    def types(self, **arguments):
        """Argument types; DT stands for a pointer to elements of the weights."""
        return {name: POINTER[self.dtype] if kind == "DT" else kind for name, kind in arguments.items()}


def entries(shape, early=False, forms=()):
    """Every entry of the pack of a shape (the keys of a pack header's "shape").

    early: for machines on which kernels may start before the one before them has ended (sm_90 and newer).
    forms: of FORMS; the matmuls are there for each of them, too, as "qkv.int4.8", and the head's in int8 (loader.cc).
    """
    s = Shape(shape, early)
    low = [entry for form in forms for entry in matmuls(s, form)]
    if forms and HEAD_FORM not in forms:
        low += [entry for entry in matmuls(s, HEAD_FORM) if entry.module == "lm_head"]
    return [*elementwise(s), *matmuls(s), *low, *norms(s), *attention(s), *sampling(s), *probes(s), *drafting(s)]


def elementwise(s):
    f32_rows = ("x",) if s.D % 4 == 0 else ()
    embed = s.types(n_ptr="*i32", token="*i32", table="DT", x="*fp32")
    norm = s.types(n_ptr="*i32", x="*fp32", weight="*fp32", y="DT")
    move = s.types(cache="DT", moves="*i32", count="i32", layer_stride="i64", v_offset="i64")
    block = min(power_of_2(s.D), 1024)
    constants = {"D": s.D, "BLOCK": block, "EARLY": s.early}
    yield Entry("embed", "embed", "embed", constants, embed, 4, 1, ("table", *f32_rows))
    # A whole row in registers: one sum, whose order only D decides.
    whole = power_of_2(s.D)
    warps = min(max(whole // 512, 1), 16)
    constants = {"D": s.D, "EPS": s.eps, "BLOCK": whole, "EARLY": s.early}
    yield Entry("rmsnorm", "rmsnorm", "rmsnorm", constants, norm, warps, 1, ("y", *f32_rows))
    width = s.KV * s.HD
    constants = {"WIDTH": width, "BLOCK": min(power_of_2(width), 1024)}
    # A layer's stride and where its V begins are whole slots.
    aligned = ("cache", "layer_stride", "v_offset") if width % 16 == 0 else ()
    yield Entry("move_rows", "cache", "move_rows", constants, move, 4, 1, aligned)


def tiles(s, tokens, matrices, k):
    """(ROWS, BLOCK_K, warps, stages) of a matmul over k columns that reads so many matrices side by side.

    16 rows where there are few tokens: 4096 outputs are then two programs for each multiprocessor of an H200. Where y
    weighs more, 32, for every program reads all of its y. A stage holds 8 KB of weights and up to 16 KB of y; four of
    them are on their way, so 32 KB of weights a program, where 26 KB a multiprocessor would do for 4.3 TB/s at a
    latency of 0.8 us. At most 96 KB a program, which every architecture from sm_80 on has.

    K takes more than one block, if it has more columns than an instruction (16). The compiler adds what is added to a
    product of one block within the product's accumulator, which is another order of sums than that of two blocks.
    """
    rows = 16 if tokens <= 16 else 32
    warps = {8: 1, 16: 1, 32: 2, 64: 4}[tokens]
    return rows, min(8192 // (rows * matrices * s.bytes), max(power_of_2(k) // 2, 16)), warps, 5


def low_bit_tiles(s, tokens, matrices, bits):
    """The same where weights have few bits.

    Four warps have a slice of K each, of which a stage takes one block of 128 columns; two where there is room, as less
    of the time is then for addresses. Such a stage has 8 KB of int4 and 16 KB of y.
    """
    rows = 16
    block_k = 256 if tokens == 8 and matrices == 1 and s.bytes == 2 else 128
    stage = 4 * block_k * (tokens * s.bytes + matrices * rows * bits // 8)
    return rows, block_k, 4, min(1 + MOST_SHARED // stage, 5)


def matmuls(s, form=""):
    """form: of the weights; "": as the model's are stored."""
    bits = FORMS.get(form, 0)
    matrix = "*i32" if bits else POINTER[s.dtype]
    weights = {"D": s.D, "H": s.H, "KV": s.KV, "HD": s.HD, "HAS_BIAS": s.qkv_bias, "QK_NORM": s.qk_norm}
    qkv = s.types(
        n_ptr="*i32", y="DT", w=matrix, bias="*fp32", slot="*i32", cos="*fp32", sin="*fp32",
        q="DT", k_cache="DT", v_cache="DT", raw="*fp32",
    )  # fmt: skip
    residual = s.types(n_ptr="*i32", y="DT", w=matrix, bias="*fp32", x="*fp32")
    gate_up = s.types(n_ptr="*i32", y="DT", w=matrix, bias="*fp32", h="DT")
    lm_head = s.types(n_ptr="*i32", y="DT", w=matrix, logits="*fp32")
    mlp = {"D": s.D, "F": s.F, "HAS_BIAS": s.mlp_bias}
    plans = [
        ("qkv", "qkv", "qkv", weights, qkv, 2),
        ("o_proj", "residual", "residual", {"N": s.D, "K": s.H * s.HD, "HAS_BIAS": s.o_bias}, residual, 1),
        ("gate_up", "gate_up", "gate_up", mlp, gate_up, 2),
        ("down", "residual", "residual", {"N": s.D, "K": s.F, "HAS_BIAS": s.mlp_bias}, residual, 1),
        ("lm_head", "lm_head", "lm_head", {"D": s.D, "V": s.V}, lm_head, 1),
    ]
    if s.wide and not form:
        plans.append(("qkv_wide", "qkv", "qkv", {**weights, "D": s.wide}, qkv, 2))
    if s.apart and not form:
        plans.append(("qkv_q", "qkv", "qkv", {**weights, "KV": 0}, qkv, 2))
        plans.append(("qkv_kv", "qkv", "qkv", {**weights, "H": 0}, qkv, 2))
    for n, k, bias in () if form else s.linears:
        sizes = {"N": n, "K": k, "HAS_BIAS": bool(bias)}
        plans.append((f"linear.{n}x{k}", "residual", "residual", sizes, residual, 1))
    for name, module, function, sizes, signature, parts in plans:
        for tokens in BUCKETS:
            wide = min(tokens, 32) if bits else tokens  # wider sums of four slices would not fit into registers
            k = sizes.get("K") or sizes["D"]
            tile = low_bit_tiles(s, wide, parts, bits) if bits else tiles(s, tokens, parts, k)
            rows, block_k, warps, stages = tile
            constants = {**sizes, "ROWS": rows, "TOKENS": wide, "BLOCK_K": block_k, "BITS": bits, "EARLY": s.early}
            entry = ".".join(filter(None, (name, form, str(tokens))))
            yield Entry(entry, module, function, constants, signature, warps, stages, ("y", "w"))


def norms(s):
    if s.qk_norm:
        signature = s.types(
            n_ptr="*i32", raw="*fp32", q_norm="*fp32", k_norm="*fp32", slot="*i32", cos="*fp32", sin="*fp32",
            q="DT", k_cache="DT", v_cache="DT",
        )  # fmt: skip
        sizes = {"H": s.H, "KV": s.KV, "HD": s.HD, "EPS": s.eps, "BLOCK": power_of_2(s.HD // 2)}
        constants = {**sizes, "EARLY": s.early}
        yield Entry("qk_norm_rope", "qkv", "qk_norm_rope", constants, signature, 1, 1, ())


def attention(s):
    rows = s.types(q="DT", k_cache="DT", v_cache="DT")
    seen = {"views": "*i32", "tables": "*i32"}
    tiled = {"tiles": "*i32", "pos": "*i32", **seen, **rows}
    branch = {"n_ptr": "*i32", "pos": "*i32", "ancestors": "*i64", **seen, **rows}
    parts, split = {"acc": "*fp32", "ml": "*fp32"}, {"window": "i32", "splits": "i32"}
    out = s.types(out="DT")
    sizes = {"H": s.H, "KV": s.KV, "HD": s.HD}
    # A tile of 64 keys takes no longer than one of 32: what it takes is its chain of products, reductions, barriers.
    slot = 2 * max(power_of_2(s.HD), 16) * s.bytes
    keys = 64 if 64 * slot <= MOST_AHEAD else 32
    tile = {**sizes, "SCALE": s.HD**-0.5, "QROWS": 16, "KEYS": keys, "EARLY": s.early}
    aligned = ("q", "k_cache", "v_cache") if s.KV * s.HD * s.bytes % 16 == 0 else ("q",)  # layers lie in one memory
    # Four warps share the keys of a tile, and then the columns of V: it is over sooner, and one query row is all that
    # decoding has. All that read keys have as many, for that is part of the order of a row's sums.
    warps, stages = 4, max(min(1 + MOST_AHEAD // (keys * slot), 4), 2)

    def reads_keys(name, signature, depth, result, registers):
        limit = registers if s.HD <= 128 else _A_HALF
        return Entry(name, "attention", name, tile, signature, warps, depth, (*aligned, result), limit)

    yield reads_keys("attention_split", {**tiled, **parts, **split}, stages, "acc", _A_THIRD)
    merge = {"n_ptr": "*i32", "pos": "*i32", **parts, **out, "splits": "i32"}
    constants = {"H": s.H, "HD": s.HD, "EARLY": s.early}
    yield Entry("attention_merge", "attention", "attention_merge", constants, merge, 1, 4, ("acc", "out"))
    yield reads_keys("attention_branch", {**branch, **parts, **split}, 2, "acc", _A_QUARTER)
    yield reads_keys("attention_serial", {**tiled, **out, "window": "i32"}, stages, "out", _A_THIRD)


def sampling(s):
    block = min(max(power_of_2(s.V), 16), 1024)
    logits = ("logits", "scores") if s.V % 4 == 0 else ()
    partial = s.types(
        logits="*fp32", scores="*fp32", pos="*i32", seed="*i64", scale="*fp32", noisy="i32", stream="i32", k="i32",
        part_score="*fp32", part_id="*i32", part_lse="*fp32",
    )  # fmt: skip
    yield Entry("topk_partial", "topk", "topk_partial", {"V": s.V, "BLOCK": block}, partial, 4, 1, logits)
    merge = s.types(
        logits="*fp32", part_score="*fp32", part_id="*i32", part_lse="*fp32", scale="*fp32", k="i32",
        id="*i32", logit="*fp32", lse="*fp32", mass="*fp32",
    )  # fmt: skip
    yield Entry("topk_merge", "topk", "topk_merge", {"V": s.V, "BLOCKS": cdiv(s.V, block)}, merge, 1, 1, ())


def drafting(s):
    """What draft models ask for, of their packs and of the model's."""
    whole, f32_rows = power_of_2(s.D), ("x", "out") if s.D % 4 == 0 else ()
    norm = s.types(n_ptr="*i32", x="*fp32", weight="*fp32", out="*fp32", stride="i32")
    sizes = {"D": s.D, "EPS": s.eps, "BLOCK": whole, "EARLY": s.early}
    yield Entry("norm_rows", "rows", "norm_rows", sizes, norm, min(max(whole // 512, 1), 16), 1, f32_rows)
    rounds = s.types(n_ptr="*i32", x="*fp32", y="DT", width="i32")
    yield Entry("round_rows", "rows", "round_rows", {"BLOCK": 1024, "EARLY": s.early}, rounds, 4, 1, ("y",))
    mean = s.types(x="*fp32", out="*fp32", group="i32", width="i32")
    yield Entry("mean_rows", "rows", "mean_rows", {"BLOCK": 1024}, mean, 4, 1, ())
    read = s.types(cache="DT", slots="*i32", out="*fp32", stride="i64", v_offset="i64")
    sizes = {"KV": s.KV, "HD": s.HD, "BLOCK": power_of_2(s.HD)}
    yield Entry("read_rows", "cache", "read_rows", sizes, read, 1, 1, ())
    spread = s.types(n_ptr="*i32", own="*fp32", token="*i32", logits="*fp32", own_vocab="i32", vocab="i32")
    yield Entry("spread_rows", "rows", "spread_rows", {"BLOCK": 1024}, spread, 4, 1, ())


def probes(s):
    read = s.types(data="*i32", out="*i32", count="i64")
    yield Entry("read_probe", "probe", "read_probe", {"BLOCK": 4096, "ITERATIONS": 16}, read, 8, 1, ("data",))
    # Flops of a program: 2 ROWS TOKENS BLOCK_K for each iteration. Tiles are large, so that operands come from shared
    # memory seldom enough; two warps, as four would get another instruction for 64 rows. In f32 it is plain arithmetic.
    rows, tokens = (32, 32) if s.dtype == "float32" else (64, 128)
    constants = {"DT": POINTER[s.dtype][1:], "ROWS": rows, "TOKENS": tokens, "BLOCK_K": 32}
    dot = s.types(out="*fp32", iterations="i32")
    yield Entry("dot_probe", "probe", "dot_probe", constants, dot, 2, 1, ())
