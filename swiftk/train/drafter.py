"""Training a drafter: features are the engine's own, so that what is learned from has the bits of inference."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import swiftk

from ..errors import CheckpointError, InvalidArgument
from ..files.hf_folder import CONFIG
from ..files.model_folder import find
from ..options.generation_config import read_defaults
from . import texts, tokens, trainer, weights
from .block import Block
from .drafter_settings import DrafterSettings
from .eagle import Eagle
from .eagle2 import Eagle2
from .files import whole
from .frozen import Frozen
from .moa import Moa
from .progress import Display, tokenizing
from .running import default_precision, device
from .shape import target_shape
from .tokens import Order, windows

KINDS: dict[str, Any] = {"block": Block, "eagle3": Eagle, "eagle2": Eagle2, "moa": Moa}
_TOGETHER = 16  # prompts that are answered at a time


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


def train(folder: Path, s: DrafterSettings) -> bool:
    """Trains to the last step, writes the drafter, and says whether it got that far."""
    display = Display(s.steps, s.batch * (s.anchors * s.block if s.kind == "block" else s.context * s.steps_ahead))
    again = "python -m swiftk.train drafter"
    return trainer.run(folder, s, display, lambda: DrafterTrainer(folder, s, display), again)


class DrafterTrainer(trainer.Trainer):
    def __init__(self, folder: Path, s: DrafterSettings, display: Display) -> None:
        self.tokens = _data(folder, s)
        self.order = Order(len(self.tokens.train), s.context, s.seed)
        target = Path(s.target or "")
        shape = target_shape(target, s.context)
        frozen = Frozen(target, device(s.device))
        self.kind = KINDS[s.kind](s, shape, frozen, self.tokens.train)
        super().__init__(folder, s, display, self.kind.module.to(frozen.device))
        self.tables([], ["mean_length", *(f"place_{i + 1}" for i in range(self.kind.places))])

    def initialize(self) -> None:
        self.kind.initialize(self.settings.seed)

    def gradients(self) -> tuple[float, list[float | None]]:
        s = self.settings
        rng = np.random.default_rng([s.seed, self.step, 3])
        batch = windows(self.tokens.train, s.context, self.order.starts(self.step * s.batch, s.batch))
        loss = self.kind.loss(batch, rng, self.step / s.steps)
        loss.backward()
        return loss.item(), []

    def validate(self) -> None:
        """How often the best token at each place is the model's, where all before are given; and the mean length of
        what would be accepted of a chain."""
        s = self.settings
        starts = range(0, len(self.tokens.valid) - s.context - 1, s.context)[: s.eval_batches * s.batch]
        if not starts:
            return
        right, rng = [], np.random.default_rng([s.seed, 4])
        for i in range(0, len(starts), s.batch):
            right.append(self.kind.right(windows(self.tokens.valid, s.context, starts[i : i + s.batch]), rng).cpu())
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


def _data(folder: Path, s: DrafterSettings) -> tokens.Tokens:
    """The token file: the texts', or the model's answers to them."""
    where, target = folder / "training" / "tokens", Path(s.target or "")
    if not where.is_dir():
        ends = read_defaults(target).eos_token_ids
        encoder = tokens.Encoder.read(target, ends[0] if ends else None)
        files, template = [Path(name) for name in s.data], texts.template_of(s.field, s.template)
        encode = _answers(target, s.answers) if s.answers else None
        tokens.build(where, files, template, encoder, s.held_out, tokenizing, encode)
    return tokens.read(where, s.context, s.held_out)


def _answers(target: Path, count: int) -> Any:
    """Prompts with what the model says to them, every second one at temperature 1, else greedy."""
    lm = swiftk.load(target, device="cpu", draft_weights="own", max_sequences=_TOGETHER)

    def answered(found: Sequence[texts.Piece]) -> Iterator[list[int]]:
        prompts = [piece.text for piece in found]
        each = [{"temperature": float(i % 2), "seed": i} for i in range(len(prompts))]
        ids = [lm.encode(prompt) for prompt in prompts]
        for prompt, result in zip(ids, lm.generate_many(ids, each=each, max_new_tokens=count), strict=True):
            yield [*prompt, *result.tokens]

    return answered
