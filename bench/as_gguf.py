"""A model as GGUF files, each made once in the cache by an interpreter that has gguf and llama-cpp-python."""

from __future__ import annotations

import subprocess
from pathlib import Path

from swiftk.files.folders import cache_folder

from .decoded import folder_of

_PEERS = Path(__file__).with_name("peers")
KIND = {
    "--kind": {
        "metavar": "KIND",
        "help": "the model as llama.cpp's quantiser makes it: q8_0, q4_k_m, ...; default: as it is",
    }
}


class Missing(Exception):
    """What a peer needs is not installed."""


def gguf(model: Path, dtype: str, python: str) -> str:
    """The weights as llama.cpp reads them, made once for a model that has not changed."""
    model = folder_of(model)
    stamp = max(int(f.stat().st_mtime) for f in model.glob("*.safetensors"))
    path = _cached(f"{model.resolve().name}-{stamp}-{dtype}-words")
    if not path.is_file():
        _make(python, "gguf_export.py", str(model), str(path), "--dtype", dtype)
    return str(path)


def quantised(model: Path, kind: str, python: str) -> str:
    """The model as llama.cpp's own quantiser makes it of the GGUF file that it is, or of its 16-bit file; kind as
    llama.cpp names it."""
    source = model if model.is_file() else Path(gguf(model, "f16", python))
    path = _cached(f"{source.stem}-{int(source.stat().st_mtime)}-{kind}")
    if not path.is_file():
        _make(python, "gguf_quantise.py", str(source), str(path), kind)
    return str(path)


def _cached(name: str) -> Path:
    path = cache_folder() / "gguf" / f"{name}.gguf"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _make(python: str, script: str, *words: str) -> None:
    done = subprocess.run([python, str(_PEERS / script), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Missing(f"{python}: {done.stderr.strip().splitlines()[-1]}")
