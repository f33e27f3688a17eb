"""A GGUF file as a Hugging Face folder in bfloat16, for studies and peers that need one."""

from __future__ import annotations

import json
from pathlib import Path

from swiftk.errors import UnsupportedModel
from swiftk.files.folders import cache_folder
from swiftk.files.gguf import GgufFile
from swiftk.files.hf_folder import CONFIG
from swiftk.files.safetensors_io import WEIGHTS, Tensor, encode, write_file

from .weights import DECODED, encoding


def folder_of(model: Path) -> Path:
    """The folder of a model; where it is a GGUF file, one that is made once in the cache. SystemExit: no folder can say
    what the file does."""
    if model.is_dir():
        return model
    made = cache_folder() / "decoded" / f"{model.stem}-{int(model.stat().st_mtime)}"
    if not (made / CONFIG).is_file():
        try:
            _decode(GgufFile(model), made)
        except UnsupportedModel as error:
            raise SystemExit(str(error)) from None
    return made


def _decode(files: GgufFile, to: Path) -> None:
    """config.json is the last, and says that all is there."""
    config = {**files.config, "torch_dtype": "bfloat16", DECODED: encoding(files)}
    settings = files.settings()
    del settings[CONFIG]
    to.mkdir(parents=True, exist_ok=True)
    for name, data in settings.items():
        (to / name).write_bytes(data)
    tensors = {name: Tensor("BF16", encode(its.bits, "BF16")) for name, its in files.tensors().items()}
    for _ in write_file(to / WEIGHTS, tensors):
        pass
    (to / CONFIG).write_text(json.dumps(config, indent=1), encoding="utf-8")
