"""The shape of the model to train, from its config.json, which the runtime's own reader has checked first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import _core
from ..errors import InvalidArgument
from ..files.model_files import open_model_files
from .settings import Settings


@dataclass(frozen=True, slots=True)
class Rope:
    """A rotary table."""

    inv_freq: tuple[float, ...]  # of the pairs that turn
    scale: float = 1.0  # of cosines and sines


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer of a family computes otherwise than another."""

    activation: str = "silu"  # or "gelu_tanh"
    rope: int | None = 0  # which of the tables; None: no positions
    attention_scale: float | None = None  # None: 1 / sqrt(d)
    soft_cap: float = 0.0  # of scores; 0: none
    residual_scale: float = 1.0


USUAL = LayerShape()  # LLaMA's


@dataclass(frozen=True, slots=True)
class Norms:
    """A layer's norms by their names in checkpoints, over what a sublayer reads and what it adds, and of q and k; None:
    it has none."""

    attn: str | None = "input_layernorm"
    attn_after: str | None = None
    mlp: str | None = "post_attention_layernorm"
    mlp_after: str | None = None
    q: str = "self_attn.q_norm"
    k: str = "self_attn.k_norm"


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
    ropes: tuple[Rope, ...]
    layers: tuple[LayerShape, ...] = ()  # of a model to train [L]
    norms: Norms = Norms()
    norm_offset: float = 0.0  # added to the weights of norms
    norm_over: str = "heads"  # those of q and k; or "rotated heads", or "whole"
    paired: bool = False  # rotary pairs lie side by side
    fused: bool = False  # q, k and v are one tensor; gate and up are
    embedding_scale: float = 1.0
    logit_scale: float = 1.0
    logit_soft_cap: float = 0.0  # 0: none


def read_shape(folder: Path, context: int) -> Shape:
    """The shape of a model to train. Refuses what the runtime refuses, and texts longer than where the model's
    mathematics changes with length.

    Within that length sliding windows see everything and rotary tables do not scale, so neither is implemented here.
    """
    config = _core.read_config(str(folder))
    family = _core.families()[config["model_type"]]
    alike = [rope["alike"] for rope in config["ropes"]]
    shape = target_shape(folder, context, min([_positions(folder), *filter(None, [*config["window"], *alike])]))
    names = {which: name for which, name in family["norms"].items() if name or which not in "qk"}
    same = ("norm_offset", "norm_over", "paired", "fused", "embedding_scale", "logit_scale", "logit_soft_cap")
    layers = [{**its, "rope": None if its["rope"] < 0 else its["rope"]} for its in config["layers"]]
    return replace(
        shape,
        ropes=tuple(Rope(tuple(rope["frequencies"]), rope["scale"]) for rope in config["ropes"]),
        layers=tuple(LayerShape(**its) for its in layers),
        norms=Norms(**names),
        **{name: config[name] for name in same},
    )


def target_shape(folder: Path, context: int, reach: int | None = None) -> Shape:
    """The shape of a model that heads are trained for; their own layers are LLaMA's, whatever the model's are."""
    native = _core.kernel_shape(str(folder), "float32")  # reads config.json alone: there may be no weights yet
    config = _core.read_config(str(folder))
    reach = reach or _positions(folder)
    if context > reach:
        raise InvalidArgument(f"[train] --context is {context}, want at most {reach}, the reach of the model")
    turns, scale = _core.frequencies(str(folder), native["HD"])
    return Shape(
        L=config["num_layers"],
        D=native["D"],
        H=native["H"],
        n_kv=native["KV"],
        d=native["HD"],
        F=native["F"],
        V=native["V"],
        tied=config["tied_head"],
        ropes=(Rope(tuple(turns), scale),),
        **{name: native[name] for name in ("qkv_bias", "o_bias", "mlp_bias", "qk_norm", "eps")},
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
