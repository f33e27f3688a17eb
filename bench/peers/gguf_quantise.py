"""Quantises a GGUF file, perhaps a quantised one, as llama.cpp does: `gguf_quantise.py SOURCE TARGET KIND`."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import llama_cpp

_KIND = "LLAMA_FTYPE_MOSTLY_"


def quantise(source: Path, target: Path, kind: str) -> None:
    """kind: "q8_0", "q4_k_m", ..., as llama.cpp's LLAMA_FTYPE_MOSTLY_* spell it."""
    options = llama_cpp.llama_model_quantize_default_params()
    options.allow_requantize = True
    kinds = {name.removeprefix(_KIND).lower(): name for name in dir(llama_cpp) if name.startswith(_KIND)}
    if kind not in kinds:
        raise ValueError(f"[gguf_quantise] there is no kind {kind!r}, want one of: {', '.join(sorted(kinds))}")
    options.ftype = getattr(llama_cpp, kinds[kind])
    part = target.with_suffix(".part")
    if status := llama_cpp.llama_model_quantize(str(source).encode(), str(part).encode(), ctypes.byref(options)):
        raise RuntimeError(f"[gguf_quantise] llama.cpp returned {status} for {source}")
    part.rename(target)


if __name__ == "__main__":
    quantise(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
