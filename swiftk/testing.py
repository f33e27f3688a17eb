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
    return _core.families().get(config["model_type"], {})


def _tensors(config: dict[str, Any], stored: str, seed: int) -> dict[str, Tensor]:
    hidden, ffn, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    head = config.get("head_dim") or hidden // heads
    family = _family(config)

    def has_bias(matrix: str, asked: str) -> bool:
        when = family.get(matrix, "never")
        return when == "always" or (when == "if asked" and bool(config.get(asked)))

    qkv_bias, o_bias = has_bias("qkv_bias", "attention_bias"), has_bias("o_bias", "attention_bias")
    mlp_bias = has_bias("mlp_bias", "mlp_bias")
    out: dict[str, Tensor] = {}

    def noise(name: str, *shape: int) -> np.ndarray:
        # Seeded by name: a tensor is the same whatever else the model holds.
        return np.random.default_rng([seed, zlib.crc32(name.encode())]).standard_normal(shape, np.float32)

    def put(name: str, x: np.ndarray) -> None:
        out[name] = Tensor(stored, encode(x, stored))

    def linear(name: str, rows: int, columns: int, gain: float, bias: bool = False) -> None:
        put(name + ".weight", noise(name, rows, columns) * (gain / columns**0.5))
        if bias:
            put(name + ".bias", noise(name + ".bias", rows) * (gain / 4))

    def norm(name: str, size: int) -> None:
        put(name + ".weight", 1 + noise(name, size) / 8)

    # Logits with a standard deviation of about 2.5. The residual stream must outgrow the embedding it starts from, or a
    # tied head repeats its input; the first layer sees to that, so that the others can be left out without ruin.
    unit, first = 2.5 / hidden**0.5, 12.0 if config["tie_word_embeddings"] else 5.0
    put("model.embed_tokens.weight", noise("embed", vocab, hidden) * unit)
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        strength = unit * (first if i == 0 else 0.3 * first)
        norm(at + "input_layernorm", hidden)
        linear(at + "self_attn.q_proj", heads * head, hidden, 1.3, qkv_bias)
        linear(at + "self_attn.k_proj", kv_heads * head, hidden, 1.3, qkv_bias)
        linear(at + "self_attn.v_proj", kv_heads * head, hidden, 1.0, qkv_bias)
        linear(at + "self_attn.o_proj", hidden, heads * head, 1.5 * strength, o_bias)
        if family.get("qk_norm"):
            norm(at + "self_attn.q_norm", head)
            norm(at + "self_attn.k_norm", head)
        norm(at + "post_attention_layernorm", hidden)
        linear(at + "mlp.gate_proj", ffn, hidden, 1.0, mlp_bias)
        linear(at + "mlp.up_proj", ffn, hidden, 1.0, mlp_bias)
        linear(at + "mlp.down_proj", hidden, ffn, 2.0 * strength, mlp_bias)
    norm("model.norm", hidden)
    if not config["tie_word_embeddings"]:
        put("lm_head.weight", noise("lm_head", vocab, hidden) * unit)
    return out
