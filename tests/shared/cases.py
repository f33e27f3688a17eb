"""Op cases as data: shapes, dtypes, tolerances, what an op moves and computes. Tests and benchmarks share them."""

from dataclasses import dataclass

DTYPES = ["float32", "bfloat16", "float16"]
SIZE = {"float32": 4, "bfloat16": 2, "float16": 2}
CACHES = [*DTYPES, "int8"]  # of keys and values
EPS = 1e-5


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder layer and its head."""

    name: str
    D: int  # hidden size
    H: int  # heads
    n_kv: int  # KV heads
    d: int  # head dimension
    F: int  # FFN size
    V: int  # vocabulary
    bias: bool = False
    qk_norm: bool = False

    def matrix(self, op):
        """[rows, columns] of an op's weight."""
        return {
            "qkv": ((self.H + 2 * self.n_kv) * self.d, self.D),
            "o_proj": (self.D, self.H * self.d),
            "gate_up": (2 * self.F, self.D),
            "down": (self.D, self.F),
            "lm_head": (self.V, self.D),
        }[op]

    def weight_bytes(self, op, dtype):
        rows, columns = self.matrix(op)
        return rows * columns * SIZE[dtype]

    def flops(self, op, n):
        rows, columns = self.matrix(op)
        return 2 * rows * columns * n

    def attention_bytes(self, context, dtype):
        return 2 * context * self.n_kv * self.d * SIZE[dtype]

    def attention_flops(self, context, n):
        return 4 * context * self.H * self.d * n


MATMULS = ["qkv", "o_proj", "gate_up", "down", "lm_head"]

# Small and odd on purpose: nothing divides 32 or 16, groups of every ratio, a hidden size that is not H * d.
SHAPES = [
    Shape("odd", D=67, H=6, n_kv=3, d=20, F=50, V=101),
    Shape("biased", D=96, H=4, n_kv=4, d=34, F=33, V=64, bias=True),
    Shape("normed", D=130, H=5, n_kv=1, d=48, F=97, V=515, qk_norm=True),
    Shape("wide", D=256, H=8, n_kv=2, d=64, F=704, V=1000),
    Shape("narrow", D=1, H=1, n_kv=1, d=2, F=1, V=1),
]

# (heads, KV heads, head dimension)
HEADS = [(1, 1, 2), (4, 2, 20), (3, 3, 80), (8, 1, 96), (7, 7, 32), (16, 2, 128), (2, 1, 256)]

# Real ones, for the benchmarks.
MODELS = [
    Shape("1b", D=2048, H=32, n_kv=8, d=64, F=8192, V=128256),
    Shape("7b", D=4096, H=32, n_kv=32, d=128, F=11008, V=32000),
]


def tolerance(dtype, isa):
    """Largest error of a matmul's output, relative to the root mean square of that output.

    Weights are exact; what remains is accumulation in float32 and, where bf16 is multiplied (avx512bf16, amx),
    activations rounded to bfloat16.
    """
    return 2e-2 if dtype == "bfloat16" and isa in ("avx512bf16", "amx") else 3e-5


def attention_tolerance(dtype, isa):
    """Largest error of attention, given its cache as stored: accumulation in float32 and, where bf16 is multiplied,
    queries and weights rounded to it. Those of int8 are rounded to 16 bits."""
    if dtype == "int8":
        return 5e-4
    return 1e-2 if dtype == "bfloat16" and isa in ("avx512bf16", "amx") else 2e-5


# Largest error of stored keys and values: one rounding of the stored dtype, relative.
STORE_TOLERANCE = {"float32": 1e-6, "bfloat16": 2.0**-8, "float16": 2.0**-11}

# Stored forms that only drafts read, and their bits. Activations become bytes for them, in groups of 32.
LOW_BIT = {"int8": 8, "int4": 4, "int3": 3}
# Root mean square of what a low-bit copy of normal weights loses, relative, and with a little room.
LOW_BIT_LOSS = {"int8": 0.0053, "int4": 0.085, "int3": 0.175}
# Largest error of an op on them, given weights and activations as stored: sums of 32 k are exact.
LOW_BIT_TOLERANCE = 3e-5
