"""Rules by time with sources, for single sessions of tiny models."""

import numpy as np

from timed_rule import random_rule

LAYERS = 4
PROMPT = [5, 9, 2, 7, 7, 1, 30, 12, 4, 8, 21, 5, 9, 2, 7, 7]
SKIPS = [((1,), (1, 2), -1), ((), (), 2), ((), (), 0)]
SUFFIX, RECYCLE, LOOKUP, LOOKAHEAD, PARALLEL, TEMPLATE = range(2, 8)
SETS = [(SUFFIX,), (RECYCLE,), (SUFFIX, RECYCLE), (LOOKUP,), (LOOKAHEAD,), (PARALLEL,), (TEMPLATE,)]
SETS += [(RECYCLE, SUFFIX, LOOKUP), (RECYCLE, LOOKAHEAD), (LOOKAHEAD, PARALLEL)]
LOOPS = {"repetition_penalty": 0.5}  # below 1 it makes texts of random models run in circles


def source_rule(seed, ids, chain=0, min_row_gain=0.0, min_own_gain=2.0, sure=False, **more):
    """A rule by time with sources that are believed at random, or for certain."""
    rng = np.random.default_rng(seed)
    tables = [(one, (np.ones((16, 8)) if sure else rng.uniform(0, 1, (16, 8))).tolist()) for one in ids]
    return {
        **random_rule(seed, **more),
        "sources": tables,
        "chain": chain,
        "min_row_gain": min_row_gain,
        "min_own_gain": min_own_gain,
    }


def all_of(*ids):
    """Whatever sources propose, as far as there is room."""
    return {**source_rule(0, ids, sure=True), "row_price": [0.0] * 64}
