"""A GGUF file of the LLaMA family as a Hugging Face folder in bfloat16, for studies and peers that need one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from swiftk.files.folders import cache_folder
from swiftk.files.gguf import GgufFile
from swiftk.files.safetensors_io import Tensor, encode, write_file

from .weights import DECODED, encoding

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def folder_of(model: Path) -> Path:
    """The folder of a model; where it is a GGUF file, one that is made once in the cache. SystemExit: a file of another
    family, or no package gguf."""
    if model.is_dir():
        return model
    made = cache_folder() / "decoded" / f"{model.stem}-{int(model.stat().st_mtime)}"
    if not (made / "config.json").is_file():
        _decode(model, made)
    return made


def _decode(model: Path, to: Path) -> None:
    try:
        import gguf
    except ImportError as error:
        raise SystemExit(f"{model} has to be decoded into a folder, which needs the package gguf ({error})") from None
    files = GgufFile(model)
    if (family := files.config["model_type"]) != "llama":
        raise SystemExit(f"{model} is of family {family!r}; only LLaMA's files are decoded into folders")
    heads = {"q_proj": files.config["num_attention_heads"], "k_proj": files.config["num_key_value_heads"]}
    tensors: dict[str, Tensor] = {}
    for one in gguf.GGUFReader(model).tensors:
        if one.name == "rope_freqs.weight":
            raise SystemExit(f"{model} has rope_freqs.weight, which no folder has; want a file without it")
        name, values = _name(one.name), gguf.quants.dequantize(one.data, one.tensor_type)
        values = values.reshape([int(n) for n in reversed(one.shape)])
        for kind, n in heads.items():
            values = _halves(values, n) if f".{kind}." in name else values
        tensors[name] = Tensor("BF16", encode(np.ascontiguousarray(values, np.float32), "BF16"))
    to.mkdir(parents=True, exist_ok=True)
    for _ in write_file(to / "model.safetensors", tensors):
        pass
    for file, data in settings(files).items():
        (to / file).write_bytes(data)


def settings(files: GgufFile) -> dict[str, bytes]:
    """What the folder has beside its weights; config.json is the last, and says that all is there."""
    config = {**files.config, "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16"}
    config |= {f"{name}_token_id": ids for name in ("bos", "eos") if (ids := files.token_ids(f"{name}_token"))}
    config["bos_token_id"] = config["bos_token_id"][0] if config.get("bos_token_id") else None
    told: dict[str, Any] = {**files.special_tokens, "chat_template": files.chat_template}
    others = {name: data for name, data in files.settings().items() if name != "config.json"}
    others["tokenizer_config.json"] = json.dumps(told, indent=1).encode()
    return {**others, "config.json": json.dumps({**config, DECODED: encoding(files)}, indent=1).encode()}


def _name(name: str) -> str:
    *layer, kind, suffix = name.split(".")
    before = f"model.layers.{layer[1]}." if layer else ""
    return f"{before}{_NAMES[kind]}.{suffix}"


def _halves(w: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head from (2i, 2i + 1) order to (i, i + d/2) order."""
    rows, columns = w.shape
    return w.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
