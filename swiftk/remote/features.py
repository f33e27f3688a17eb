"""Features: the states of the server's model that a head at a client reads. This module names the states,
finds the server's head that can send them, and packs them. Only drafts depend on them, so they may be rounded."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidArgument
from ..files.model_files import open_model_files
from ..files.safetensors_io import from_bfloat16, to_bfloat16

DTYPES = {"bfloat16": "<u2", "float32": "<f4"}


@dataclass(frozen=True, slots=True)
class Features:
    kind: str  # of the head: "eagle", "block" or "moa"
    taps: list[int]  # layers whose outputs it reads; none for "moa", which reads the mean of a token's states
    width: int  # floats per token
    states: str = ""  # for "moa": digest of the layer that makes the states, which runs at the server
    dtype: str = "bfloat16"
    known: int = 0  # number of leading tokens of the text whose features the client has

    def __post_init__(self) -> None:
        good = isinstance(self.taps, list) and all(isinstance(tap, int) and tap >= 0 for tap in self.taps)
        good = good and all(isinstance(n, int) and 0 <= n < 1 << 31 for n in (self.width, self.known))
        if not (good and isinstance(self.kind, str) and isinstance(self.states, str) and self.dtype in DTYPES):
            raise InvalidArgument(
                f"[remote] features are {asdict(self)!r:.200}, want a head's kind, the layers that it taps, floats per "
                f"token, and one of {', '.join(DTYPES)}"
            )

    @classmethod
    def parse(cls, given: Any) -> Features:
        try:
            return cls(**given)
        except TypeError:
            raise InvalidArgument(
                f"[remote] features are {given!r:.200}, want a map of {', '.join(cls.__dataclass_fields__)}"
            ) from None

    def __str__(self) -> str:
        if not self.width:
            return f"{self.kind}, which reads none"
        what = f"layers {self.taps}" if self.taps else f"states {self.states}"
        return f"{self.kind} of {what}, {self.width} floats a token"

    def among(self, heads: Sequence[Features]) -> int:
        """The index of a server's head that reads the same states. InvalidArgument: there is none."""
        same = (self.taps, self.width, self.states)
        for number, head in enumerate(heads):
            if (head.taps, head.width, head.states) == same and head.width:
                return number
        have = "; ".join(map(str, heads)) or "none, as none was loaded"
        raise InvalidArgument(
            f"[remote] the head at the client is {self}; heads at the server: {have}. Want the same layers of a "
            "model of the same width: swiftk serve MODEL --drafter FOLDER"
        )

    def packed(self, rows: np.ndarray) -> list[bytes]:
        """rows: [tokens, width]. Bytes for each token."""
        data = (to_bfloat16(rows) if self.dtype == "bfloat16" else rows).astype(DTYPES[self.dtype]).tobytes()
        return [data[at : at + self.bytes] for at in range(0, len(data), self.bytes)]

    def unpacked(self, data: bytes) -> np.ndarray:
        """[tokens, width]"""
        if not self.width or len(data) % self.bytes:
            raise InvalidArgument(f"[remote] features have {len(data)} bytes, want {self.bytes} a token")
        rows = np.frombuffer(data, DTYPES[self.dtype]).reshape(-1, self.width)
        return from_bfloat16(rows) if self.dtype == "bfloat16" else rows

    @property
    def bytes(self) -> int:
        """Bytes per token."""
        return self.width * np.dtype(DTYPES[self.dtype]).itemsize


def read_by(kind: str, taps: Sequence[int], width: int, folder: Path, **more: Any) -> Features:
    """Features that the head in a folder reads; width 0: none."""
    return Features(kind, list(taps), width, _states(folder) if kind == "moa" else "", **more)


def _states(folder: Path) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(open_model_files(folder).tensors().items()):
        if name.startswith("layer_self_attention."):
            digest.update(f"{name} {tensor.dtype} {tensor.bits.shape}".encode() + tensor.bits.tobytes())
    return digest.hexdigest()[:16]
