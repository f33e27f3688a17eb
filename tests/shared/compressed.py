"""Writes compressed Hugging Face checkpoints, and what their weights mean, by the words of their formats."""

import json
import shutil

import numpy as np

from swiftk.files.safetensors_io import read_folder
from swiftk.testing import make_tiny

LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
f32 = np.float32


def write(folder, tensors):
    """tensors: arrays by name, or (dtype of safetensors, array of its bits)."""
    header, data, names = {}, b"", {"f": "F", "i": "I", "u": "U"}
    for name, t in tensors.items():
        dtype, bits = t if isinstance(t, tuple) else (names[t.dtype.kind] + str(8 * t.dtype.itemsize), t)
        end = len(data) + bits.nbytes
        header[name] = {"dtype": dtype, "shape": list(bits.shape), "data_offsets": [len(data), end]}
        data += np.ascontiguousarray(bits).tobytes()
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)


class Compressed:
    """A tiny model whose matrices are made by make(rows, k, rng) -> (parts by name, the matrix that they mean)."""

    def __init__(self, tmp_path, config, make, **sizes):
        shape = {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2}
        sizes = {"layers": 2} | shape | sizes
        self.plain = make_tiny(tmp_path / "plain", "llama3", dtype="float32", tokenizer=False, **sizes)
        self.folder = tmp_path / "compressed"
        shutil.copytree(self.plain, self.folder)
        its = json.loads((self.folder / "config.json").read_text())
        (self.folder / "config.json").write_text(json.dumps({**its, "quantization_config": config}))
        rng, whole = np.random.default_rng(7), {n: np.array(t.bits) for n, t in read_folder(self.plain).items()}
        self.tensors = {}
        for name, x in list(whole.items()):
            if name.split(".")[-2] not in LINEAR:
                self.tensors[name] = x
                continue
            parts, whole[name] = make(*x.shape, rng)
            self.tensors |= {f"{name.removesuffix('.weight')}.{part}": bits for part, bits in parts.items()}
        write(self.plain, whole)
        self.write()

    def write(self):
        write(self.folder, self.tensors)
        return self.folder


def words(codes, bits, axis):
    """Codes as int32 words along an axis, the first in the lowest bits."""
    codes = np.moveaxis(codes.astype(np.uint32), axis, -1)
    codes = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, -codes.shape[-1] % (32 // bits))])
    codes = codes.reshape(*codes.shape[:-1], -1, 32 // bits)
    packed = (codes << (bits * np.arange(32 // bits, dtype=np.uint32))).sum(-1, dtype=np.uint32)
    return np.moveaxis(packed, -1, axis).view(np.int32)


def scales(rng, *shape, dtype=np.float16):
    return rng.uniform(0.002, 0.01, shape).astype(dtype)


def gptq(bits=4, group=32, version=1, symmetric=False, order=False):
    def make(rows, k, rng):
        size = k if group < 0 else group
        codes = rng.integers(0, 1 << bits, (k, rows))
        zeros = rng.integers(0, 1 << bits, (k // size, rows))
        zeros = np.full_like(zeros, 1 << (bits - 1)) if symmetric else zeros
        s, g = scales(rng, k // size, rows) / np.float16(1 << max(0, bits - 4)), np.arange(k) // size
        if order:
            g = rng.permutation(g)
        stored = words(zeros, bits, 1).view(np.uint32)
        if version == 1:  # less one each; of zero, one is borrowed from the next
            stored = stored - np.uint32(sum(1 << at for at in range(0, 32, bits)))
        parts = {"qweight": words(codes, bits, 0), "qzeros": stored.view(np.int32), "scales": s}
        parts["g_idx"] = g.astype(np.int32)
        return parts, np.ascontiguousarray((s[g].astype(f32) * (codes - zeros[g]).astype(f32)).T)

    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": order, "sym": symmetric}
    return config | ({"checkpoint_format": "gptq_v2"} if version == 2 else {}), make


NF4 = [
    *(-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.09105004, 0.0),
    *(0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0),
]


def four_bits(kind="nf4", size=64, nested=True, **changes):
    """bitsandbytes' words: blocks of the matrix as it lies, whose scales may be codes of blocks of 256 of them."""

    def make(rows, k, rng):
        table = np.array(NF4 if kind == "nf4" else rng.uniform(-1, 1, 16), f32)
        codes, blocks = rng.integers(0, 16, rows * k), -(-rows * k // size)
        pairs = np.append(codes, np.zeros(len(codes) % 2, int)).reshape(-1, 2)
        parts = {"weight": (pairs[:, 0] << 4 | pairs[:, 1]).astype(np.uint8)[:, None], "weight.quant_map": table}
        state = {"quant_type": kind, "blocksize": size, "dtype": "bfloat16", "shape": [rows, k]}
        if nested:
            its = rng.integers(0, 256, blocks).astype(np.uint8)
            outer, inner = rng.uniform(0.01, 0.02, -(-blocks // 256)).astype(f32), np.linspace(-1, 1, 256, dtype=f32)
            state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.03125}
            parts |= {"weight.nested_absmax": outer, "weight.nested_quant_map": inner}
            scale = inner[its] * outer[np.arange(blocks) // 256] + f32(0.03125)
        else:
            its = scale = rng.uniform(0.01, 0.05, blocks).astype(f32)
        state = json.dumps({**state, **changes}).encode()
        parts |= {"weight.absmax": its, f"weight.quant_state.bitsandbytes__{kind}": np.frombuffer(state, np.uint8)}
        each = scale[np.arange(rows * k) // size]
        return parts, (table[codes] * each).reshape(rows, k).astype(f32)

    return {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": kind}, make
