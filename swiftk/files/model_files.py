"""A model's files, whatever kind they are of. Other rooms read a model through open_model_files() alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from .gguf import GgufFile
from .hf_folder import HfFolder
from .safetensors_io import Tensor


class ModelFiles(Protocol):
    """What every kind of files offers. A part that is there and damaged is a CheckpointError that names its file."""

    path: Path  # the folder, or the file
    tokenizer_path: Path  # where the tokenizer is, for messages
    generation_path: Path  # where generation defaults are, for messages

    @property
    def config(self) -> dict[str, Any]:
        """Fields as config.json names them; {} if there are none."""

    @property
    def generation(self) -> dict[str, Any]:
        """Fields as generation_config.json names them; {} if there are none."""

    @property
    def has_tokenizer(self) -> bool: ...

    def tokenizer_json(self) -> bytes:
        """The tokenizer, as tokenizer.json has it."""

    @property
    def chat_template(self) -> Any:
        """Jinja source, a list of several by name, or None."""

    @property
    def special_tokens(self) -> dict[str, str]:
        """Texts of special tokens: "eos_token": "</s>"."""

    def token_ids(self, token: str) -> list[int]:
        """Ids of "bos_token" or "eos_token"; empty if the files name none."""

    def tensors(self) -> Mapping[str, Tensor]:
        """All weights, by Hugging Face's names."""

    def settings(self) -> dict[str, bytes]:
        """Files of a Hugging Face folder by name, but the weights: what another folder needs beside its own."""

    @property
    def fingerprint(self) -> str:
        """Tells models apart, by the config and samples of the weights: reading all of them would take long."""


def open_model_files(model: str | os.PathLike[str] | ModelFiles) -> ModelFiles:
    """The files of a path, which model_folder.find() has accepted. Nothing is read yet."""
    if not isinstance(model, (str, os.PathLike)):
        return model
    path = Path(model)
    return GgufFile(path) if path.is_file() else HfFolder(path)
