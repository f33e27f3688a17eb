"""Low-bit weights by their documented layout, in numpy: what a panel says its rows are, and what activations become;
and the drafts that tests let read them."""

import numpy as np

from cases import LOW_BIT
from reference import stored, value

GROUP = 32  # of k
HALF = 16  # rows of half a panel
BLOCK = 4  # groups whose scales share a line
LINES = {"int8": 8, "int4": 4, "int3": 3}

FORMS = ["int8", "int4", "int3"]
PROMPT = [5, 9, 2, 7, 7, 1, 30, 12, 4, 8, 21]
MIXED = ("own", "own", "int4", "int3")  # of four layers
WIDE = {"confidence": 0.0, "max_draft": 6, "width": (3, 3, 3, 3)}


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


PLANES = {"int8": (8,), "int4": (4,), "int3": (2, 1)}  # bits of each


def fragment_codes(blocks, dtype):
    """[.., 16 rows, 128] codes of blocks [.., words], by the fragments of layout.h."""
    row, k = np.arange(16)[:, None], np.arange(128)
    lane = 4 * (row % 8) + k % 16 // 4
    pair = 8 * (k // 32) + 4 * (k // 16 % 2) + 2 * (k // 2 % 2) + row // 8
    found, shift, start = 0, 0, 0
    for bits in PLANES[dtype]:
        words, word = 2 * bits, pair * bits // 16
        near = min(words, 4)
        at = start + word // near * 32 * near + lane * near + word % near
        found = found | (blocks[..., at] >> (pair * bits % 16 + 16 * (k % 2)) & ((1 << bits) - 1)) << shift
        shift, start = shift + bits, start + 32 * words
    return found


def unpack_fragments(data, dtype, k, rounding=None):
    """The same of fragments. rounding: the dtype that codes times their groups' scales are rounded to; None: exact."""
    blocks, zero = -(-k // 128), 1 << (LOW_BIT[dtype] - 1)
    tiles = np.frombuffer(data, np.uint32).reshape(-1, 16 + blocks * (16 + 64 * LOW_BIT[dtype]))
    unit, body = tiles[:, :16].copy().view(np.float32), tiles[:, 16:].reshape(len(tiles), blocks, -1)
    scales = np.ascontiguousarray(body[..., :16]).view(np.int8).reshape(len(tiles), blocks, 16, 4)
    values = fragment_codes(body[..., 16:].astype(np.int64), dtype) - zero
    values = (values * np.repeat(scales, GROUP, -1).astype(np.int64)).astype(np.float64)
    values = value(stored(values.astype(np.float32), rounding)) if rounding else values
    values = values.transpose(0, 2, 1, 3).reshape(len(tiles), 16, -1) * unit[..., None]
    return values.reshape(len(tiles) * 16, -1)[:, :k]


def parts(data, dtype, k, rows, group=0, interleave=False, unpack=unpack):
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
