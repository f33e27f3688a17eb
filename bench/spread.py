"""How far a ratio of sums depends on the texts that it is of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

DRAWS = 1000


def error(above: Sequence[float], below: Sequence[float]) -> float | None:
    """Standard error of sum(above) / sum(below), each of one text: by the bootstrap over texts. None of one text."""
    if (count := len(above)) < 2:
        return None
    drawn = np.random.default_rng(1).integers(count, size=(DRAWS, count))
    ratios = np.asarray(above, float)[drawn].sum(1) / np.asarray(below, float)[drawn].sum(1)
    return float(ratios.std(ddof=1))
