"""The shape of the model to train, from its config.json, which the runtime's own reader has checked first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _core
from ..errors import InvalidArgument, UnsupportedModel
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
    rope_scale: float = 1.0  # of their cosines and sines


def read_shape(folder: Path, context: int) -> Shape:
    """The shape of a model to train. Refuses what the runtime refuses, layers that are unlike LLaMA's, and texts longer
    than where the model's mathematics changes with length.

    Within that length sliding windows see everything and dynamic rope does not scale, so neither is implemented here.
    """
    config = _core.read_config(str(folder))
    if not config["like_llama"]:
        raise UnsupportedModel(
            f"[train] layers of a {config['model_type']} are not trained (supported: those of llama, mistral, qwen2, "
            "qwen3); heads for it are: `python -m swiftk.train drafter`"
        )
    windows = [window for window in config["window"] if window]
    return target_shape(folder, context, min([_positions(folder), *windows]))


def target_shape(folder: Path, context: int, reach: int | None = None) -> Shape:
    """The shape of a model that heads are trained for; their own layers are LLaMA's, whatever the model's are."""
    native = _core.kernel_shape(str(folder), "float32")  # reads config.json alone: there may be no weights yet
    reach = reach or _positions(folder)
    if context > reach:
        raise InvalidArgument(f"[train] --context is {context}, want at most {reach}, the reach of the model")
    flags = {name: native[name] for name in ("qkv_bias", "o_bias", "mlp_bias", "qk_norm", "eps")}
    turns, scale = _core.frequencies(str(folder), native["HD"])
    return Shape(
        L=_core.read_config(str(folder))["num_layers"],
        D=native["D"],
        H=native["H"],
        n_kv=native["KV"],
        d=native["HD"],
        F=native["F"],
        V=native["V"],
        tied=_core.read_config(str(folder))["tied_head"],
        inv_freq=tuple(turns),
        rope_scale=scale,
        **flags,
    )


def _positions(folder: Path) -> int:
    return open_model_files(folder).config.get("max_position_embeddings") or 2048


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
