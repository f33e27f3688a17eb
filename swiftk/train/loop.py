"""The run itself: steps, validations, checkpoints.

Everything random is a function of the step, so a run that was killed goes on from its last checkpoint with the same
losses, on a CPU bit for bit (with as many threads).
"""

from __future__ import annotations

import math
from contextlib import closing
from pathlib import Path

import numpy as np
import torch

from ..errors import CheckpointError, NumericalError
from . import weights
from .log import Log
from .model import Llama, initialize
from .plot import plot
from .prepare import Run, prepare, start
from .progress import Display, tokenizing
from .recipe import Recipe, learning_rate
from .running import adamw, alone, device, memory, stoppable
from .settings import Settings
from .tokens import Order, windows


def begin(folder: Path, settings: Settings) -> Run:
    """A new run, made ready for its first step."""
    device(settings.device)
    return start(folder, settings, torch.get_num_threads(), tokenizing)


def train(run: Run) -> bool:
    """Trains to the last step, writes the model, and says whether it got that far: False after Ctrl-C or SIGTERM."""
    s = run.settings
    torch.set_num_threads(s.threads or torch.get_num_threads())
    display = Display(s.steps, s.accumulate * s.batch * s.context)
    with alone(run.folder, run.training), stoppable() as stopped, display:
        trainer = Trainer(run, display)
        with closing(trainer), memory():
            while trainer.step < s.steps and not stopped.is_set():
                trainer.advance()
            trainer.finish()
        display.say(f"step {trainer.step}/{s.steps}: written to {run.folder}")
        if trainer.step < s.steps:
            display.say(f"interrupted; it goes on with: python -m swiftk.train --resume {run.folder}")
    return trainer.step == s.steps


class Trainer:
    """A model, its optimizer, and the number of steps they have seen."""

    def __init__(self, run: Run, display: Display) -> None:
        s = run.settings
        self.run, self.settings, self.display = run, s, display
        shape, self.tokens = prepare(run, tokenizing)
        self.order = Order(len(self.tokens.train), s.context, s.seed)
        schedule = s.dropout_schedule or "constant"
        self.recipe = Recipe(shape.L, s.steps, s.p_max, s.e_scale, s.curriculum, s.rotation or shape.L - 1, schedule)
        self.device = device(s.device)
        self.model = Llama(shape, s.recompute).to(self.device)
        self.optimizer = adamw(self.model, s)
        self.step = self.saved = self._restore()
        exits = [f"exit_{layer + 1}" for layer in range(shape.L)]
        self.losses = Log(run.training / "loss.csv", ["step", "lr", "loss", *exits], self.step)
        self.validations = Log(run.training / "valid.csv", ["step", *exits], self.step)

    def close(self) -> None:
        self.losses.close()
        self.validations.close()

    def advance(self) -> None:
        """One step, and what is due after it: rows first, the checkpoint that vouches for them last."""
        s = self.settings
        lr = learning_rate(self.step, s.steps, s.lr or 0.0, s.warmup, s.lr_end)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        share = self.recipe.exit_weights(self.step)
        by_exit = self._gradients(share)
        loss = sum(w * x for w, x in zip(share, by_exit) if x is not None)
        if not math.isfinite(loss):
            known = f"the checkpoint of step {self.saved} is intact" if self.saved else "nothing was saved yet"
            raise NumericalError(f"[train] the loss of step {self.step + 1} is {loss}, want a lower --lr; {known}")
        if s.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), s.clip)
        self.optimizer.step()
        self.step += 1
        last = self.step == s.steps
        if last or self.step % s.log_every == 0:
            self.losses.add(self.step, [lr, loss, *by_exit])
        if len(self.tokens.valid) and (last or self.step % s.eval_every == 0):
            held_out = self._validate()
            self.validations.add(self.step, held_out)
            self.display.validated(self.step, held_out)
        if last or self.step % s.save_every == 0:
            self.save()
        self.display.step(self.step, loss, lr)

    def save(self) -> None:
        self.losses.sync()
        self.validations.sync()
        weights.save_state(self.run.state, self.step, self.model, self.optimizer)
        self.saved = self.step

    def finish(self) -> None:
        """The checkpoint, where there is none of this step, the model for use, and the figure."""
        if self.saved < self.step:
            self.save()
        weights.export(self.model, self.run.folder / "model.safetensors", self.settings.export_dtype or "bfloat16")
        plot(self.run.training)

    def _gradients(self, share: list[float]) -> list[float | None]:
        """Adds up the gradients of the weighted loss over all batches of a step; returns [L] the loss of each exit."""
        s = self.settings
        self.optimizer.zero_grad(set_to_none=False)  # a layer that every sample dropped has a gradient, of zero
        wanted = [w > 0 for w in share]
        factor = torch.tensor([w / s.accumulate for w in share if w > 0], device=self.device)
        kept = self.recipe.kept(self.step, s.seed, s.accumulate, s.batch)
        sums = torch.zeros(len(factor), device=self.device)
        for i in range(s.accumulate):
            starts = self.order.starts((self.step * s.accumulate + i) * s.batch, s.batch)
            found = self._losses(windows(self.tokens.train, s.context, starts), wanted, kept[i])
            (found * factor).sum().backward()
            sums += found.detach() / s.accumulate
        values = iter(sums.tolist())
        return [next(values) if on else None for on in wanted]

    @torch.no_grad()
    def _validate(self) -> list[float]:
        """[L] Mean loss of each exit of the whole model on the start of what was held out."""
        s = self.settings
        starts = range(0, len(self.tokens.valid) - s.context, s.context)[: s.eval_batches * s.batch]
        sums = torch.zeros(self.recipe.layers, device=self.device)
        for i in range(0, len(starts), s.batch):
            batch = windows(self.tokens.valid, s.context, starts[i : i + s.batch])
            sums += self._losses(batch, [True] * self.recipe.layers, None) * len(batch)
        return (sums / len(starts)).tolist()

    def _losses(self, batch: np.ndarray, wanted: list[bool], kept: np.ndarray | None) -> torch.Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            return self.model.losses(torch.from_numpy(batch).to(self.device), wanted, kept)

    def _restore(self) -> int:
        """Weights from the last checkpoint of the run, else of the model to continue, else new. Returns steps done."""
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        s = self.settings
        if self.run.state.is_file():
            step = weights.load_state(self.run.state, self.model, self.optimizer)
            if step > s.steps:
                raise CheckpointError(f"[resume] {self.run.state} is of step {step}, want at most {s.steps}")
            return step
        if s.model:
            weights.load(self.model, Path(s.model))
        else:
            initialize(self.model, s.seed)
        return 0
