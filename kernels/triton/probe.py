"""What the machine can do: reads of memory, and dots whose operands stay in registers."""

import triton
import triton.language as tl


@triton.jit
def read_probe(data, out, count, BLOCK: tl.constexpr, ITERATIONS: tl.constexpr):
    """Every program reads BLOCK * ITERATIONS words of its own; the sum is there for the reads to be needed."""
    first = tl.program_id(0).to(tl.int64) * (BLOCK * ITERATIONS)
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.int32)
    if first + BLOCK * ITERATIONS <= count:  # no mask: it would cut the reads into single words
        for t in tl.static_range(ITERATIONS):
            total += tl.load(data + first + t * BLOCK + at)
    else:
        for t in tl.static_range(ITERATIONS):
            here = first + t * BLOCK
            total += tl.load(data + here + at, mask=at < count - here, other=0)
    tl.store(out + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def dot_probe(out, iterations, DT: tl.constexpr, ROWS: tl.constexpr, TOKENS: tl.constexpr, BLOCK_K: tl.constexpr):
    """The instruction of the matmuls, over and over. A warp has several accumulators, so none waits for itself."""
    i = tl.arange(0, ROWS)[:, None]
    k = tl.arange(0, BLOCK_K)
    j = tl.arange(0, TOKENS)[None, :]
    element: tl.constexpr = tl.float32 if DT == "fp32" else tl.bfloat16 if DT == "bf16" else tl.float16
    a = ((i + k[None, :]) % 3).to(tl.float32).to(element)
    b = ((j + k[:, None]) % 5).to(tl.float32).to(element)
    acc = tl.zeros((ROWS, TOKENS), tl.float32)
    for _ in range(iterations):
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(out + tl.program_id(0), tl.sum(tl.sum(acc, 1), 0))
