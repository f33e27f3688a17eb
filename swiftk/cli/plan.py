"""How a model uses bounded memory, and how fast it is where passes read from disk: figures, and rows that show them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import _core
from ..draft.cost import best_round
from .common import megabytes

_PARTS = {  # of a plan's bytes, as a person reads them
    "limit": "memory, at most",
    "process": "this process by itself",
    "drafts": "copies, trimmed head, draft models",
    "head": "the model's head",
    "kv": "keys and values",
    "work": "rows under way",
    "ahead": "weights that are read ahead",
    "layers": "layers that stay in memory",
    "streamed": "read from disk for each pass",
}
NOTHING = dict.fromkeys(_PARTS, 0)  # the plan where memory has no bound
_SAMPLE = 256 << 20  # bytes that tell a disk's speed
_LONGEST = 60  # tokens of a draft
_ACCEPTED = (0.8, 0.9, 0.95)


def disk_speed(file: Path) -> float:
    """Bytes a second of direct reads."""
    return float(_core.read_speed(str(file), _SAMPLE))


def forecast(streamed: int, speed: float, copies: Mapping[str, int], bandwidth: float) -> dict[str, Any]:
    """Of passes that take as long as the disk does. A draft step reads the smallest copy from memory, at `bandwidth`
    bytes a second."""
    seconds = streamed / speed
    drafted = {}
    for alpha in _ACCEPTED if copies else ():
        rate, length = best_round(alpha, min(copies.values()) / bandwidth, seconds, _LONGEST)
        drafted[str(alpha)] = {"tokens_per_second": rate, "draft_length": length}
    return {
        "disk_bytes_per_second": speed,
        "read_bytes_per_second": bandwidth,
        "plain_pass_seconds": seconds,
        "plain_tokens_per_second": 1 / seconds,
        "at_acceptance": drafted,
    }


def rows(plan: Mapping[str, int]) -> list[tuple[str, str]]:
    """(words, size) of what the memory is for; none, where it is not bounded."""
    if not plan["limit"]:
        return []
    return [(words, megabytes(plan[name]) if plan[name] else "none") for name, words in _PARTS.items()]


def forecast_rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    rate, seconds = found["plain_tokens_per_second"], found["plain_pass_seconds"]
    return [
        ("disk", f"{found['disk_bytes_per_second'] / 1e9:.2f} GB/s"),
        ("a plain pass, expected", f"{seconds:.3g} s, {rate:.3g} tokens/s"),
        *(
            (
                f"drafts of which {float(alpha):.0%} are accepted",
                f"{its['tokens_per_second']:.3g} tokens/s, {its['draft_length']} tokens a draft",
            )
            for alpha, its in found["at_acceptance"].items()
        ),
    ]
