"""Defaults of a checkpoint: generation_config.json, and the BOS and EOS ids, which other files may hold instead."""

from __future__ import annotations

import json
import operator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import CheckpointError, InvalidArgument
from .fields import TextOptions, table
from .option_values import Number

_NUMBERS = {
    name: one.kind for name, one in table(TextOptions).items() if one.checkpoint and isinstance(one.kind, Number)
}


@dataclass(frozen=True, slots=True)
class Defaults:
    """Defaults of the model's files; None or empty if they have none."""

    do_sample: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    max_new_tokens: int | None = None
    max_length: int | None = None  # tokens of the prompt and of the text together
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    def new_tokens(self, prompt_tokens: int) -> int | None:
        """Tokens that may follow a prompt of so many."""
        if self.max_new_tokens is not None or self.max_length is None:
            return self.max_new_tokens
        if prompt_tokens >= self.max_length:
            raise InvalidArgument(
                f"[prompt] the prompt has {prompt_tokens} tokens, max_length in the model's generation_config.json is "
                f"{self.max_length}; give max_new_tokens"
            )
        return self.max_length - prompt_tokens


def read_defaults(model_dir: str | Path) -> Defaults:
    """Both files are optional here; one that is there and unreadable is a CheckpointError."""
    folder = Path(model_dir)
    path = folder / "generation_config.json"
    found = read_json(path)
    return Defaults(
        do_sample=found.get("do_sample") if found.get("do_sample") is None else bool(found["do_sample"]),
        **{name: _number(path, name, kind, found.get(name)) for name, kind in _NUMBERS.items()},
        top_k=_integer(path, "top_k", found.get("top_k"), -1),
        max_new_tokens=_integer(path, "max_new_tokens", found.get("max_new_tokens"), 1),
        max_length=_integer(path, "max_length", found.get("max_length"), 1),
        bos_token_id=_integer(path, "bos_token_id", _of_any_file(folder, "bos_token_id"), 0),
        eos_token_ids=_eos(path, _of_any_file(folder, "eos_token_id")),
    )


def _of_any_file(folder: Path, name: str) -> Any:
    """An id, of the first file that names one: generation_config.json, config.json, or a text model's part of it; else
    that of the tokenizer's token ("eos_token" of "eos_token_id")."""
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


def _number(path: Path, name: str, kind: Number, value: Any) -> Any:
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool) and kind.holds(value)):
        return value if value is None else kind.read(name, value)
    raise CheckpointError(f"[{path.name}] {name}={value!r} in {path}, want {kind.wanted}")


def _integer(path: Path, name: str, value: Any, low: int) -> Any:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= low):
        return value
    raise CheckpointError(f"[{path.name}] {name}={value!r} in {path}, want an integer of {low} or more")


def _eos(path: Path, value: Any) -> tuple[int, ...]:
    try:
        return (
            () if value is None else tuple(operator.index(v) for v in (value if isinstance(value, list) else [value]))
        )
    except TypeError:
        raise CheckpointError(
            f"[{path.name}] eos_token_id={value!r} in {path.parent}, want an id or a list of ids"
        ) from None
