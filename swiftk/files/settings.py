"""Settings in a model's folder, which are JSON in several files: what one file lacks, another may hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import CheckpointError


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


def special_id(folder: Path, name: str) -> Any:
    """An id, as `eos_token_id`, of the first file that names one: generation_config.json, config.json, or a text
    model's part of it; else that of the tokenizer's token (`eos_token`)."""
    config = read_json(folder / "config.json")
    nested = config.get("text_config")
    for found in (read_json(folder / "generation_config.json"), config, nested if isinstance(nested, dict) else {}):
        if found.get(name) is not None:
            return found[name]
    settings = tokenizer_settings(folder)
    token = settings.get(name.removesuffix("_id"))
    return None if token is None else _id_of(folder, content_of(token), settings)


def tokenizer_settings(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json, over special_tokens_map.json."""
    own = read_json(folder / "tokenizer_config.json")
    return {**read_json(folder / "special_tokens_map.json"), **{k: v for k, v in own.items() if v is not None}}


def content_of(token: Any) -> str:
    """The text of a token, which these files have as it is or within an object."""
    return str(token["content"] if isinstance(token, dict) and "content" in token else token)


def _id_of(folder: Path, token: str, settings: dict[str, Any]) -> int | None:
    for id, entry in (settings.get("added_tokens_decoder") or {}).items():
        if content_of(entry) == token:
            return int(id)
    whole = read_json(folder / "tokenizer.json")
    added = [entry["id"] for entry in whole.get("added_tokens") or () if entry["content"] == token]
    vocab = (whole.get("model") or {}).get("vocab")
    return added[0] if added else vocab.get(token) if isinstance(vocab, dict) else None
