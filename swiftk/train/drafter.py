"""Training a drafter: features are the engine's own, so that what is learned from has the bits of inference."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import CheckpointError, InvalidArgument
from ..files.hf_folder import CONFIG
from ..files.model_folder import find
from ..options.generation_config import read_defaults
from . import log, texts, tokens, trainer, weights
from .block import Block
from .card import card
from .drafter_settings import DrafterSettings
from .eagle import Eagle
from .eagle2 import Eagle2
from .files import whole
from .frozen import Frozen
from .independent import Independent
from .moa import Moa
from .progress import Display, tokenizing
from .running import default_precision, device
from .shape import target_shape
from .tokens import LEARNED, Batches, Text, rows

KINDS: dict[str, Any] = {"block": Block, "eagle3": Eagle, "eagle2": Eagle2, "moa": Moa, "model": Independent}


def start(folder: Path, s: DrafterSettings) -> tuple[Path, DrafterSettings]:
    """A new run in a new folder. A mistake in what was asked leaves no folder behind."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidArgument(f"[train] --out {folder} is there and not empty, want a new folder, or --resume {folder}")
    if not s.target:
        raise InvalidArgument("[train] want --target DIR, the model that it drafts for")
    precision = s.precision or default_precision(device(s.device))
    files = [str(Path(name).resolve()) for name in s.data]
    texts.check([Path(name) for name in files], texts.template_of(s.field, s.template))
    target, threads = str(find(s.target, "train").resolve()), s.threads or torch.get_num_threads()
    s = replace(s, data=tuple(files), target=target, threads=threads, precision=precision)
    shape = target_shape(Path(target), s.context)
    KINDS[s.kind].check(s, shape)
    (folder / "training").mkdir(parents=True)
    try:
        (folder / "training" / "run.json").write_text(json.dumps(s.to_dict(), indent=2) + "\n", encoding="utf-8")
        _data(folder, s)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder, s


def reopen(folder: Path, changes: dict[str, Any]) -> tuple[Path, DrafterSettings]:
    """The run of a folder, perhaps with other settings of the machine."""
    path = folder / "training" / "run.json"
    if not path.is_file():
        raise CheckpointError(f"[resume] {folder} holds no run: {path} is missing, want the --out folder of one")
    return folder, replace(DrafterSettings.from_dict(json.loads(path.read_text(encoding="utf-8"))), **changes)


def train(folder: Path, s: DrafterSettings, kinds: Mapping[str, Any] = KINDS) -> bool:
    """Trains to the last step, writes the drafter, and says whether it got that far. kinds: what can be trained."""
    display = Display(s.steps, s.batch * (s.anchors * s.block if s.kind == "block" else s.context))
    again = "python -m swiftk.train drafter"
    return trainer.run(folder, s, display, lambda: DrafterTrainer(folder, s, display, kinds[s.kind]), again)


class DrafterTrainer(trainer.Trainer):
    def __init__(self, folder: Path, s: DrafterSettings, display: Display, kind: Any) -> None:
        self.tokens = _data(folder, s)
        target = Path(s.target or "")
        shape = target_shape(target, s.context)
        frozen = Frozen(target, device(s.device), s.threads)
        train = self.tokens.train
        self.kind = kind(s, shape, frozen, train.ids[(train.marks & LEARNED).astype(bool)])
        self.batches = Batches(_segments(train, s, self.kind.places, s.batch), s.batch, s.seed)
        self.held_out = _segments(self.tokens.valid, s, self.kind.places, bool(s.held_out))
        super().__init__(folder, s, display, self.kind.module.to(frozen.device))
        self.tables([], ["mean_length", *(f"place_{i + 1}" for i in range(self.kind.places))])

    def initialize(self) -> None:
        self.kind.initialize(self.settings.seed)

    def gradients(self) -> tuple[float, list[float | None]]:
        s = self.settings
        rng = np.random.default_rng([s.seed, self.step, 3])
        batch = rows(self.tokens.train, self.batches.at(self.step))
        loss = self.kind.loss(batch, rng, self.step / s.steps)
        loss.backward()
        return loss.item(), []

    def validate(self) -> None:
        """How often the best token at each place is the model's, where all before are given; and the mean length of
        what would be accepted of a chain."""
        s = self.settings
        held_out = self.held_out[: s.eval_batches * s.batch]
        if not len(held_out):
            return
        right, rng = [], np.random.default_rng([s.seed, 4])
        for i in range(0, len(held_out), s.batch):
            right.append(self.kind.right(rows(self.tokens.valid, held_out[i : i + s.batch]), rng).cpu())
        all_right = torch.cat(right).float()
        by_place = all_right.mean(0)
        length = 1 + all_right.cumprod(1).sum(1).mean().item()
        self.validations.add(self.step, [length, *by_place.tolist()])
        found = "  ".join(f"{i}: {p:.2f}" for i, p in enumerate(by_place.tolist(), 1))
        self.display.say(f"step {self.step}/{s.steps}: {length:.2f} tokens a pass; the model's own, by place  {found}")

    def export(self) -> None:
        with whole(self.folder / CONFIG) as partial:
            partial.write_text(json.dumps(self.kind.config(), indent=2) + "\n", encoding="utf-8")
        weights.export(self.module, self.folder, "bfloat16")
        values = sum(tensor.numel() for tensor in self.module.parameters())
        known = log.read(self.folder / "training" / "valid.csv")
        with whole(self.folder / "README.md") as partial:
            told = card(self.settings, values, len(self.tokens.train.ids), known[-1] if known else None)
            partial.write_text(told, encoding="utf-8")


def _data(folder: Path, s: DrafterSettings) -> tokens.Tokens:
    where, target = folder / "training" / "tokens", Path(s.target or "")
    if not where.is_dir():
        ends = read_defaults(target).eos_token_ids
        encoder = tokens.Encoder.read(target, ends[0] if ends else None)
        files, template = [Path(name) for name in s.data], texts.template_of(s.field, s.template)
        tokens.build(where, files, template, encoder, s.held_out, tokenizing)
    return tokens.read(where, s.context, s.held_out)


def _segments(text: Text, s: DrafterSettings, places: int, least: int) -> np.ndarray:
    """[n, 2] those of the text that are long enough for a draft of so many places. InvalidArgument: fewer than
    `least`."""
    shortest = places + 3
    found = tokens.segments(text, s.context, shortest)
    if len(found) < least:
        raise InvalidArgument(
            f"[data] {len(found)} texts of at least {shortest} tokens, some of them learned, want {least} or more"
        )
    return found
