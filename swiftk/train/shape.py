"""The shape of the model to train, from its config.json, which the runtime's own reader has checked first."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _core
from ..errors import InvalidArgument
from ..files.model_files import open_model_files
from .settings import Settings


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes are in the runtime's letters (csrc/files/config.h)."""

    L: int
    D: int
    H: int
    n_kv: int
    d: int
    F: int
    V: int
    eps: float
    tied: bool
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    inv_freq: tuple[float, ...]  # [d / 2] rotary frequencies


def read_shape(folder: Path, context: int) -> Shape:
    """Refuses what the runtime refuses, and texts longer than where the model's mathematics changes with length.

    Within that length sliding windows see everything and dynamic rope does not scale, so neither is implemented here.
    """
    native = _core.kernel_shape(str(folder), "float32")  # reads config.json alone: there may be no weights yet
    config = open_model_files(folder).config
    reach = config.get("max_position_embeddings") or 2048
    reach = min([reach, *(window for window in _core.read_config(str(folder))["window"] if window)])
    if context > reach:
        raise InvalidArgument(f"[train] --context is {context}, want at most {reach}, the reach of the model")
    flags = {name: native[name] for name in ("qkv_bias", "o_bias", "mlp_bias", "qk_norm", "eps")}
    return Shape(
        L=config["num_hidden_layers"],
        D=native["D"],
        H=native["H"],
        n_kv=native["KV"],
        d=native["HD"],
        F=native["F"],
        V=native["V"],
        tied=bool(config.get("tie_word_embeddings") or False),
        inv_freq=tuple(frequencies(config, native["HD"])),
        **flags,
    )


def new_config(settings: Settings, vocab: int, special: dict[str, int]) -> dict[str, Any]:
    """config.json of a model that does not exist yet."""
    ffn = settings.ffn or -(-settings.hidden * 8 // 3 // 32) * 32
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": settings.hidden,
        "intermediate_size": ffn,
        "num_hidden_layers": settings.layers,
        "num_attention_heads": settings.heads,
        "num_key_value_heads": settings.kv_heads or settings.heads,
        "vocab_size": vocab,
        "max_position_embeddings": settings.max_positions,
        "rms_norm_eps": 1e-5,
        "rope_theta": settings.rope_theta,
        "hidden_act": "silu",
        "tie_word_embeddings": not settings.untied,
        "torch_dtype": settings.export_dtype or "bfloat16",
        **special,
    }


def frequencies(config: dict[str, Any], d: int) -> list[float]:
    """base^(-2i/d), scaled. The fields may stand at the top or inside, as csrc/files/config.cc has it."""
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    base = rope.get("rope_theta") or config.get("rope_theta") or 10000.0
    kind = rope.get("rope_type") or rope.get("type") or "default"
    found = [base ** (-2 * i / d) for i in range(d // 2)]
    if kind == "linear":
        return [f / rope["factor"] for f in found]
    if kind != "llama3":
        return found
    name = "original_max_position_embeddings"
    original = config.get(name) or rope.get(name) or config.get("max_position_embeddings") or 2048
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]

    def llama3(f: float) -> float:
        """Long waves are stretched, short ones kept, those between blended by how often they turn within `original`."""
        keep = min(1.0, max(0.0, (original * f / (2 * math.pi) - low) / (high - low)))
        return keep * f + (1 - keep) * f / factor

    return [llama3(f) for f in found]
