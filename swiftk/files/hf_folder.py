"""A Hugging Face folder as a model's files. Settings are in several files: what one lacks, another may hold."""

from __future__ import annotations

import hashlib
import json
import os
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import CheckpointError
from .safetensors_io import Tensor, read_folder

CONFIG, GENERATION = "config.json", "generation_config.json"
TOKENIZER, TOKENIZER_SETTINGS, TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
_TOKENS = "special_tokens_map.json"
TOKENIZER_FILES = (TOKENIZER_SETTINGS, _TOKENS, TEMPLATE, TOKENIZER)
_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
_SAMPLE = 1 << 16  # bytes of each weight file that tell models of one shape apart


class HfFolder:
    """Each file is read when it is first asked for. model_files.ModelFiles says what the members are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tokenizer_path, self.generation_path = path / TOKENIZER, path / GENERATION

    @cached_property
    def config(self) -> dict[str, Any]:
        found = read_json(self.path / CONFIG)
        text = found.get("text_config")  # of a model that reads pictures, too
        return {**found, **text} if isinstance(text, dict) else found

    @cached_property
    def generation(self) -> dict[str, Any]:
        return read_json(self.generation_path)

    @property
    def has_tokenizer(self) -> bool:
        return self.tokenizer_path.is_file()

    def tokenizer_json(self) -> bytes:
        return self.tokenizer_path.read_bytes()

    @cached_property
    def chat_template(self) -> Any:
        file = self.path / TEMPLATE
        return file.read_text(encoding="utf-8") if file.is_file() else self._tokenizer_settings.get("chat_template")

    @property
    def special_tokens(self) -> dict[str, str]:
        named = self._tokenizer_settings
        return {name: _content(named[name]) for name in _SPECIAL if named.get(name) is not None}

    def token_ids(self, token: str) -> list[int]:
        from .. import _core

        return _core.token_ids(str(self.path), token)

    def tensors(self) -> dict[str, Tensor]:
        return read_folder(self.path)

    @cached_property
    def fingerprint(self) -> str:
        digest = hashlib.sha256((self.path / CONFIG).read_bytes())
        for path in sorted(self.path.glob("*.safetensors")):
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size // 2 - _SAMPLE // 2))
                digest.update(str(size).encode() + file.read(_SAMPLE))
        return digest.hexdigest()[:24]

    def settings(self) -> dict[str, bytes]:
        files = (file for file in self.path.iterdir() if file.suffix in (".json", ".jinja"))
        return {file.name: file.read_bytes() for file in files if not file.name.endswith(".index.json")}

    @cached_property
    def _tokenizer_settings(self) -> dict[str, Any]:
        """tokenizer_config.json, over special_tokens_map.json."""
        own = read_json(self.path / TOKENIZER_SETTINGS)
        return {**read_json(self.path / _TOKENS), **{k: v for k, v in own.items() if v is not None}}


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


def _content(token: Any) -> str:
    """The text of a token, which these files have as it is or within an object."""
    return str(token["content"] if isinstance(token, dict) and "content" in token else token)
