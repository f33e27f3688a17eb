"""A GGUF file as a model's files. The native library reads the file; here are its metadata and its tokenizer."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from .. import _core
from ..errors import UnsupportedModel
from .gguf_tokenizer import build
from .hf_folder import CONFIG, GENERATION, TOKENIZER, TOKENIZER_SETTINGS
from .safetensors_io import Tensor

_SAMPLE = 1 << 16  # bytes at three places of each part that tell files of one size apart
_PART = re.compile(r"-00001-of-(\d{5})\.gguf$")
_PREFIX = "tokenizer."


class _Tensors(Mapping[str, Tensor]):
    """Each is decoded when it is asked for."""

    def __init__(self, native: _core.GgufTensors) -> None:
        self._native, self._names = native, dict.fromkeys(native.names())

    def __getitem__(self, name: str) -> Tensor:
        return Tensor("F32", self._native.read(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class GgufFile:
    """Each part is read when it is first asked for. model_files.ModelFiles says what the members are."""

    def __init__(self, path: Path) -> None:
        self.path = self.tokenizer_path = self.generation_path = path

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """All keys of the file, as llama.cpp names them."""
        return _core.gguf_metadata(str(self.path))

    @cached_property
    def config(self) -> dict[str, Any]:
        return dict(json.loads(_core.gguf_config(str(self.path))))

    @property
    def generation(self) -> dict[str, Any]:
        begin, ends = self.token_ids("bos_token"), self.token_ids("eos_token")
        return {"bos_token_id": begin[0] if begin else None, "eos_token_id": ends}

    @property
    def has_tokenizer(self) -> bool:
        return self.metadata.get("tokenizer.ggml.model", "none") != "none"

    @cached_property
    def _tokenizer(self) -> bytes:
        return build(self.path, self.metadata)

    def tokenizer_json(self) -> bytes:
        return self._tokenizer

    @property
    def chat_template(self) -> Any:
        names = self.metadata.get("tokenizer.chat_templates", [])
        default = self.metadata.get("tokenizer.chat_template")
        others = {name: self.metadata.get(f"tokenizer.chat_template.{name}") for name in names}
        if not any(others.values()):
            return default
        named = {"default": default, **others}
        return [{"name": name, "template": text} for name, text in named.items() if text]

    @property
    def special_tokens(self) -> dict[str, str]:
        tokens = self.metadata.get("tokenizer.ggml.tokens", [])
        names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
        ids = {name: self.metadata.get(f"tokenizer.ggml.{key}_token_id") for name, key in names.items()}
        for name in ("bos_token", "eos_token"):
            if ids[name] is None and (usual := self.token_ids(name)):
                ids[name] = usual[0]
        return {name: tokens[i] for name, i in ids.items() if i is not None and 0 <= i < len(tokens)}

    def token_ids(self, token: str) -> list[int]:
        return _core.token_ids(str(self.path), token)

    def tensors(self) -> Mapping[str, Tensor]:
        return _Tensors(_core.GgufTensors(str(self.path)))

    @cached_property
    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for path in self._parts():
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                digest.update(str(size).encode())
                for at in (0, size // 2, max(0, size - _SAMPLE)):
                    file.seek(at)
                    digest.update(file.read(_SAMPLE))
        return digest.hexdigest()[:24]

    def settings(self) -> dict[str, bytes]:
        """UnsupportedModel: rotary frequencies that stand in a tensor of the file, and in no config.json."""
        if _core.GgufTensors(str(self.path)).divides_angles:
            raise UnsupportedModel(
                f"[gguf] {self.path}: rope_freqs.weight divides rotary frequencies, which no config.json says; want "
                "the folder that the file was made of"
            )
        files = {CONFIG: self.config, GENERATION: self.generation}
        if self.has_tokenizer:
            template = {"chat_template": self.chat_template} if self.chat_template else {}
            files[TOKENIZER_SETTINGS] = {**self.special_tokens, **template}
        written = {name: json.dumps(its, indent=2).encode() for name, its in files.items()}
        return {**written, TOKENIZER: self.tokenizer_json()} if self.has_tokenizer else written

    def _parts(self) -> list[Path]:
        split = _PART.search(self.path.name)
        if split is None:
            return [self.path]
        stem, count = self.path.name[: split.start()], int(split[1])
        return [self.path.with_name(f"{stem}-{i:05}-of-{count:05}.gguf") for i in range(1, count + 1)]
