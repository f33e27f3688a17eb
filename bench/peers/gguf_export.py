"""A Hugging Face directory of the LLaMA family as a GGUF file for llama.cpp, with its vocabulary if that is as GPT-2's.

llama.cpp rotates neighbouring pairs (2i, 2i+1) where Hugging Face rotates halves (i, i + d/2), so the rows of each head
of q and k are reordered.
"""

from __future__ import annotations

import argparse
import json
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np

_TENSORS = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
_NAMES = ("f16", "bf16", "q8_0", "q4_0")
_TYPES = {name: gguf.GGMLQuantizationType[name.upper()] for name in _NAMES}
_FILE_TYPES = {name: gguf.LlamaFileType[f"MOSTLY_{name.upper()}"] for name in _NAMES}


def _tensors(folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Every tensor of the checkpoint as float32, one at a time."""
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        size = struct.unpack_from("<Q", data)[0]
        header = json.loads(data[8 : 8 + size])
        header.pop("__metadata__", None)
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            raw = np.frombuffer(data, np.uint8, end - begin, 8 + size + begin)
            yield name, _float32(raw, entry["dtype"]).reshape(entry["shape"])


def _float32(raw: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "BF16":
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return raw.view({"F16": np.float16, "F32": np.float32}[dtype]).astype(np.float32)


def _pairs(w: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head from (i, i + d/2) order to (2i, 2i+1) order."""
    rows, columns = w.shape
    return w.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _name(name: str) -> str:
    if name in _TENSORS:
        return _TENSORS[name]
    layer, rest = name.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{_TENSORS[rest]}"


def _header(config: dict, dtype: str, path: Path) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(path, "llama")
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    rope = config.get("rope_parameters") or {"rope_theta": config.get("rope_theta", 10000.0)}
    scaling = rope.get("rope_type", (config.get("rope_scaling") or {}).get("rope_type", "default"))
    if scaling != "default":
        raise ValueError(f"[gguf_export] rope_type is {scaling!r}, want 'default'")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads", heads))
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(_FILE_TYPES[dtype])
    return writer


def _add_vocabulary(writer: gguf.GGUFWriter, config: dict, file: Path) -> None:
    told = json.loads(file.read_text()) if file.is_file() else {}
    if (told.get("pre_tokenizer") or {}).get("type") != "ByteLevel":
        writer.add_tokenizer_model("no_vocab")
        return
    special = {token["id"]: token["content"] for token in told["added_tokens"]}
    words = {at: word for word, at in told["model"]["vocab"].items()} | special
    kinds, ids = gguf.TokenType, range(config["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([words.get(i, f"[{i}]") for i in ids])
    writer.add_token_types([kinds.CONTROL if i in special else kinds.NORMAL for i in ids])
    writer.add_token_merges([" ".join(pair) if isinstance(pair, list) else pair for pair in told["model"]["merges"]])
    writer.add_bos_token_id(config["bos_token_id"])
    ends = config["eos_token_id"]
    writer.add_eos_token_id(ends[0] if isinstance(ends, list) else ends)
    writer.add_add_bos_token(True)


def export(folder: Path, path: Path, dtype: str = "f16") -> None:
    """Writes folder's weights to path, every matrix as dtype; norms stay fp32."""
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] != "llama":
        raise ValueError(f"[gguf_export] model_type is {config['model_type']!r}, want 'llama'")
    part = path.with_suffix(".part")
    writer = _header(config, dtype, part)
    _add_vocabulary(writer, config, folder / "tokenizer.json")
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for name, w in _tensors(folder):
        for kind, n in heads.items():
            if f".{kind}." in name:
                w = _pairs(w, n)
        if w.ndim == 1:
            writer.add_tensor(_name(name), w)
        else:
            stored = gguf.quants.quantize(w, _TYPES[dtype])
            writer.add_tensor(_name(name), stored, raw_dtype=_TYPES[dtype])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.rename(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("path", type=Path)
    parser.add_argument("--dtype", choices=sorted(_TYPES), default="f16")
    given = parser.parse_args()
    export(given.folder, given.path, given.dtype)
