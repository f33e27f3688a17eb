"""Writes GGUF files: of a Hugging Face folder, as llama.cpp's converter has them, or of any headers, true or not."""

import json
import struct
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from swiftk import _core
from swiftk.files.safetensors_io import decode, read_folder

TYPES = {
    "F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12,
    "Q5_K": 13, "Q6_K": 14, "IQ4_NL": 20, "IQ4_XS": 23, "BF16": 30, "MXFP4": 39,
}  # fmt: skip
# Elements and bytes of a block, and where in it a float16 scale is, of all encodings in blocks.
BLOCKS = {
    "Q8_0": (32, 34, [0]),
    "Q4_0": (32, 18, [0]),
    "Q4_1": (32, 20, [0, 2]),
    "Q5_0": (32, 22, [0]),
    "Q5_1": (32, 24, [0, 2]),
    "Q2_K": (256, 84, [80, 82]),
    "Q3_K": (256, 110, [108]),
    "Q4_K": (256, 144, [0, 2]),
    "Q5_K": (256, 176, [0, 2]),
    "Q6_K": (256, 210, [208]),
    "IQ4_NL": (32, 18, [0]),
    "IQ4_XS": (256, 136, [0]),
    "MXFP4": (32, 17, []),
}
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_NORMS = {
    "attn": "attn_norm",
    "attn_after": "post_attention_norm",
    "mlp": "ffn_norm",
    "mlp_after": "post_ffw_norm",
    "q": "attn_q_norm",
    "k": "attn_k_norm",
}
_ARCHITECTURES = {
    "mistral": "llama",
    "internlm3": "llama",
    "gemma3_text": "gemma3",
    "ministral3": "mistral3",
    "olmo3": "olmo2",
    "hunyuan_v1_dense": "hunyuan-dense",
}
_REORDERED = {"llama", "mistral3", "smollm3", "granite"}  # rotary pairs of q and k go side by side
_OFFSET = {"gemma", "gemma2", "gemma3"}  # 1 is added to norms


@dataclass(frozen=True)
class Typed:
    """A value of metadata as a file has it: the number of its type, and what is said of it."""

    type: int
    value: object

    def bytes(self):
        if isinstance(self.value, bytes):  # raw
            return self.value
        if self.type == 8:
            return _text(self.value)
        return struct.pack("<" + _SCALARS[self.type], self.value)


@dataclass(frozen=True)
class Entry:
    """A tensor; what is not None is written in place of the truth."""

    shape: tuple  # slowest first
    type: int
    data: bytes
    offset: int | None = None
    dims: tuple | None = None  # as the file has them: fastest first
    spelt: bytes | None = None


@dataclass
class File:
    """The parts of a GGUF file."""

    metadata: dict = field(default_factory=dict)  # name: a value of Python's, or Typed
    tensors: dict = field(default_factory=dict)  # name: Entry
    magic: bytes = b"GGUF"
    version: int = 3
    pairs: int | None = None
    count: int | None = None

    def bytes(self):
        out = self.magic + struct.pack("<I", self.version)
        out += struct.pack("<Q", len(self.tensors) if self.count is None else self.count)
        out += struct.pack("<Q", len(self.metadata) if self.pairs is None else self.pairs)
        for key, value in self.metadata.items():
            typed = _typed(value)
            out += _text(key) + struct.pack("<I", typed.type) + typed.bytes()
        alignment = self.metadata.get("general.alignment", 32)
        alignment = alignment if isinstance(alignment, int) and 0 < alignment < 2**20 else 32
        at = 0
        for name, t in self.tensors.items():
            dims = t.shape[::-1] if t.dims is None else t.dims
            out += _text(name) if t.spelt is None else t.spelt
            out += struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", n % 2**64) for n in dims)
            out += struct.pack("<IQ", t.type, at if t.offset is None else t.offset)
            at += _padded(len(t.data), alignment)
        out += bytes(_padded(len(out), alignment) - len(out))
        for t in self.tensors.values():
            out += t.data + bytes(_padded(len(t.data), alignment) - len(t.data))
        return out

    def write(self, path):
        Path(path).write_bytes(self.bytes())
        return Path(path)


