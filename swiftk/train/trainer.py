"""Steps, validations, checkpoints: what is the same whatever is trained.

Everything random is a function of the step, so a run that was killed goes on from its last checkpoint with the same
losses, on a CPU bit for bit (with as many threads).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from ..errors import CheckpointError, NumericalError
from . import weights
from .log import Log
from .progress import Display
from .recipe import learning_rate
from .running import adamw, alone, memory, stoppable


class Trainer:
    """A module, its optimizer, and the number of steps they have seen. What a step is, a subclass says."""

    def __init__(self, folder: Path, settings: Any, display: Display, module: torch.nn.Module) -> None:
        self.folder, self.settings, self.display, self.module = folder, settings, display, module
        self.optimizer = adamw(module, settings)
        self.state = folder / "training" / "state.safetensors"
        self.step = self.saved = self._restore()

    def tables(self, losses: Sequence[str], validations: Sequence[str]) -> None:
        """Columns beside the step, of loss.csv and valid.csv."""
        training = self.folder / "training"
        self.losses = Log(training / "loss.csv", ["step", "lr", "loss", *losses], self.step)
        self.validations = Log(training / "valid.csv", ["step", *validations], self.step)

    def initialize(self) -> None:
        """New weights, or those of a model that is trained further."""
        raise NotImplementedError

    def gradients(self) -> tuple[float, Sequence[float | None]]:
        """Adds up the gradients of a step, which are zero; (the loss, its row of loss.csv)."""
        raise NotImplementedError

    def validate(self) -> None:
        """Where there is held-out text."""
        raise NotImplementedError

    def export(self) -> None:
        """What is trained, for use."""
        raise NotImplementedError

    def close(self) -> None:
        self.losses.close()
        self.validations.close()

    def advance(self) -> None:
        """One step, and what is due after it: rows first, the checkpoint that vouches for them last."""
        s = self.settings
        lr = learning_rate(self.step, s.steps, s.lr or 0.0, s.warmup, s.lr_end)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad(set_to_none=False)  # a layer that every sample dropped has a gradient, of zero
        loss, row = self.gradients()
        if not math.isfinite(loss):
            known = f"the checkpoint of step {self.saved} is intact" if self.saved else "nothing was saved yet"
            raise NumericalError(f"[train] the loss of step {self.step + 1} is {loss}, want a lower --lr; {known}")
        if s.clip:
            torch.nn.utils.clip_grad_norm_(self.module.parameters(), s.clip)
        self.optimizer.step()
        self.step += 1
        last = self.step == s.steps
        if last or self.step % s.log_every == 0:
            self.losses.add(self.step, [lr, loss, *row])
        if last or self.step % s.eval_every == 0:
            with torch.no_grad():
                self.validate()
        if last or self.step % s.save_every == 0:
            self.save()
        self.display.step(self.step, loss, lr)

    def save(self) -> None:
        self.losses.sync()
        self.validations.sync()
        weights.save_state(self.state, self.step, self.module, self.optimizer)
        self.saved = self.step

    def _restore(self) -> int:
        """Weights from the last checkpoint of the run, else as it begins. Returns steps done."""
        for parameter in self.module.parameters():
            parameter.grad = torch.zeros_like(parameter)
        if not self.state.is_file():
            self.initialize()
            return 0
        step = weights.load_state(self.state, self.module, self.optimizer)
        if step > self.settings.steps:
            raise CheckpointError(f"[resume] {self.state} is of step {step}, want at most {self.settings.steps}")
        return step


def run(folder: Path, settings: Any, display: Display, make: Callable[[], Trainer], again: str) -> bool:
    """Trains to the last step, exports, and says whether it got that far: False after Ctrl-C or SIGTERM. again: the
    command that goes on with a run."""
    torch.set_num_threads(settings.threads or torch.get_num_threads())
    with alone(folder, folder / "training"), stoppable() as stopped, display:
        trainer = make()
        with closing(trainer), memory():
            while trainer.step < settings.steps and not stopped.is_set():
                trainer.advance()
            if trainer.saved < trainer.step:
                trainer.save()
            trainer.export()
        display.say(f"step {trainer.step}/{settings.steps}: written to {folder}")
        if trainer.step < settings.steps:
            display.say(f"interrupted; it goes on with: {again} --resume {folder}")
    return trainer.step == settings.steps
