"""Training a model: losses of its exits, of whole sequences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from . import trainer, weights
from .model import Decoder, initialize
from .plot import plot
from .prepare import Run, prepare, start
from .progress import Display, tokenizing
from .recipe import Recipe
from .running import autocast, default_precision, device
from .settings import Settings
from .tokens import Batch, Order, windows


def begin(folder: Path, settings: Settings) -> Run:
    """A new run, made ready for its first step."""
    settings = replace(settings, precision=settings.precision or default_precision(device(settings.device)))
    return start(folder, settings, torch.get_num_threads(), tokenizing)


def train(run: Run) -> bool:
    """Trains to the last step, writes the model, and says whether it got that far: False after Ctrl-C or SIGTERM."""
    s = run.settings
    display = Display(s.steps, s.accumulate * s.batch * s.context)
    return trainer.run(run.folder, s, display, lambda: ModelTrainer(run, display), "python -m swiftk.train")


class ModelTrainer(trainer.Trainer):
    def __init__(self, run: Run, display: Display) -> None:
        s = run.settings
        self.shape, self.tokens = prepare(run, tokenizing)
        self.order = Order(len(self.tokens.train), s.context, s.seed)
        layers, schedule = self.shape.L, s.dropout_schedule or "constant"
        self.recipe = Recipe(layers, s.steps, s.p_max, s.e_scale, s.curriculum, s.rotation or layers - 1, schedule)
        self.device = device(s.device)
        self.model = Decoder(self.shape, s.recompute, s.compile).to(self.device)
        super().__init__(run.folder, s, display, self.model)
        exits = [f"exit_{layer + 1}" for layer in range(layers)]
        self.tables(exits, exits)

    def initialize(self) -> None:
        s = self.settings
        weights.load(self.model, Path(s.model)) if s.model else initialize(self.model, s.seed)

    def gradients(self) -> tuple[float, list[float | None]]:
        """Of the weighted loss over all batches of a step; its row is [L] the loss of each exit."""
        s, share = self.settings, self.recipe.exit_weights(self.step)
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
        by_exit = [next(values) if on else None for on in wanted]
        return sum(w * x for w, x in zip(share, by_exit) if x is not None), by_exit

    def validate(self) -> None:
        """[L] Mean loss of each exit of the whole model on the start of what was held out."""
        s = self.settings
        starts = range(0, len(self.tokens.valid) - s.context, s.context)[: s.eval_batches * s.batch]
        if not starts:
            return
        sums = torch.zeros(self.recipe.layers, device=self.device)
        for i in range(0, len(starts), s.batch):
            batch = windows(self.tokens.valid, s.context, starts[i : i + s.batch])
            sums += self._losses(batch, [True] * self.recipe.layers, None) * len(batch.tokens)
        held_out = (sums / len(starts)).tolist()
        self.validations.add(self.step, held_out)
        self.display.validated(self.step, held_out)

    def export(self) -> None:
        weights.export(self.model, self.folder, self.settings.export_dtype or "bfloat16")
        plot(self.folder / "training")

    def _losses(self, batch: Batch, wanted: list[bool], kept: np.ndarray | None) -> torch.Tensor:
        with autocast(self.device, self.settings.precision):
            tokens, learned = (torch.from_numpy(part).to(self.device) for part in (batch.tokens, batch.learned))
            return self.model.losses(tokens, wanted, kept, learned)
