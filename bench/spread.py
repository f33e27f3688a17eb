"""How far a ratio depends on the texts that it is of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import geometric_mean
from typing import Any

import numpy as np

DRAWS = 1000
RATIOS = ("speedup", "E", "of_E", "of_E_at_v", "without_search", "over", "over_one")  # keys of rows


def error(above: Sequence[float], below: Sequence[float]) -> float | None:
    """Standard error of sum(above) / sum(below), each of one text: by the bootstrap over texts. None of one text."""
    if (count := len(above)) < 2:
        return None
    drawn = np.random.default_rng(1).integers(count, size=(DRAWS, count))
    ratios = np.asarray(above, float)[drawn].sum(1) / np.asarray(below, float)[drawn].sum(1)
    return float(ratios.std(ddof=1))


def over_texts(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How many rows of a way there are, each of one text; geometric means of their ratios; the lowest and the highest
    speed-up."""
    every = {key: [row[key] for row in rows if row.get(key) is not None] for key in RATIOS}
    found = {key: geometric_mean(values) for key, values in every.items() if values}
    if speedups := every["speedup"]:
        found |= {"worst": min(speedups), "best": max(speedups)}
    return {"count": len(rows), **found}
