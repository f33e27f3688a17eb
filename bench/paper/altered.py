"""Copies of a model that draft as no real text makes them: always right, or hardly ever."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from swiftk import DraftSpec
from swiftk.files.folders import cache_folder
from swiftk.files.safetensors_io import Tensor, read_folder, write_file

Tensors = dict[str, Tensor]


def silent(folder: Path, skip: DraftSpec) -> Path:
    """Skipped sublayers add nothing to the residual stream, though they read and multiply all of their weights: what
    leaves them out drafts what the target says."""
    zeros = {f"model.layers.{i}.self_attn.o_proj.weight" for i in skip.attn}
    zeros |= {f"model.layers.{i}.mlp.down_proj.weight" for i in skip.mlp}

    def change(tensors: Tensors) -> Tensors:
        return {key: Tensor(t.dtype, np.zeros_like(t.bits)) if key in zeros else t for key, t in tensors.items()}

    return _copy(folder, "silent", change)


def reversed_layers(folder: Path, layers: int) -> Path:
    """The last layer first: what follows a layer is not what it was trained for, and no draft gets it right."""

    def change(tensors: Tensors) -> Tensors:
        def other(name: str) -> str:
            return re.sub(r"(?<=\.layers\.)\d+", lambda found: str(layers - 1 - int(found[0])), name)

        return {name: tensors[other(name)] for name in tensors}

    return _copy(folder, "reversed", change)


def _copy(folder: Path, name: str, change: Callable[[Tensors], Tensors]) -> Path:
    made = cache_folder() / f"{folder.name}-{name}"
    if (made / "config.json").is_file():
        return made
    made.mkdir(parents=True, exist_ok=True)
    for _ in write_file(made / "model.safetensors", change(read_folder(folder))):
        pass
    for path in folder.iterdir():
        if path.suffix in (".json", ".jinja") and not path.name.endswith(".index.json") and path.name != "config.json":
            shutil.copyfile(path, made / path.name)
    shutil.copyfile(folder / "config.json", made / "config.json")  # last: it says that all is there
    return made
