"""Progress of long work, on stderr: a bar on a terminal, which goes away when the work is done; elsewhere a plain line
every few seconds."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Column

from . import line_width

EVERY = 5.0  # seconds between two lines
_BAR = 16  # columns
_MEGA, _GIGA = 10**6, 10**9


class Work:
    """Work of `total` steps, or of so many bytes. With `with`; a call reports how much is done, as load() does. Where
    less is done than before, other work has begun, and the time that is left is told by that alone."""

    def __init__(
        self,
        console: Console,
        what: str,
        total: int = 0,
        *,
        unit_bytes: bool = False,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.done, self.total = 0, total
        self._console, self._what, self._bytes, self._clock = console, what, unit_bytes, clock
        self._bar: Progress | None = None
        self._task: Any = None
        self._began = self._reported = clock()

    def __enter__(self) -> Work:
        self._began = self._reported = self._clock()
        if line_width(self._console.file) is None:
            words = Column(ratio=1, no_wrap=True, overflow="ellipsis")
            self._bar = Progress(
                TextColumn("{task.description}", markup=False, table_column=words),
                BarColumn(_BAR),
                TaskProgressColumn(),
                TextColumn("{task.fields[amount]}", markup=False),
                console=self._console,
                transient=True,
                expand=True,
            )
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def stage(self, words: str) -> None:
        """Other work begins, which is shown by these words."""
        self._what, self.done, self._began = words, 0, self._clock()

    def __call__(self, done: int, total: int) -> None:
        if done < self.done:
            self._began = self._clock()
        self.done, self.total = done, total
        if self._bar:
            self._show(self._bar)
        elif self._clock() - self._reported >= EVERY:
            self._reported = self._clock()
            self._console.print(f"{self._what}: {self.amount}")

    def advance(self, steps: int = 1) -> None:
        self(self.done + steps, self.total)

    @property
    def seconds(self) -> float:
        """Since it began, or its last part did."""
        return self._clock() - self._began

    @property
    def left(self) -> float | None:
        """Seconds until it is done, at the speed so far."""
        return self.seconds / self.done * (self.total - self.done) if self.done else None

    @property
    def amount(self) -> str:
        """How much is done, and how long the rest takes."""
        left = "" if self.left is None else f", {duration(self.left)} left"
        if not self._bytes:
            return f"{self.done} of {self.total}{left}"
        size, unit = (_GIGA, "GB") if self.total >= _GIGA else (_MEGA, "MB")
        return f"{self.done / size:.1f} of {self.total / size:.1f} {unit}{left}"

    def _show(self, bar: Progress) -> None:
        if self._task is None:  # from the first report on: before it, there may be nothing to do
            self._task = bar.add_task(self._what, total=self.total, amount=self.amount)
        bar.update(self._task, description=self._what, completed=self.done, total=self.total, amount=self.amount)


def duration(seconds: float) -> str:
    """In words, with two figures: 0.4 s, 12 s, 3 min, 1.5 h."""
    if seconds < 99.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 99.5 * 60 else f"{seconds / 3600:.1f} h"
