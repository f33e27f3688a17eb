"""What the experiments of this folder share: the way to bench/paper's machinery, and early exits as ways."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parents[1]
sys.path[1:1] = [str(BENCH / "paper"), str(BENCH)]

from runs import Way, fixed  # noqa: E402
from swiftk import DraftRule, SkipSet  # noqa: E402

FOLDER = "layerskip"  # of the results
STREAMS = ("english", "gsm8k", "summarization")


def rule(length: int, width: int = 1, confidence: float = 0.0) -> DraftRule:
    """`length` steps, each with `width` candidates in the tree: LayerSkip drafts chains of a fixed length."""
    return DraftRule(confidence=confidence, max_draft=length, width=(width,) * 4)


def early_exit(name: str, layer: int, drafts: DraftRule, **options: Any) -> Way:
    """Drafts with the first layers in every round."""
    way = fixed(name, SkipSet.early_exit(layer), drafts)
    return Way(name, {**way.options, **options})


def by_time(name: str, layer: int) -> Way:
    """Drafts with the first layers where that pays, as far and wide as it pays."""
    return Way(name, {"skip": SkipSet.early_exit(layer), "optimizer": None})
