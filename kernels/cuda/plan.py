"""The kernels of a pack in CUDA C++: matmuls' tiles by shape and rows, launch parameters, and compilers' options.

Plain data, importable without a toolkit. Nothing here can change a row's bits: matmul.cuh fixes the order.

A grid is (blocks, token tiles). Blocks go on to further tiles by themselves, so that any multiple of CLUSTER is right;
as many as run at once keep the weights coming across tiles.
"""

from dataclasses import dataclass

BUCKETS = (8, 16, 32, 64)
DTYPES = {"bfloat16": "Bf16", "float16": "F16"}
MULTIPROCESSORS = 132  # that blocks are counted for; other counts are right too
SHARED = {"sm_80": 163, "sm_87": 163, "sm_90": 227, "sm_100": 227, "sm_103": 227}  # KB of a block, where it is not:
LEAST_SHARED = 99
SLICES, CHUNK = 4, 64
ATTENTION = {64: 54 * 1024, 128: 73 * 1024}  # bytes of a program of it, by size of heads; o_proj fetches beside it
# Options of nvcc and NVRTC alike. Without contraction: a sum that is rounded in one kernel and not in another would
# have other bits.
OPTIONS = ("-std=c++17", "-fmad=false")


def cdiv(a, b):
    return -(-a // b)


def shared_of(arch):
    return SHARED.get(arch.rstrip("a"), LEAST_SHARED)


def has_clusters(arch):
    """Of those that are known to have them, with the most shared memory of a block."""
    return shared_of(arch) == 227


def defines(values):
    return [f"-DSWIFTK_{name}={int(value) if isinstance(value, bool) else value}" for name, value in values.items()]


@dataclass(frozen=True)
class Kernel:
    """A matmul of a pack for up to TOKENS rows at a time."""

    name: str
    source: str  # and the function in it
    sizes: dict  # constants of the operation
    tile: dict  # constants of matmul.cuh, and BLOCKS
    outputs: int  # rows of W, those included that fill units up
    K: int

    @property
    def threads(self):
        return 32 * self.tile["ROW_WARPS"] * self.tile["K_WARPS"] + 64

    @property
    def rows(self):
        """Outputs of a block."""
        return 16 * self.tile["TILES"] * self.tile["ROW_WARPS"]

    @property
    def tiles(self):
        return cdiv(self.outputs, self.rows)

    @property
    def shared(self):
        """Bytes of dynamic shared memory."""
        return shared_bytes(self.tile, self.tile["STAGES"])

    @property
    def blocks(self):
        """Blocks of the grid's first dimension."""
        at_once = MULTIPROCESSORS * self.tile["BLOCKS"] // self.tile["CLUSTER"]
        return min(self.tiles, at_once) * self.tile["CLUSTER"]

    def defines(self, dtype):
        values = {**self.sizes, **self.tile, "DT": DTYPES[dtype]}
        return defines(values)


GATE_WARPS, GATE_SHARED = 4, 1024


def shared_bytes(tile, stages):
    rows = 16 * tile["TILES"] * tile["ROW_WARPS"]
    stage = (rows + tile["TOKENS"]) * CHUNK * 2 * tile["K_WARPS"] + 2 * 8
    return stages * stage + tile["K_WARPS"] * tile["TOKENS"] * (rows + 4) * 4


def unit(outputs, pairs):
    """Tiles of 16 outputs of a unit of packed W: two, where that makes enough blocks of them."""
    return 2 if pairs or outputs >= 32 * 96 else 1


def tile(outputs, unit, tokens, arch="sm_90", beside=0):
    """The constants of matmul.cuh.

    Up to 16 rows, a block has a unit of outputs, in four warps with a slice of K each. Beyond, y would be most of what
    L2 has to deliver, so a block has 128 outputs, in four warps with all of K; where that leaves multiprocessors idle,
    four blocks have a slice each, as a cluster. The ring takes what is left of shared memory, or of half of it where
    there is work for two blocks of a multiprocessor. Clusters too leave room for two: the multiprocessors that may hold
    one together come in groups that four need not divide, and no cluster should have to wait for another's end.
    `beside`: bytes of shared memory that stay free for the kernel before.
    """
    shared, small = shared_of(arch), not has_clusters(arch)
    if tokens <= 16:
        choice = {"TILES": unit, "ROW_WARPS": 1, "K_WARPS": 4, "CLUSTER": 1}
    else:
        cluster = 1 if small or outputs >= 128 * 90 else 4
        choice = {"TILES": 2, "ROW_WARPS": 2 if small or unit == 1 else 4, "K_WARPS": 1, "CLUSTER": cluster}
    choice = {"TOKENS": tokens, "UNIT": unit, **choice}
    blocks = cdiv(outputs, 16 * choice["TILES"] * choice["ROW_WARPS"]) * choice["CLUSTER"]
    share = 2 if blocks > MULTIPROCESSORS or choice["CLUSTER"] > 1 else 1
    sums, one = (shared_bytes(choice, stages) for stages in (0, 1))
    room = (shared + 1) * 1024  # bytes of a multiprocessor; each block costs 1 KB beside what it has
    stages = {n: min(((room - beside) // n - 1024 - sums) // (one - sums), 16) for n in (1, 2)}
    share = share if stages[share] >= 3 else 1
    return {**choice, "STAGES": stages[share], "BLOCKS": share}


def operations(s):
    """(name, source, sizes, outputs, K, pairs) of the matmuls of a shape (the keys of a pack header's "shape")."""
    D, H, KV, HD, F, V = (s[key] for key in ("D", "H", "KV", "HD", "F", "V"))
    heads, half, mlp = H + 2 * KV, 16 * cdiv(HD // 2, 16), int(s["mlp_bias"])
    qkv = {"D": D, "H": H, "KV": KV, "HD": HD, "HAS_BIAS": int(s["qkv_bias"]), "QK_NORM": int(s["qk_norm"])}
    yield "qkv", "qkv", qkv, 2 * heads * half, D, True
    yield "o_proj", "residual", {"N": D, "K": H * HD, "HAS_BIAS": int(s["o_bias"])}, D, H * HD, False
    yield "gate_up", "gate_up", {"D": D, "F": F, "HAS_BIAS": mlp}, 32 * cdiv(F, 16), D, True
    yield "down", "residual", {"N": D, "K": F, "HAS_BIAS": mlp}, D, F, False
    yield "lm_head", "lm_head", {"D": D, "V": V}, V, D, False


def kernels(shape, arch="sm_90"):
    """Every matmul of a pack, by its entry's name."""
    for name, source, sizes, outputs, K, pairs in operations(shape):
        for tokens in BUCKETS:
            follows = name == "o_proj" and tokens <= 16 and has_clusters(arch)
            beside = ATTENTION[64 if shape["HD"] <= 64 else 128] if follows else 0
            choice = tile(outputs, unit(outputs, pairs), tokens, arch, beside)
            yield Kernel(f"{name}.{tokens}", source, sizes, choice, outputs, K)


def packed_shape(outputs, K, unit):
    """(units, columns) of packed W: multiples of 128 outputs and of 256 columns."""
    return cdiv(outputs, 128) * 128 // (16 * unit), cdiv(K, SLICES * CHUNK) * SLICES * CHUNK


def rows_of_units(name, shape, unit):
    """Arguments rows, units, per, stride, second, step, half of pack.cu, for a matmul's row-major matrix."""
    outputs = {o[0]: o[3] for o in operations(shape)}[name]
    D, F, HD, V = (shape[key] for key in ("D", "F", "HD", "V"))
    units = packed_shape(outputs, 1, unit)[0]
    if name == "qkv":
        rows = (shape["H"] + 2 * shape["KV"]) * HD
        return rows, units, cdiv(HD // 2, 16), HD, HD // 2, 16, HD // 2
    if name == "gate_up":
        return 2 * F, units, units, 0, F, 16, F
    rows = V if name == "lm_head" else D
    return rows, units, units, 0, 16, 16 * unit, rows
