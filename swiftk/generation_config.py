"""Sampling defaults of a checkpoint: generation_config.json, and the EOS ids, which config.json may hold instead."""

from __future__ import annotations

import json
import operator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import CheckpointError


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the files say; None or empty where they say nothing."""

    do_sample: bool = False
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    max_new_tokens: int | None = None
    eos_token_ids: tuple[int, ...] = ()


def read_defaults(model_dir: str | Path) -> Defaults:
    """Both files are optional here; one that is there and unreadable is a CheckpointError."""
    folder = Path(model_dir)
    path = folder / "generation_config.json"
    found = read_json(path)
    eos = found.get("eos_token_id")
    if eos is None:
        eos = read_json(folder / "config.json").get("eos_token_id")
    number = (int, float)
    return Defaults(
        do_sample=bool(found.get("do_sample") or False),
        temperature=_value(path, found, "temperature", number, 0.0, None),
        top_p=_value(path, found, "top_p", number, 0.0, 1.0),
        top_k=_value(path, found, "top_k", (int,), -1, None),
        min_p=_value(path, found, "min_p", number, 0.0, 1.0),
        repetition_penalty=_value(path, found, "repetition_penalty", number, 0.0, None),
        max_new_tokens=_value(path, found, "max_new_tokens", (int,), 1, None),
        eos_token_ids=_eos(path, eos),
    )


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; {} if there is no such file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise CheckpointError(f"[{path.name}] {path} is not readable JSON: {error}") from None
    if not isinstance(found, dict):
        raise CheckpointError(f"[{path.name}] {path} holds {type(found).__name__}, want a JSON object")
    return found


def _value(
    path: Path, found: dict[str, Any], name: str, kinds: tuple[type, ...], low: float, high: float | None
) -> Any:
    value = found.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, kinds) or value < low or (high is not None and value > high):
        want = f"{low} or more" if high is None else f"{low}..{high}"
        raise CheckpointError(f"[{path.name}] {name}={value!r} in {path}, want a number of {want}")
    if name in ("top_p", "repetition_penalty") and value == 0:
        raise CheckpointError(f"[{path.name}] {name}=0 in {path}, want more than 0")
    return value


def _eos(path: Path, value: Any) -> tuple[int, ...]:
    try:
        return (
            () if value is None else tuple(operator.index(v) for v in (value if isinstance(value, list) else [value]))
        )
    except TypeError:
        raise CheckpointError(
            f"[{path.name}] eos_token_id={value!r} in {path.parent}, want an id or a list of ids"
        ) from None
