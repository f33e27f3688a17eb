"""Checkpoints to measure with: random weights in the shapes of known models, and the demo model grown to 13 B.

Each is made once and kept while there is room; who needs another then deletes those that were not used for the longest
time. run.py starts `make` in the background before all else, as what takes time is the system finding memory for files.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import record

from swiftk import demo_model
from swiftk.files.grow import grow
from swiftk.files.safetensors_io import Stream, Tensor, to_bfloat16, write_folder

_LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 8192}
_SHARD = 2 << 30
_SPARE = 2 << 30  # bytes of the folder's room that nobody may use
GROWN = "grown"


def _config(hidden: int, ffn: int, layers: int, heads: int, kv_heads: int, vocab: int, *, tied: bool = False,
            rope_factor: float = 0.0) -> dict:
    rope = {"rope_theta": 500000.0, "rope_scaling": {**_LLAMA3, "factor": rope_factor}} if rope_factor else {}
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": layers,
            "hidden_size": hidden, "intermediate_size": ffn, "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": hidden // heads, "vocab_size": vocab, "tie_word_embeddings": tied, "rms_norm_eps": 1e-5,
            "hidden_act": "silu", "rope_theta": 10000.0, "max_position_embeddings": 32768, "torch_dtype": "bfloat16",
            "bos_token_id": 1, "eos_token_id": 2, **rope}


SHAPES = {
    "7b": ("Llama-2-7B", _config(4096, 11008, 32, 32, 32, 32000)),
    "1b": ("Llama-3.2-1B", _config(2048, 8192, 16, 32, 8, 128256, tied=True, rope_factor=32.0)),
    "13b": ("Llama-2-13B", _config(5120, 13824, 40, 40, 40, 32000)),
    "8b": ("Llama-3.1-8B", _config(4096, 14336, 32, 32, 8, 128256, rope_factor=8.0)),
}
ORDER = (*SHAPES, GROWN)
_SMALL = 32e9  # bytes: less does not hold the largest


def label(name: str) -> str:
    return "lm13m grown to 13 B" if name == GROWN else SHAPES[name][0]


def config(name: str, tiny: bool) -> dict:
    """config.json of a random model; a tiny one keeps the ratios that kernels care about."""
    found = SHAPES[name][1]
    if not tiny:
        return found
    heads = found["num_attention_heads"] // found["num_key_value_heads"]
    return {**found, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 4, "head_dim": 16,
            "vocab_size": 512, "num_attention_heads": 4, "num_key_value_heads": 4 // min(heads, 4)}


def shapes(c: dict) -> dict[str, tuple[int, ...]]:
    """Every tensor of a checkpoint, in the order of the layers."""
    hidden, ffn, head = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
    out: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (c["vocab_size"], hidden)}
    for i in range(c["num_hidden_layers"]):
        layer = {"input_layernorm": (hidden,), "self_attn.q_proj": (q, hidden), "self_attn.k_proj": (kv, hidden),
                 "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, q),
                 "post_attention_layernorm": (hidden,),
                 "mlp.gate_proj": (ffn, hidden), "mlp.up_proj": (ffn, hidden), "mlp.down_proj": (hidden, ffn)}
        out.update({f"model.layers.{i}.{part}.weight": shape for part, shape in layer.items()})
    out["model.norm.weight"] = (hidden,)
    if not c["tie_word_embeddings"]:
        out["lm_head.weight"] = (c["vocab_size"], hidden)
    return out


def total_bytes(c: dict) -> int:
    return 2 * sum(int(np.prod(shape, dtype=np.int64)) for shape in shapes(c).values())


def step_bytes(c: dict) -> int:
    """Bytes of weights that one decode step must read: all but the embedding, unless it is the head too."""
    return total_bytes(c) - (0 if c["tie_word_embeddings"] else 2 * c["vocab_size"] * c["hidden_size"])


def layer_flops(c: dict) -> int:
    """Operations of one row in the matrices of all layers; attention itself and the head left out."""
    return 2 * sum(int(np.prod(s, dtype=np.int64)) for n, s in shapes(c).items() if ".layers." in n and len(s) == 2)


def _cut(noise: np.ndarray, at: int, size: int) -> Iterator[np.ndarray]:
    """`size` elements of the noise from `at` on, around and around."""
    while size > 0:
        block = noise[at : at + size]
        yield block
        size, at = size - len(block), 0


def random_model(folder: Path, c: dict) -> None:
    """bf16 noise with a standard deviation of 0.02; every matrix starts elsewhere in one block that no size divides."""
    noise = to_bfloat16(np.random.default_rng(0).standard_normal((16 << 20) - 3, np.float32) * np.float32(0.02))
    tensors: dict[str, Stream | Tensor] = {}
    for i, (name, shape) in enumerate(shapes(c).items()):
        size = int(np.prod(shape, dtype=np.int64))
        ones = Tensor("BF16", to_bfloat16(np.ones(shape, np.float32))) if len(shape) == 1 else None
        tensors[name] = ones or Stream("BF16", shape, _cut(noise, i * 7919 * 1009 % len(noise), size))
    (folder / "config.json").write_text(json.dumps(c, indent=1))
    for _ in write_folder(folder, tensors, -(-total_bytes(c) // _SHARD)):
        pass


class NoRoom(Exception):
    """The folder cannot hold the model now."""


class Store:
    """The folder of the models. One at a time is made; who wants one that is being made waits for it."""

    factor = 32  # of the demo model's width when it is grown

    def __init__(self, given: argparse.Namespace) -> None:
        self.tiny = given.tiny
        self.factor = 2 if self.tiny else Store.factor
        self.root = given.models or self._roomiest()
        self.root.mkdir(parents=True, exist_ok=True)

    def _roomiest(self) -> Path:
        """Memory if it could take the largest, else a folder on disk; the same whatever lies there by now."""
        shared, name = Path("/dev/shm"), "swiftk-trial" if self.tiny else "swiftk-models"
        room = shutil.disk_usage(shared).total if os.access(shared, os.W_OK) else 0
        if room >= _SMALL:
            return shared / name
        folder = record.ROOT / "build" / "gpu" / name
        print(f"[models] {shared} has {room / 1e9:.1f} GB, too few for models: they are made in {folder}", flush=True)
        return folder

    def bytes(self, name: str) -> int:
        """At most."""
        if name == GROWN:
            return self.factor**2 * (demo_model() / "model.safetensors").stat().st_size
        return total_bytes(config(name, self.tiny))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with open(self.root / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _evict(self, needed: int) -> None:
        """Deletes models until there is room for another, those first that were not used for the longest time."""
        there = sorted((path for path in self.root.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
        for folder in there:
            if shutil.disk_usage(self.root).free < needed:
                shutil.rmtree(folder)

    def ensure(self, name: str, ahead: bool = False) -> Path:
        """The model's folder, made if it is not there; others may have to go for it unless it is made ahead."""
        folder, needed = self.root / name, self.bytes(name) + _SPARE
        if folder.is_dir():
            folder.touch()
            return folder
        with self._alone():
            for left in self.root.glob("*.partial"):
                shutil.rmtree(left)
            if folder.is_dir():
                return folder
            if not ahead:
                self._evict(needed)
            if shutil.disk_usage(self.root).free < needed:
                raise NoRoom(f"{self.root} has no room for the {self.bytes(name) / 1e9:.1f} GB of {label(name)}")
            partial = self.root / f"{name}.partial"
            began = time.perf_counter()
            if name == GROWN:
                grow(demo_model(), partial, self.factor)
            else:
                partial.mkdir()
                random_model(partial, config(name, self.tiny))
            partial.rename(folder)  # whole or not at all
            print(f"[models] {label(name)} in {self.root}: {time.perf_counter() - began:.1f} s", flush=True)
        return folder

    def remove(self, name: str) -> None:
        shutil.rmtree(self.root / name, ignore_errors=True)


def options(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--models", type=Path, help="folder for checkpoints; default: in memory if that has room")
    return record.options(parser)


def make(store: Store, name: str) -> None:
    """Waits for room: what is there may be in use."""
    while True:
        try:
            store.ensure(name, ahead=True)
            return
        except NoRoom:
            time.sleep(1)


def main() -> None:
    parser = options(argparse.ArgumentParser(description=__doc__.splitlines()[0]))
    parser.add_argument("action", choices=("make", "remove"))
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(ORDER)}; default: all")
    given = parser.parse_args()
    store = Store(given)
    for name in given.names or (*ORDER, *(path.name for path in store.root.glob("*.partial"))):
        (make if given.action == "make" else Store.remove)(store, name)


if __name__ == "__main__":
    main()
