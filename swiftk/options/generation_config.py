"""Defaults of a checkpoint: generation_config.json, and the BOS and EOS ids, which other files may hold instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, InvalidArgument, InvalidOption
from ..files.model_files import ModelFiles, open_model_files
from .fields import TextOptions, table
from .values import Kind


@dataclass(frozen=True, slots=True)
class Defaults:
    """Defaults of the model's files; None or empty if they have none."""

    do_sample: bool | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)  # of the options that the files may hold, by name
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


def read_defaults(model: str | PathLike[str] | ModelFiles) -> Defaults:
    """All files are optional here; one that is there and unreadable is a CheckpointError."""
    files = open_model_files(model)
    path, found = files.generation_path, files.generation
    return Defaults(
        do_sample=found.get("do_sample") if found.get("do_sample") is None else bool(found["do_sample"]),
        sampling={
            name: _option(path, name, one.kind, found[name])
            for name, one in table(TextOptions).items()
            if one.checkpoint and found.get(name) is not None
        },
        max_new_tokens=_integer(path, "max_new_tokens", found.get("max_new_tokens"), 1),
        max_length=_integer(path, "max_length", found.get("max_length"), 1),
        bos_token_id=next(iter(files.token_ids("bos_token")), None),
        eos_token_ids=tuple(files.token_ids("eos_token")),
    )


def _option(path: Path, name: str, kind: Kind, value: Any) -> Any:
    try:
        return kind.read(f"[{path.name}] {path} has {name}", value)
    except (InvalidArgument, InvalidOption) as error:
        raise CheckpointError(str(error)) from None


def _integer(path: Path, name: str, value: Any, low: int) -> Any:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= low):
        return value
    raise CheckpointError(f"[{path.name}] {name}={value!r} in {path}, want an integer of {low} or more")
