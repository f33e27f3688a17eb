"""Test models: tiny random checkpoints of every supported family, and ``grow``, a real function at any width."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from . import _core
from .errors import InvalidArgument
from .files.grow import grow
from .files.hf_folder import CONFIG, GENERATION
from .files.safetensors_io import STORED, Tensor, encode, write_folder
from .text.bpe import SMALLEST, write_bpe

__all__ = ["FAMILIES", "grow", "make_tiny"]

_LLAMA31 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_GEMMA = {"head_dim": 24, "tie_word_embeddings": True, "hidden_act": None, "hidden_activation": "gelu_pytorch_tanh"}
# Fields of each family's config.json that the others' lack. Both forms of the rotary fields occur in the wild.
_FAMILIES: dict[str, dict[str, Any]] = {
    "llama1": {"model_type": "llama", "num_key_value_heads": None, "rms_norm_eps": 1e-6},
    "llama2": {"model_type": "llama", "rope_theta": 10000.0, "rope_scaling": None},
    "llama3": {"model_type": "llama", "rope_theta": 500000.0},
    "llama3.1": {"model_type": "llama", "rope_theta": 500000.0, "rope_scaling": _LLAMA31},
    "llama3.2": {
        "model_type": "llama",
        "tie_word_embeddings": True,
        "rope_parameters": {**_LLAMA31, "factor": 32.0, "rope_theta": 500000.0},
    },
    "codellama": {"model_type": "llama", "rope_theta": 1000000.0, "num_key_value_heads": 4},
    "yi": {"model_type": "llama", "rope_theta": 5000000.0, "num_key_value_heads": 1},
    "deepseek-coder": {
        "model_type": "llama",
        "rope_theta": 100000.0,
        "rope_scaling": {"type": "linear", "factor": 4.0},
    },
    "llama-dynamic": {
        "model_type": "llama",
        "max_position_embeddings": 128,
        "rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0},
    },
    "llama-bias": {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "mistral": {"model_type": "mistral", "sliding_window": 16, "rope_theta": 10000.0},
    "qwen2": {
        "model_type": "qwen2",
        "rope_theta": 1000000.0,
        "sliding_window": 32,
        "use_sliding_window": False,
        "max_window_layers": 2,
        "rms_norm_eps": 1e-6,
    },
    "qwen2-sliding": {
        "model_type": "qwen2",
        "rope_theta": 1000000.0,
        "sliding_window": 16,
        "use_sliding_window": True,
        "max_window_layers": 1,
        "rms_norm_eps": 1e-6,
    },
    "qwen3": {
        "model_type": "qwen3",
        "head_dim": 24,
        "tie_word_embeddings": True,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    },
    "ministral": {
        "model_type": "ministral",
        "head_dim": 24,
        "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "ministral3": {
        "model_type": "ministral3",
        "head_dim": 24,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 1000000.0,
            "factor": 8.0,
            "original_max_position_embeddings": 32,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.1,
        },
    },
    "smollm3": {
        "model_type": "smollm3",
        "pad_token_id": 0,
        "no_rope_layers": [1, 0],
        "tie_word_embeddings": True,
    },
    "granite": {
        "model_type": "granite",
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.3,
        "residual_multiplier": 0.7,
        "logits_scaling": 0.8,
    },
    "gemma": {**_GEMMA, "model_type": "gemma", "hidden_act": "gelu_pytorch_tanh"},
    "gemma2": {**_GEMMA, "model_type": "gemma2", "sliding_window": 16, "query_pre_attn_scalar": 20},
    "gemma3": {
        **_GEMMA,
        "model_type": "gemma3_text",
        "sliding_window": 16,
        "sliding_window_pattern": 3,
        "query_pre_attn_scalar": 20,
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
    "olmo2": {"model_type": "olmo2", "rope_theta": 500000.0},
    "olmo3": {
        "model_type": "olmo3",
        "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_theta": 500000.0,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    },
    "exaone4": {
        "model_type": "exaone4",
        "sliding_window": 16,
        "sliding_window_pattern": 2,
        "rope_theta": 1000000.0,
        "rope_scaling": {**_LLAMA31, "factor": 16.0},
    },
    "hunyuan": {
        "model_type": "hunyuan_v1_dense",
        "head_dim": 24,
        "rope_theta": 10000.0,
        "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0},
    },
    "ernie4.5": {"model_type": "ernie4_5", "head_dim": 24, "use_bias": True, "tie_word_embeddings": True},
    "phi3": {"model_type": "phi3", "sliding_window": 24, "pad_token_id": 0},
    "phi4-mini": {
        "model_type": "phi3",
        "pad_token_id": 0,
        "partial_rotary_factor": 0.75,
        "tie_word_embeddings": True,
        "original_max_position_embeddings": 64,
        "rope_scaling": {
            "type": "longrope",
            "short_factor": [1.0, 1.1, 1.3, 1.5, 1.8, 2.0],
            "long_factor": [1.0, 1.5, 3.0, 6.0, 12.0, 24.0],
        },
    },
    "seed-oss": {"model_type": "seed_oss", "head_dim": 24, "attention_bias": True, "attention_out_bias": True},
    "internlm3": {"model_type": "internlm3", "head_dim": 24, "qkv_bias": True, "bias": True},
}
FAMILIES = list(_FAMILIES)
_CORPUS = (
    "The quick brown fox jumps over the lazy dog. Question: how many apples are there in the other basket? Answer: the "
    "total is 3 + 4 = 7 apples. def main(args): return [value for value in args if value is not None]\n"
)
_CHAT = (
    "{% for m in messages %}{{ '[' + m['role'] + '] ' + m['content'] + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[assistant]' }}{% endif %}"
)


def make_tiny(
    dir: str | Path,
    family: str = "llama",
    dtype: str = "bfloat16",
    seed: int = 0,
    shards: int = 1,
    tied: bool | None = None,
    vocab: int = 320,
    layers: int = 3,
    tokenizer: bool | None = None,
    **overrides: Any,
) -> Path:
    """Writes a random checkpoint of ``family`` (``FAMILIES``; "llama" is llama2) to ``dir`` and returns the directory.

    Sizes are odd on purpose. Logits are lively, and a model with later sublayers left out still often agrees with the
    whole. ``tokenizer``: a byte-level BPE and a chat template (None: where the vocabulary has room). ``overrides`` are
    fields of config.json.
    """
    family = "llama2" if family == "llama" else family
    if family not in _FAMILIES:
        raise InvalidArgument(f"[testing] family is {family!r}, want one of {', '.join(FAMILIES)}")
    if dtype not in STORED:
        raise InvalidArgument(f"[testing] dtype is {dtype!r}, want one of {', '.join(STORED)}")
    config = {
        "hidden_size": 64,
        "intermediate_size": 88,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **_FAMILIES[family],
        "vocab_size": vocab,
        "num_hidden_layers": layers,
        "torch_dtype": dtype,
        **({} if tied is None else {"tie_word_embeddings": tied}),
        **overrides,
    }
    for name in ("layer_types", "no_rope_layers"):  # rows have a period of them
        if name in _FAMILIES[family] and name not in overrides:
            period = config[name]
            config[name] = [period[i % len(period)] for i in range(layers)]
    config["architectures"] = [_family(config).get("architecture", "UnknownForCausalLM")]
    dir = Path(dir)
    dir.mkdir(parents=True, exist_ok=True)
    (dir / CONFIG).write_text(json.dumps(config, indent=2))
    eos = {"bos_token_id": 1, "eos_token_id": 2, "do_sample": False}
    (dir / GENERATION).write_text(json.dumps(eos, indent=2))
    for _ in write_folder(dir, _tensors(config, STORED[dtype], seed), shards):
        pass
    if tokenizer if tokenizer is not None else vocab >= SMALLEST:
        write_bpe(dir, [_CORPUS], vocab, _CHAT)
    return dir


def _family(config: dict[str, Any]) -> dict[str, Any]:
    families = _core.families()
    return families.get(config["model_type"], families["llama"])


def _tensors(config: dict[str, Any], stored: str, seed: int) -> dict[str, Tensor]:
    hidden, ffn, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    head = config.get("head_dim") or hidden // heads
    family = _family(config)
    norms = family["norms"]
    out: dict[str, np.ndarray] = {}

    def noise(name: str, *shape: int) -> np.ndarray:
        # Seeded by name: a tensor is the same whatever else the model holds.
        return np.random.default_rng([seed, zlib.crc32(name.encode())]).standard_normal(shape, np.float32)

    def linear(name: str, rows: int, columns: int, gain: float, bias: str) -> None:
        out[name + ".weight"] = noise(name, rows, columns) * (gain / columns**0.5)
        when, field = family[bias]
        if when == "always" or (when != "never" and config.get(field, when == "unless denied")):
            out[name + ".bias"] = noise(name + ".bias", rows) * (gain / 4)

    def norm(name: str, size: int, gain: float = 1) -> None:
        out[name + ".weight"] = gain * (1 + noise(name, size) / 8) - family["norm_offset"]

    def layer_norm(at: str, which: str, size: int, gain: float = 1) -> None:
        if norms[which] is not None:
            norm(at + norms[which], size, gain)

    def join(name: str, parts: list[str]) -> None:
        """Tensors that the family has as one."""
        if family["fused"]:
            out[name + ".weight"] = np.concatenate([out.pop(part + ".weight") for part in parts])

    # Logits with a standard deviation of about 2.5. The residual stream must outgrow the embedding it starts from, or a
    # tied head repeats its input; the first layer sees to that, so that the others can be left out without ruin.
    unit, first = 2.5 / hidden**0.5, 12.0 if config["tie_word_embeddings"] else 5.0
    first *= hidden**0.5 if family["scaled_by_width"] else config.get("embedding_multiplier", 1.0)
    out["model.embed_tokens.weight"] = noise("embed", vocab, hidden) * unit
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        mixer, mlp = at + "self_attn.", at + "mlp."
        strength = unit * (first if i == 0 else 0.3 * first)
        layer_norm(at, "attn", hidden)
        linear(mixer + "q_proj", heads * head, hidden, 1.3, "qkv_bias")
        linear(mixer + "k_proj", kv_heads * head, hidden, 1.3, "qkv_bias")
        linear(mixer + "v_proj", kv_heads * head, hidden, 1.0, "qkv_bias")
        join(mixer + "qkv_proj", [mixer + "q_proj", mixer + "k_proj", mixer + "v_proj"])
        linear(mixer + "o_proj", hidden, heads * head, 1.5 * strength, "o_bias")
        whole = family["norm_over"] == "whole"
        layer_norm(at, "q", heads * head if whole else head)
        layer_norm(at, "k", kv_heads * head if whole else head)
        layer_norm(at, "attn_after", hidden, 1.5 * strength)
        layer_norm(at, "mlp", hidden)
        linear(mlp + "gate_proj", ffn, hidden, 1.0, "mlp_bias")
        linear(mlp + "up_proj", ffn, hidden, 1.0, "mlp_bias")
        join(mlp + "gate_up_proj", [mlp + "gate_proj", mlp + "up_proj"])
        linear(mlp + "down_proj", hidden, ffn, 2.0 * strength, "mlp_bias")
        layer_norm(at, "mlp_after", hidden, 2.0 * strength)
    norm("model.norm", hidden)
    if not config["tie_word_embeddings"]:
        out["lm_head.weight"] = noise("lm_head", vocab, hidden) * unit
    return {name: Tensor(stored, encode(x, stored)) for name, x in out.items()}
