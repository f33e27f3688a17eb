"""Random inputs for single ops, and caches whose unwritten slots hold NaN."""

import numpy as np
from swiftk._testing import ops

from reference import cached, stored


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def weight(rng, rows, columns, dtype):
    return stored(normal(rng, rows, columns) / np.sqrt(columns), dtype)


def size(x):
    return max(np.sqrt((x * x).mean()), 1e-3)


def assert_close(got, want, tolerance, unit=None):
    """tolerance in units of the wanted array's root mean square, unless said otherwise."""
    error = np.abs(got - want).max() / (unit or size(want))
    assert error <= tolerance, f"largest error {error:.3g}"


def angles(pos, d):
    """cos, sin [n, d / 2]."""
    a = np.asarray(pos, np.float64)[:, None] * 10000.0 ** (-np.arange(d // 2) * 2.0 / d)
    return np.cos(a).astype(np.float32), np.sin(a).astype(np.float32)


def causal_rows(pos, d):
    return ops.Rows(np.int32(pos), np.int32(pos), *angles(pos, d))


def tree_parts(parents, prefix, scratch, nodes=None):
    """(pos, slot, ancestors) of the given nodes (default all) of a tree; node i is at slot scratch + i. parents[i] < i,
    -1 for a root."""
    depth, mask = [], []
    for i, p in enumerate(parents):
        depth.append(depth[p] + 1 if p >= 0 else 0)
        mask.append((mask[p] if p >= 0 else 0) | 1 << i)
    nodes = range(len(parents)) if nodes is None else nodes
    pos = [prefix + depth[i] for i in nodes]
    slot = [scratch + i for i in nodes]
    return np.int32(pos), np.int32(slot), np.array([mask[i] for i in nodes], np.uint64)


def tree_rows(parents, d, prefix, scratch, nodes=None):
    pos, slot, masks = tree_parts(parents, prefix, scratch, nodes)
    return ops.Rows(pos, slot, *angles(pos, d), masks, prefix, scratch)


def path(parents, node):
    """The node and its ancestors, root first."""
    nodes = []
    while node >= 0:
        nodes.append(node)
        node = parents[node]
    return nodes[::-1]


def random_tree(rng, n):
    return [-1] + [int(rng.integers(max(0, i - 4), i)) for i in range(1, n)]


class Keys:
    """Random keys and values by position, [n, n_kv, d], as a dtype stores them."""

    def __init__(self, rng, n, n_kv, d, dtype):
        self.k, self.v = (cached(normal(rng, n, n_kv, d), dtype) for _ in range(2))

    def write(self, kernels, cache, slots, which):
        kernels.set_rows(cache, np.int32(slots), self.k[which], self.v[which])
