"""One experiment as a command: its options, the model, a time budget, progress, and results kept part by part.

A part is what must be measured in one go, since optimizers learn from text to text. Each finished part is written at
once; a later run with the same settings and the same build measures only what is missing or was cut short.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any

BENCH = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH))
os.environ.setdefault("SWIFTK_LEARNED", "0")  # what earlier runs learned is not part of an experiment

from rich.console import Console  # noqa: E402
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: E402
from rich.table import Table as RichTable  # noqa: E402

import plots  # noqa: E402
import swiftk  # noqa: E402
from demo import grown  # noqa: E402
from machine import Machine  # noqa: E402
from runs import BLOCK, Lanes, Part, Way, count, measure, sessions  # noqa: E402
from streams import Instance, stream  # noqa: E402
from swiftk import _core, demo_model  # noqa: E402
from tables import Table  # noqa: E402

_err = Console(stderr=True)
Kept = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Work:
    """A part to do: do(part) returns plain values; `runs` pairs of texts are expected."""

    runs: int
    what: str  # its texts and ways: kept results of others are no longer its
    do: Callable[[Part], dict[str, Any]]

    def adding(self, more: Callable[[], dict[str, Any]]) -> Work:
        """With what is known only when it is done."""
        return Work(self.runs, self.what, lambda part: {**self.do(part), **more()})


class Study:
    loading: Mapping[str, Any] = {"draft_weights": "own"}  # options of load()

    def __init__(
        self,
        name: str,
        about: str,
        *,
        instances: int,
        tokens: int,
        streams: Sequence[str] = (),
        ways: Sequence[str] = (),  # that may be left out
        folder: str = "paper",  # of bench/results
        arguments: Sequence[str] | None = None,  # None: the command line's
    ) -> None:
        self.name, self.about = name, about
        home = BENCH / "results" / folder
        given = _parser(about, instances, tokens, streams, ways, home).parse_args(arguments)
        self.quick = given.quick
        self.instances = given.instances or (1 if self.quick else instances)
        self.tokens = given.tokens or (16 if self.quick else tokens)
        self.streams = tuple(given.streams or (streams[:2] if self.quick else streams))
        self.ways = tuple(way for way in ways if way in given.ways)
        self.grow = None if given.model else 1 if self.quick else given.grow
        self.model_dir = given.model or grown(self.grow)
        self.small = given.model or demo_model()  # says what model_dir says, in a fraction of the time
        self.out = given.out or (None if self.quick else home)
        self._fresh, self._began = given.fresh, perf_counter()
        self._minutes = given.minutes

    @cached_property
    def lanes(self) -> Lanes:
        return sessions(self.model_dir, **self.loading)

    @property
    def lm(self) -> swiftk.LM:
        """The plain lane's."""
        return self.lanes[0]

    @cached_property
    def layers(self) -> int:
        return json.loads((self.model_dir / "config.json").read_text(encoding="utf-8"))["num_hidden_layers"]

    @cached_property
    def machine(self) -> Machine:
        return Machine.measure(len(os.sched_getaffinity(0)), _core.isas()[0], ("bfloat16",))

    def stream(self, name: str, skip: int = 0) -> list[Instance]:
        return stream(name, self.model_dir, self.instances, skip)

    def pairs(self, instances: Sequence[Instance], ways: Sequence[Way], **measuring: Any) -> Work:
        """The work of measure(): every instance under every way."""

        def do(part: Part) -> dict[str, Any]:
            return {"pairs": measure(self.lanes, instances, ways, self.tokens, part=part, **measuring)}

        return self.work(instances, ways, do, **measuring)

    def work(
        self, instances: Sequence[Instance], ways: Sequence[Way], do: Callable[[Part], dict[str, Any]], **more: Any
    ) -> Work:
        """A part that generates these instances under these ways, and whatever else `more` tells apart."""
        known = {name: value for name, value in more.items() if not callable(value)}
        what = hashlib.sha256(repr((instances, ways, known)).encode()).hexdigest()[:12]
        return Work(count(instances, ways), what, do)

    def run(self, works: Mapping[str, Work], table: Callable[[Kept], Table], notes: Sequence[str] = ()) -> Kept:
        """Does what is not done yet, in order, the time that is left shared evenly; prints and writes the table."""
        settings = {"model": self.model_dir.name, "tokens": self.tokens, "instances": self.instances, "build": _build()}
        kept = self._load(settings)
        kept = {key: part for key, part in kept.items() if key in works and part["what"] == works[key].what}
        todo = [key for key in works if kept.get(key, {}).get("cut", True)]
        columns = (TextColumn("{task.description:40}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=_err, transient=True) as progress, _interrupts() as stopped:
            for at, key in enumerate(todo):
                task = progress.add_task(f"{self.name}: {key}", total=works[key].runs)
                part = Part(self._deadline(len(todo) - at), lambda task=task: progress.advance(task), stopped)
                self.lanes.forget()
                found = works[key].do(part)
                kept[key] = {"what": works[key].what, "cut": not progress.tasks[task].finished, **found}
                progress.update(task, visible=False)
                self._write(settings, {k: kept[k] for k in works if k in kept}, table, notes)
                if stopped():
                    progress.stop()
                    _err.print(f"{len(kept)} of {len(works)} parts are kept; the next run goes on from there")
                    raise SystemExit(130)
        kept = {key: kept[key] for key in works}
        self._print(table(kept), [*self._notes(kept), *notes])
        self._write(settings, kept, table, notes)
        return kept

    def draw(self, paint: Callable[[Path], None]) -> None:
        """The picture beside the table."""
        if self.out is None:
            return
        if plots.available():
            paint(self.out / f"{self.name}.png")
        else:
            _err.print("no picture: matplotlib is not installed (pip install '.[bench]')")

    def _deadline(self, parts_left: int) -> float | None:
        if self._minutes is None:
            return None
        left = max(0.0, self._began + 60 * self._minutes - perf_counter())
        return perf_counter() + left / parts_left

    def _load(self, settings: dict[str, Any]) -> Kept:
        path = None if self.out is None or self._fresh else self.out / f"{self.name}.json"
        if path is None or not path.is_file():
            return {}
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["settings"] != settings:
            _err.print(f"{path.name} is of other settings or another build: measuring anew")
            return {}
        return found["parts"]

    def _write(
        self, settings: dict[str, Any], kept: Kept, table: Callable[[Kept], Table], notes: Sequence[str]
    ) -> None:
        if self.out is None:
            return
        self.out.mkdir(parents=True, exist_ok=True)
        told = [*self._notes(kept), *notes]
        facts = {"settings": settings, "machine": self.machine.facts(), "notes": told, "parts": kept}
        text = "\n".join(f"- {note}" for note in told)
        _replace(self.out / f"{self.name}.json", json.dumps(facts, separators=(",", ":")) + "\n")
        _replace(self.out / f"{self.name}.md", f"{table(kept).markdown()}\n\n{text}\n")

    def _notes(self, kept: Kept) -> list[str]:
        size = sum(f.stat().st_size for f in self.model_dir.glob("*.safetensors"))
        cut = [key for key, part in kept.items() if part["cut"]]
        return [
            self.about.splitlines()[0],
            self.machine.describe(),
            f"{self.model_dir.name}, {size / 1e9:.2f} GB of weights; batch 1, up to {self.instances} instances a part, "
            f"{self.tokens} new tokens a text; seconds behind the first token; all ways side by side, {BLOCK} tokens "
            "each in turn",
            "output: every text compared with plain decoding's of the same seed, token by token",
            *([f"cut short by the time budget: {', '.join(cut)}"] if cut else []),
        ]

    def _print(self, table: Table, notes: Iterable[str]) -> None:
        rich = RichTable(title=self.name, title_justify="left")
        for at, column in enumerate(table.rows[0]):
            rich.add_column(column, justify="left" if at == 0 else "right")
        for row in table.rows[1:]:
            rich.add_row(*row)
        console = Console(width=None if sys.stdout.isatty() else 200)
        console.print(rich)
        for note in notes:
            console.print(f"- {note}", highlight=False, markup=False)


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C ends the part behind its current text, so that it is kept; the second one ends at once."""
    asked: list[int] = []

    def stop(*_: Any) -> None:
        asked.append(1)
        signal.signal(signal.SIGINT, before)
        _err.print("stopping behind this text; once more: at once")

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)


def _parser(
    about: str, instances: int, tokens: int, streams: Sequence[str], ways: Sequence[str], home: Path
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--quick", action="store_true", help="seconds: the bundled model, few and short texts")
    parser.add_argument("--model", type=Path, help="checkpoint directory; default: the demo model grown --grow times")
    parser.add_argument("--grow", type=int, default=8)
    parser.add_argument("--instances", type=int, help=f"of each stream; default {instances}")
    parser.add_argument("--tokens", type=int, help=f"new tokens of a text; default {tokens}")
    parser.add_argument("--streams", nargs="+", help=f"default: {' '.join(streams)}" if streams else argparse.SUPPRESS)
    listed = f"of {', '.join(ways)}; default: all" if ways else argparse.SUPPRESS
    parser.add_argument("--ways", nargs="+", default=ways, choices=ways or None, metavar="WAY", help=listed)
    parser.add_argument("--minutes", type=float, help="time budget: parts are cut short, none is left out")
    parser.add_argument("--out", type=Path, help=f"of the results; default {home}, none with --quick")
    parser.add_argument("--fresh", action="store_true", help="measure anew what is there already")
    return parser


def _build() -> str:
    """The package's code, in a few letters."""
    package = Path(swiftk.__file__).parent
    digest = hashlib.sha256()
    for path in sorted({*package.rglob("*.py"), Path(_core.__file__)}):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _replace(path: Path, text: str) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)  # whole or not at all
