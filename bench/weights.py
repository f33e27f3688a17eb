"""What a model's weights are, and which few-bit copies of them say more than they would of others: those that have as
many bits as the file that the weights were decoded from. Such a copy is the file's own weights once more, and agrees
with the model by construction."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from swiftk.files.gguf import GgufFile
from swiftk.files.model_files import ModelFiles

DECODED = "decoded_from"  # of config.json: what kind of file a folder's weights were decoded from
_GGUF = {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S"}
_GGUF |= {12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 32: "BF16"}
_WHOLE = 16  # bits of weights that nothing rounded


def encoding(files: ModelFiles) -> str | None:
    """Of the file: "Q4_1", "int4"; None: weights that nothing rounded to fewer than 16 bits."""
    if isinstance(files, GgufFile):
        kind = files.metadata.get("general.file_type")
        found = _GGUF.get(kind, f"GGUF type {kind}")
        return None if found in ("F32", "F16", "BF16") else found
    packed = files.config.get("quantization_config") or {}
    groups = [one.get("weights") or {} for one in packed.get("config_groups", {}).values()]
    bits = packed.get("bits") or next((one["num_bits"] for one in groups if "num_bits" in one), None)
    return f"int{bits}" if bits else files.config.get(DECODED)


def bits(name: str | None) -> int:
    """Of an encoding or a copy, by its name."""
    found = re.match(r"(?:int|I?Q)(\d+)", name or "")
    return int(found[1]) if found else _WHOLE


def told(files: ModelFiles, dtype: str) -> str:
    """As a result says it; dtype: the one asked for."""
    rounded = encoding(files)
    if dtype == "auto":
        return rounded or "as in the files"
    return f"{dtype}, decoded from {rounded}" if rounded else dtype


def flattered(copies: Iterable[str], files: ModelFiles, dtype: str) -> bool:
    """Whether drafts read a copy that has as many bits as the weights once had, or more."""
    own = min(bits(encoding(files)), bits(dtype))
    return own < _WHOLE and any(own <= bits(copy) < _WHOLE for copy in copies)


def size(model: Path) -> int:
    """Bytes of the files."""
    return model.stat().st_size if model.is_file() else sum(f.stat().st_size for f in model.glob("*.safetensors"))