def _padded(n, alignment):
    return -(-n // alignment) * alignment


def _text(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def _typed(value):
    if isinstance(value, Typed):
        return value
    if isinstance(value, bool):
        return Typed(7, value)
    if isinstance(value, int):
        return Typed(4, value)
    if isinstance(value, float):
        return Typed(6, value)
    if isinstance(value, (str, bytes)):
        return Typed(8, value)
    items = [_typed(one) for one in value]
    head = struct.pack("<IQ", items[0].type if items else 4, len(items))
    return Typed(9, head + b"".join(item.bytes() for item in items))


def of_array(x, encoding="F32"):
    """A tensor in a plain encoding, or quantised by the gguf package."""
    if encoding == "F32":
        data = np.ascontiguousarray(x, np.float32).tobytes()
    elif encoding == "F16":
        data = np.asarray(x, np.float32).astype(np.float16).tobytes()
    elif encoding == "BF16":
        data = (np.ascontiguousarray(x, np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    else:
        from gguf import GGMLQuantizationType, quants

        data = quants.quantize(np.ascontiguousarray(x, np.float32), GGMLQuantizationType[encoding]).tobytes()
    return Entry(tuple(x.shape), TYPES[encoding], data)


def random_blocks(encoding, rows, k, rng, scale=0.02):
    """Bytes of a random matrix [rows, k]: every code occurs, and scales are finite."""
    elements, size, scales = BLOCKS[encoding]
    blocks = rng.integers(0, 256, (rows * k // elements, size), np.uint8)
    for at in scales:
        values = (scale * rng.uniform(0.2, 1, len(blocks)) * rng.choice([-1, 1], len(blocks))).astype(np.float16)
        blocks[:, at : at + 2] = values[:, None].view(np.uint8)
    if encoding == "MXFP4":
        blocks[:, 0] = rng.integers(118, 124, len(blocks))
    return blocks.tobytes()


def dequantised(encoding, data, k):
    """The matrix [-1, k] that bytes mean, by the gguf package."""
    from gguf import GGMLQuantizationType, quants

    elements, size, _ = BLOCKS[encoding]
    blocks = np.frombuffer(data, np.uint8).reshape(-1, k // elements * size)
    return quants.dequantize(blocks, GGMLQuantizationType[encoding])


def paired(x, heads):
    """Rows of q or k in the converter's order: rotary pairs side by side."""
    d = x.shape[0] // heads
    return x.reshape(heads, 2, d // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def rope_of(config):
    return {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}


def keys_of(config, architecture):
    """Metadata of a model, without a tokenizer."""
    heads, rope = config["num_attention_heads"], rope_of(config)
    d = config.get("head_dim", config["hidden_size"] // heads)
    theta = rope.get("rope_theta", config.get("rope_theta", 10000.0))
    kind = rope.get("rope_type", rope.get("type"))
    original = rope.get("original_max_position_embeddings", config.get("original_max_position_embeddings"))
    keys = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": heads,
        "attention.head_count_kv": config.get("num_key_value_heads") or heads,
        "attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        "vocab_size": config["vocab_size"],
    }
    if architecture not in ("gemma", "gemma2"):
        keys["rope.freq_base"] = float(theta)
    if "head_dim" in config:
        keys |= {"attention.key_length": config["head_dim"], "attention.value_length": config["head_dim"]}
    if kind in ("linear", "yarn"):
        keys |= {"rope.scaling.type": kind, "rope.scaling.factor": rope["factor"]}
        if original:
            keys["rope.scaling.original_context_length"] = original
    if "alpha" in rope:
        keys["rope.freq_base"] = theta * rope["alpha"] ** (d / (d - 2))
        keys |= {"rope.scaling.type": "none", "rope.scaling.factor": 1.0}
        keys["rope.scaling.original_context_length"] = 262144
    if "llama_4_scaling_beta" in rope:
        keys["attention.temperature_scale"] = rope["llama_4_scaling_beta"]
        keys["rope.scaling.yarn_log_multiplier"] = rope["mscale_all_dim"]
    if kind == "longrope":
        stretch = config["max_position_embeddings"] / original
        keys["rope.scaling.attn_factor"] = float(np.sqrt(1 + np.log(stretch) / np.log(original)))
        keys["rope.scaling.original_context_length"] = original
    if architecture == "phi3":
        keys["rope.dimension_count"] = int(config.get("partial_rotary_factor", 1) * d)
        keys["attention.sliding_window"] = config.get("sliding_window") or 0
    if config.get("sliding_window") and architecture in ("gemma2", "gemma3", "olmo2", "exaone4"):
        keys["attention.sliding_window"] = config["sliding_window"]
    if architecture == "olmo2" and "layer_types" in config:
        keys["attention.sliding_window_pattern"] = [kind == "sliding_attention" for kind in config["layer_types"]]
    for name, key in (
        ("embedding_multiplier", "embedding_scale"),
        ("residual_multiplier", "residual_scale"),
        ("attention_multiplier", "attention.scale"),
        ("logits_scaling", "logit_scale"),
        ("attn_logit_softcapping", "attn_logit_softcapping"),
        ("final_logit_softcapping", "final_logit_softcapping"),
        ("rope_local_base_freq", "rope.freq_base_swa"),
    ):
        if config.get(name) is not None:
            keys[key] = float(config[name])
    return {"general.architecture": architecture} | {f"{architecture}.{key}": value for key, value in keys.items()}


def divisors(config):
    """rope_freqs.weight of Llama 3.1 and later, by the formula of transformers."""
    rope = rope_of(config)
    d = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    theta, factor = rope.get("rope_theta", config.get("rope_theta")), rope["factor"]
    length = 2 * np.pi * theta ** (np.arange(0, d, 2) / d)
    turns = rope["original_max_position_embeddings"] / length
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)


def of_folder(folder, encodings=None):
    """A File of a Hugging Face folder. encodings: of matrices by the converter's name ("attn_q"), or of all under "";
    others are as the folder has them."""
    config = json.loads((Path(folder) / "config.json").read_text())
    kind = config["model_type"]
    architecture = _ARCHITECTURES.get(kind, kind)
    norms = {its: _NORMS[which] for which, its in _core.families()[kind]["norms"].items() if its}
    if architecture == "seed_oss":
        norms["post_attention_layernorm"] = "post_attention_norm"
    heads = config["num_attention_heads"]
    count = {"attn_q": heads, "attn_k": config.get("num_key_value_heads") or heads}
    file, tensors = File(keys_of(config, architecture)), {}
    for name, tensor in read_folder(folder).items():
        stem, end = name.rsplit(".", 1)
        parts = stem.split(".")
        its = (_NAMES | norms)[".".join(parts[3:])] if parts[1:2] == ["layers"] else _NAMES[stem]
        x = decode(tensor)
        if architecture in _REORDERED and its in count:
            x = paired(x, count[its])
        if architecture in _OFFSET and its.endswith("norm"):
            x = x + np.float32(1)
        full = f"blk.{parts[2]}.{its}.{end}" if parts[1:2] == ["layers"] else f"{its}.{end}"
        chosen = (encodings or {}).get(its, (encodings or {}).get("", tensor.dtype))
        tensors[full] = of_array(x, "F32" if x.ndim == 1 else chosen)
    rope = rope_of(config)
    if rope.get("rope_type") == "llama3":
        tensors["rope_freqs.weight"] = of_array(divisors(config))
    for length in ("long", "short"):
        if f"{length}_factor" in rope:
            tensors[f"rope_factors_{length}.weight"] = of_array(np.array(rope[f"{length}_factor"], np.float32))
    file.tensors = tensors
    return file


def split(file, parts):
    """The same model in several files."""
    names = list(file.tensors)
    out = []
    for i in range(parts):
        its = names[i * len(names) // parts : (i + 1) * len(names) // parts]
        numbers = {
            "split.no": Typed(2, i),
            "split.count": Typed(2, parts),
            "split.tensors.count": Typed(5, len(names)),
        }
        metadata = {**(file.metadata if i == 0 else {}), **numbers}
        out.append(replace(file, metadata=metadata, tensors={name: file.tensors[name] for name in its}))
    return out
