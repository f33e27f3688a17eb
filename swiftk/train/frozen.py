"""The model that a drafter is trained for: its states, as the engine computes them, and matrices that both share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from .. import _core
from ..files.model_files import open_model_files
from ..files.safetensors_io import STORED, decode
from .running import autocast
from .shape import Shape, read_shape


class Frozen:
    """Nothing of it is trained."""

    def __init__(self, folder: Path, device: torch.device, threads: int | None = None) -> None:
        """threads: of the engine that reads its states; None: one for each core."""
        self.device = device
        files = open_model_files(folder)
        self.config = files.config
        self._folder = str(folder)
        self.native = _core.Model(self._folder, threads=threads or 0)
        if self.native.dtype not in STORED:  # in 16 bits, passes of whole texts are 1.5 times as fast
            self.native = _core.Model(self._folder, dtype="bfloat16", threads=threads or 0)
        self.settings = _core.read_config(self._folder)
        self._stored, name = files.tensors(), "model.embed_tokens.weight"
        tied = self.settings["tied_head"]
        self.embedding: torch.Tensor  # [V, D]
        self.head: torch.Tensor  # [V, D]
        self.embedding, self.head = (self.tensor(key) for key in (name, name if tied else "lm_head.weight"))
        self.norm = self.tensor("model.norm.weight") + self.settings["norm_offset"]  # [D]
        self.eps: float = _core.kernel_shape(self._folder, "float32")["eps"]
        self.layers: int = self.settings["num_layers"]

    def tensor(self, name: str) -> torch.Tensor:
        """Of the checkpoint, as float32."""
        return torch.from_numpy(np.array(decode(self._stored[name]))).to(self.device)

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """[..., V] of states [..., D] after the last norm."""
        said, cap = F.linear(states, self.head) * self.settings["logit_scale"], self.settings["logit_soft_cap"]
        return torch.tanh(said / cap) * cap if cap else said

    def said(self, states: torch.Tensor, precision: str | None) -> torch.Tensor:
        """The same as float32, by matrix products of a precision."""
        with autocast(self.device, precision):
            return self.logits(states).float()

    def best(self, states: torch.Tensor) -> torch.Tensor:
        """[B, T] its tokens of the highest logits, of states [B, T, D] after the last norm."""
        return torch.stack([self.logits(text).argmax(-1) for text in states])

    def normed(self, outputs: torch.Tensor) -> torch.Tensor:
        """After the last norm."""
        return F.rms_norm(outputs, self.norm.shape, self.norm, self.eps)

    def shape(self, context: int) -> Shape:
        """That of its own layers."""
        return read_shape(Path(self._folder), context)

    def frequencies(self, size: int) -> list[float]:
        """[size / 2] rotary frequencies of a head's layers whose own heads have so many values."""
        return list(_core.frequencies(self._folder, size)[0])

    def taps(self, layers: list[int], context: int) -> Taps:
        return Taps(self, layers, context)

    def layers_config(self, model_type: str, s: Shape) -> dict[str, Any]:
        """Fields of config.json for layers of this shape, at the model's positions."""
        rope = self.config.get("rope_parameters") or {}
        scaling = rope if rope.get("rope_type", "default") != "default" else None
        scaling = (self.config.get("rope_scaling") or scaling) if self.settings["like_llama"] else None
        return {
            "model_type": model_type,
            "hidden_size": s.D,
            "intermediate_size": s.F,
            "num_hidden_layers": s.L,
            "num_attention_heads": s.H,
            "num_key_value_heads": s.n_kv,
            "head_dim": s.d,
            "vocab_size": s.V,
            "max_position_embeddings": self.config.get("max_position_embeddings", 2048),
            "rms_norm_eps": s.eps,
            "rope_theta": self.settings["rope_theta"],
            "rope_scaling": scaling,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
        }


class Taps:
    """Outputs of some layers over whole texts, and what the model's vocabulary head reads."""

    def __init__(self, model: Frozen, layers: list[int], context: int) -> None:
        last = model.layers - 1
        self._model, self._also_last = model, last not in layers
        self._native = _core.Taps(model.native, [*layers, *([last] if self._also_last else [])], context)

    def read(self, batch: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """(features [B, T, layers * D], states [B, T, D] after the last norm) of tokens [B, T]."""
        (outputs,) = self._stack((self._outputs(text),) for text in batch)
        return self._parts(outputs)

    def read_kv(self, batch: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(K and V of all layers [B, T, L, 2 n_kv d], and the same as read())."""
        outputs, kv = self._stack((self._outputs(text), self._native.kv()) for text in batch)
        return kv.flatten(3), *self._parts(outputs)

    def _outputs(self, text: np.ndarray) -> np.ndarray:
        return self._native.read(text.astype(np.int32).tolist(), logits=False)[0]

    def _parts(self, outputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        last = outputs[..., -len(self._model.norm) :]
        features = outputs[..., : -len(self._model.norm)] if self._also_last else outputs
        return features, self._model.normed(last)

    def _stack(self, read: Iterable[tuple[np.ndarray, ...]]) -> Iterator[torch.Tensor]:
        return (torch.from_numpy(np.stack(part)).to(self._model.device) for part in zip(*read, strict=True))
