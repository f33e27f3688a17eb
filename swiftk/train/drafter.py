"""Training a drafter: features are the engine's own, so that what is learned from has the bits of inference.

Everything random is a function of the step, as in loop.py.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import swiftk

from ..errors import CheckpointError, InvalidArgument, NumericalError
from ..generation_config import read_defaults
from . import texts, tokens, weights
from .block import Block
from .drafter_settings import DrafterSettings
from .eagle import Eagle
from .files import whole
from .frozen import Frozen
from .log import Log
from .moa import Moa
from .progress import Display, tokenizing
from .recipe import learning_rate
from .running import adamw, alone, device, memory, stoppable
from .shape import read_shape
from .tokens import Order, windows

KINDS: dict[str, Any] = {"block": Block, "eagle3": Eagle, "moa": Moa}
_TOGETHER = 16  # prompts that are answered at a time


def start(folder: Path, s: DrafterSettings) -> tuple[Path, DrafterSettings]:
    """A new run in a new folder. A mistake in what was asked leaves no folder behind."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidArgument(f"[train] --out {folder} is there and not empty, want a new folder, or --resume {folder}")
    if not s.target:
        raise InvalidArgument("[train] want --target DIR, the model that it drafts for")
    device(s.device)
    files = [str(Path(name).resolve()) for name in s.data]
    texts.check([Path(name) for name in files], texts.template_of(s.field, s.template))
    target, threads = str(Path(s.target).resolve()), s.threads or torch.get_num_threads()
    s = replace(s, data=tuple(files), target=target, threads=threads)
    shape = read_shape(Path(target), s.context)
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
    torch.set_num_threads(s.threads or torch.get_num_threads())
    display = Display(s.steps, s.batch * (s.anchors * s.block if s.kind == "block" else s.context * s.steps_ahead))
    with alone(folder, folder / "training"), stoppable() as stopped, display:
        trainer = DrafterTrainer(folder, s, display)
        with closing(trainer), memory():
            while trainer.step < s.steps and not stopped.is_set():
                trainer.advance()
            trainer.finish()
        display.say(f"step {trainer.step}/{s.steps}: written to {folder}")
        if trainer.step < s.steps:
            display.say(f"interrupted; it goes on with: python -m swiftk.train drafter --resume {folder}")
    return trainer.step == s.steps


class DrafterTrainer:
    """A drafter, its optimizer, and the number of steps they have seen."""

    def __init__(self, folder: Path, s: DrafterSettings, display: Display) -> None:
        self.folder, self.settings, self.display = folder, s, display
        self.tokens = _data(folder, s)
        self.order = Order(len(self.tokens.train), s.context, s.seed)
        target = Path(s.target or "")
        shape = read_shape(target, s.context)
        self.device = device(s.device)
        self.kind = KINDS[s.kind](s, shape, Frozen(target, self.device), self.tokens.train)
        self.drafter = self.kind.module.to(self.device)
        self.optimizer = adamw(self.drafter, s)
        self.state = folder / "training" / "state.safetensors"
        self.step = self.saved = self._restore()
        slots = [f"place_{i + 1}" for i in range(self.kind.places)]
        self.losses = Log(folder / "training" / "loss.csv", ["step", "lr", "loss"], self.step)
        self.validations = Log(folder / "training" / "valid.csv", ["step", "mean_length", *slots], self.step)

    def close(self) -> None:
        self.losses.close()
        self.validations.close()

    def advance(self) -> None:
        """One step, and what is due after it."""
        s = self.settings
        lr = learning_rate(self.step, s.steps, s.lr, s.warmup, s.lr_end)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        rng = np.random.default_rng([s.seed, self.step, 3])
        batch = windows(self.tokens.train, s.context, self.order.starts(self.step * s.batch, s.batch))
        self.optimizer.zero_grad(set_to_none=False)
        loss = self.kind.loss(batch, rng, self.step / s.steps)
        loss.backward()
        if not math.isfinite(loss.item()):
            raise NumericalError(f"[train] the loss of step {self.step + 1} is {loss.item()}, want a lower --lr")
        if s.clip:
            torch.nn.utils.clip_grad_norm_(self.drafter.parameters(), s.clip)
        self.optimizer.step()
        self.step += 1
        last = self.step == s.steps
        if last or self.step % s.log_every == 0:
            self.losses.add(self.step, [lr, loss.item()])
        if len(self.tokens.valid) and (last or self.step % s.eval_every == 0):
            self._validate()
        if last or self.step % s.save_every == 0:
            self.save()
        self.display.step(self.step, loss.item(), lr)

    def save(self) -> None:
        self.losses.sync()
        self.validations.sync()
        weights.save_state(self.state, self.step, self.drafter, self.optimizer)
        self.saved = self.step

    def finish(self) -> None:
        if self.saved < self.step:
            self.save()
        config = self.kind.config()
        with whole(self.folder / "config.json") as partial:
            partial.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        weights.export(self.drafter, self.folder / "model.safetensors", "bfloat16")

    @torch.no_grad()
    def _validate(self) -> None:
        """How often the best guess at each place is the model's, where all before are given; and the mean length of
        what would be accepted of a chain."""
        s = self.settings
        starts = range(0, len(self.tokens.valid) - s.context - 1, s.context)[: s.eval_batches * s.batch]
        right, rng = [], np.random.default_rng([s.seed, 4])
        for i in range(0, len(starts), s.batch):
            right.append(self.kind.right(windows(self.tokens.valid, s.context, starts[i : i + s.batch]), rng).cpu())
        all_right = torch.cat(right).float()
        by_place = all_right.mean(0)
        length = 1 + all_right.cumprod(1).sum(1).mean().item()
        self.validations.add(self.step, [length, *by_place.tolist()])
        told = "  ".join(f"{i}: {p:.2f}" for i, p in enumerate(by_place.tolist(), 1))
        self.display.say(f"step {self.step}/{s.steps}: {length:.2f} tokens a pass; the model's own, by place  {told}")

    def _restore(self) -> int:
        for parameter in self.drafter.parameters():
            parameter.grad = torch.zeros_like(parameter)
        if self.state.is_file():
            return weights.load_state(self.state, self.drafter, self.optimizer)
        self.kind.initialize(self.settings.seed)
        return 0


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
