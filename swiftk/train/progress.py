"""Progress of a run: a bar on a terminal, now and then a line elsewhere. All of it on stderr."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

_WINDOW = 50  # steps that speed is taken over
_QUIET = 30.0  # seconds between lines where there is no terminal


class Display:
    """Context manager; step() after each step, say() for what should stay."""

    def __init__(self, steps: int, tokens_per_step: int) -> None:
        self.console = _console()
        self._steps, self._tokens = steps, tokens_per_step
        self._times: deque[float] = deque(maxlen=_WINDOW + 1)
        self._said = monotonic()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} {task.fields[facts]}"),
            console=self.console,
            disable=not self.console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("training", total=steps, facts="")

    def __enter__(self) -> Display:
        self._bar.start()
        self._times.append(monotonic())
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def step(self, done: int, loss: float, lr: float) -> None:
        """`done` of the steps; validations and checkpoints count into the speed, so the time left is honest."""
        now = monotonic()
        self._times.append(now)
        rate = max(1, len(self._times) - 1) / max(now - self._times[0], 1e-9)
        left = timedelta(seconds=round((self._steps - done) / rate))
        facts = f"loss {loss:.3f}, lr {lr:.1e}, {rate * self._tokens:,.0f} tok/s, {left} left"
        self._bar.update(self._task, completed=done, facts=facts)
        if not self.console.is_terminal and now - self._said > _QUIET:
            self._said = now
            self.say(f"step {done}/{self._steps}: {facts}")

    def validated(self, done: int, losses: Sequence[float]) -> None:
        by_exit = "  ".join(f"{exit}: {loss:.3f}" for exit, loss in enumerate(losses, 1))
        self.say(f"step {done}/{self._steps}: held-out loss by layers run  {by_exit}")

    def say(self, text: str) -> None:
        self.console.print(text, markup=False)


@contextmanager
def counting(done: str) -> Iterator[Callable[[int], None]]:
    """A function that says how many are done, and after what time."""
    console, began = _console(), monotonic()

    def say(count: int) -> None:
        console.print(f"{done} {count:,} after {timedelta(seconds=round(monotonic() - began))}", markup=False)

    yield say


def tokenizing(done: int, files: int) -> None:
    _console().print(f"tokenized {done} of {files} files", markup=False)


def _console() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)
