"""Weights as safetensors: a checkpoint into the model and out of it, and the state that a run resumes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch

from ..errors import CheckpointError
from ..files.model_files import open_model_files
from ..files.safetensors_io import STORED, WEIGHTS, Stream, Tensor, decode, encode, read_file, write_file
from .files import whole
from .model import Decoder

_MOMENTS = ("exp_avg", "exp_avg_sq")  # AdamW's names, and the state file's


def load(model: Decoder, folder: Path) -> None:
    """The weights of a checkpoint, whatever their dtype, as float32."""
    stored = open_model_files(folder).tensors()
    wanted = _fill(model.state_dict(), stored, folder)
    for name in stored:  # what else a layer holds would be lost without a word; rotary tables are computed
        layer = name.removeprefix("model.layers.").split(".")[0]
        own = name in wanted or name.endswith("rotary_emb.inv_freq")
        if not own and layer.isdigit() and int(layer) < model.shape.L:
            raise CheckpointError(f"[train] {folder} has a tensor {name}, want none that its config.json does not name")


def export(model: torch.nn.Module, folder: Path, dtype: str) -> None:
    """Writes model.safetensors, a tensor at a time. What is not of floats stays as it is."""
    kept = {torch.int64: "I64", torch.bool: "BOOL"}
    _write(
        folder / WEIGHTS, {name: _stream(t, kept.get(t.dtype, STORED[dtype])) for name, t in model.state_dict().items()}
    )


def save_state(path: Path, step: int, model: Decoder, optimizer: torch.optim.Optimizer) -> None:
    """All that a run is besides its settings: the steps done, weights, and the optimizer's moments."""
    tensors = {"step": _stream(torch.tensor([float(step)]), "F32")}  # exact up to 2^24, the most steps
    for name, parameter in model.named_parameters():
        tensors[f"weight.{name}"] = _stream(parameter, "F32")
        for moment in _MOMENTS:
            tensors[f"{moment}.{name}"] = _stream(optimizer.state[parameter][moment], "F32")
    _write(path, tensors)


def load_state(path: Path, model: Decoder, optimizer: torch.optim.Optimizer) -> int:
    """Fills both as save_state() found them and returns the steps done."""
    stored = read_file(path)
    step = _fill({"step": torch.zeros(1)}, stored, path)["step"]
    _fill({f"weight.{name}": p for name, p in model.named_parameters()}, stored, path)
    names = {id(p): name for name, p in model.named_parameters()}
    order = [p for group in optimizer.param_groups for p in group["params"]]
    state = {}
    for i, parameter in enumerate(order):
        moments = {moment: torch.zeros_like(parameter) for moment in _MOMENTS}
        _fill({f"{moment}.{names[id(parameter)]}": t for moment, t in moments.items()}, stored, path)
        state[i] = {"step": step[0].clone(), **moments}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    return int(step)


@torch.no_grad()
def _fill(wanted: dict[str, torch.Tensor], stored: Mapping[str, Tensor], where: Path) -> dict[str, torch.Tensor]:
    for name, t in wanted.items():
        if name not in stored:
            raise CheckpointError(f"[train] {where} has no tensor {name}, which its config.json asks for")
        found = stored[name]
        if found.bits.shape != tuple(t.shape):
            shapes = f"has shape {list(found.bits.shape)}, want {list(t.shape)}"
            raise CheckpointError(f"[train] {where}: tensor {name} {shapes}")
        t.copy_(torch.from_numpy(np.array(decode(found))))
    return wanted


def _stream(t: torch.Tensor, dtype: str) -> Stream:
    def blocks() -> Iterator[np.ndarray]:
        found = t.detach().cpu()
        yield encode((found.float() if found.is_floating_point() else found).numpy(), dtype)

    return Stream(dtype, tuple(t.shape), blocks())


def _write(path: Path, tensors: Mapping[str, Stream]) -> None:
    with whole(path) as partial:
        for _ in write_file(partial, tensors):
            pass
