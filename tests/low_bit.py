"""Low-bit weights by their documented layout, in numpy: what a panel says its rows are, and what activations become."""

import numpy as np

from cases import LOW_BIT

GROUP = 32  # of k
HALF = 16  # rows of half a panel
BLOCK = 4  # groups whose scales share a line
LINES = {"int8": 8, "int4": 4, "int3": 3}


def half_bytes(dtype, k):
    groups = -(-k // GROUP)
    return 64 * (1 + -(-groups // BLOCK) + groups * LINES[dtype])


def codes(dtype, lines):
    """[8 quads, 16 rows, 4] of a group, from its lines [n, 16, 4]."""
    if dtype == "int8":
        return lines
    if dtype == "int3":
        fourth = sum(((lines[i] >> 3) & 0x11) << i for i in range(3))
        lines = np.concatenate([lines & 0x77, fourth[None]])
    quads = np.empty((8, HALF, 4), np.uint8)
    quads[0::2], quads[1::2] = lines & 15, lines >> 4
    return quads


def unpack(data, dtype, k):
    """All rows [32 * panels, k] in float64."""
    groups, zero = -(-k // GROUP), 1 << (LOW_BIT[dtype] - 1)
    halves = np.frombuffer(data, np.uint8).reshape(-1, half_bytes(dtype, k))
    out = np.empty((len(halves), HALF, groups, GROUP))
    for half, rows in zip(halves, out):
        unit, at = half[:64].view(np.float32).astype(np.float64), 64
        for g in range(groups):
            if g % BLOCK == 0:
                scales, at = half[at : at + 64].view(np.int8).reshape(BLOCK, HALF), at + 64
            lines = half[at : at + 64 * LINES[dtype]].reshape(-1, HALF, 4)
            at += lines.size
            values = codes(dtype, lines).astype(np.float64) - zero
            rows[:, g] = values.transpose(1, 0, 2).reshape(HALF, GROUP) * (unit * scales[g % BLOCK])[:, None]
    return out.reshape(-1, groups * GROUP)[:, :k]


def parts(data, dtype, k, rows, group=0, interleave=False):
    """The matrices that were packed: `rows` of each, from panels that were padded group by group."""
    unpacked, at = unpack(data, dtype, k), 0
    found = [[] for _ in rows]
    size = [min(group or n, n) for n in rows]
    order = [(p, first) for p, n in enumerate(rows) for first in range(0, n, size[p])]
    if interleave:
        order.sort(key=lambda step: (step[1], step[0]))
    for p, first in order:
        count = min(size[p], rows[p] - first)
        found[p].append(unpacked[at : at + count])
        at += -(-count // 32) * 32
    assert at == len(unpacked)
    return [np.concatenate(pieces) for pieces in found]


def as_bytes(x):
    """Activations [n, k] as a low-bit matmul takes them: bytes of 32, the largest of them 127, times a scale."""
    x = np.asarray(x, np.float64)
    n, k = x.shape
    groups = np.pad(x, ((0, 0), (0, -k % GROUP))).reshape(n, -1, GROUP)
    scale = np.abs(groups).max(-1, keepdims=True) / 127
    safe = np.where(scale > 0, scale, 1)
    return (np.rint(groups / safe) * scale).reshape(n, -1)[:, :k]
