"""A study as a command: its options and texts, the time that it may take, progress, and its results."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from swiftk import LM, demo_model

from . import plots
from .lanes import Models, Pair, Way, measure, plain_summary, summary
from .results import OUT, RECORD, Results, folder_of
from .texts import Text, grown, stream

T = TypeVar("T")
_COLUMNS = (TextColumn("{task.description:50}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())


class Study:
    """Parts in turn, each of which begins with nothing learned; rows; one table and one picture at the end."""

    def __init__(
        self,
        name: str,
        about: str,
        *,
        instances: int = 1,
        tokens: int = 64,
        streams: Sequence[str] = (),
        loading: Mapping[str, Any] | None = None,  # options of load(); by default drafts read no copies
        options: Mapping[str, Mapping[str, Any]] | None = None,  # of the command line, beside those of all
    ) -> None:
        parser = _parser(about, instances, tokens, streams, options or {})
        self.given = given = parser.parse_args()
        try:
            self.out = folder_of(given.record, given.out, given.quick)
        except ValueError as error:
            parser.error(str(error))
        self.quick = given.quick
        self.instances = given.instances or (1 if self.quick else instances)
        self.tokens = given.tokens or (8 if self.quick else tokens)
        self.streams = tuple(given.streams or (streams[:2] if self.quick else streams))
        self.grow = None if given.model else 1 if self.quick else given.grow
        self.folder: Path = given.model or grown(self.grow)
        self.threads = 1 if self.quick else None  # a trial leaves the machine to others; None: one for each core
        self._loading = {"draft_weights": "own"} if loading is None else dict(loading)
        self._began, self._deadline, self._cut = perf_counter(), None, []
        self._progress: Progress | None = None
        self.results = Results(name, " ".join(about.partition("\n\n")[0].split()), {}, smoke=self.quick)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return self.results.rows

    @cached_property
    def models(self) -> Models:
        return self.open(self.folder)

    def open(self, folder: Path, **loading: Any) -> Models:
        """Another model's lanes."""
        return Models(folder, threads=self.threads, **{**self._loading, **loading})

    @cached_property
    def small(self) -> LM:
        """It writes what the grown one writes, in a fraction of the time."""
        return self.open(self.given.model or demo_model())[0]

    @property
    def lm(self) -> LM:
        """The plain lane's."""
        return self.models[0]

    @cached_property
    def layers(self) -> int:
        return json.loads((self.folder / "config.json").read_text(encoding="utf-8"))["num_hidden_layers"]

    def texts(self, name: str, skip: int = 0, count: int | None = None) -> list[Text]:
        return stream(name, self.folder, count or self.instances, skip)

    def parts(self, works: Mapping[str, T], forget: bool = True) -> Iterator[tuple[str, T]]:
        """Each has an even share of the time that is left."""
        with Progress(*_COLUMNS, console=Console(stderr=True), transient=True) as self._progress:
            self._task = self._progress.add_task(self.results.name, total=len(works))
            for at, (name, work) in enumerate(works.items()):
                self._part = name
                if self.given.minutes is not None:
                    now, end = perf_counter(), self._began + 60 * self.given.minutes
                    self._deadline = now + max(0.0, end - now) / (len(works) - at)
                if forget and "models" in self.__dict__:
                    self.models.forget()
                began = perf_counter()
                yield name, work
                self._progress.advance(self._task)
                console, took = self._progress.console, perf_counter() - began
                if not console.is_terminal:  # a bar would not be seen
                    console.print(f"{self.results.name}: {name}, {took:.0f} s, {at + 1} of {len(works)}")

    def each(self, things: Sequence[T], of: float = 1.0) -> Iterator[T]:
        """One at least, the others while this share of the part's time lasts."""
        began = perf_counter()
        for at, thing in enumerate(things):
            if at and self._deadline is not None and perf_counter() > began + of * (self._deadline - began):
                self._cut.append(f"{self._part} ({at} of {len(things)})")
                return
            told = f"{self.results.name}: {self._part}, {at + 1} of {len(things)}"
            self._progress.update(self._task, description=told)
            yield thing

    def chosen(self, names: Iterable[str]) -> list[str]:
        """Those ways that were asked for."""
        known, asked = list(names), self.given.ways or ()
        if unknown := set(asked) - set(known):
            raise SystemExit(f"[{self.results.name}] no way {unknown.pop()!r}, want some of: {', '.join(known)}")
        return [name for name in known if name in asked or not asked]

    def measure(
        self, texts: Sequence[Text], ways: Sequence[Way], models: Models | None = None, **sampling: Any
    ) -> list[Pair]:
        """Every text under every way, beside plain decoding."""
        chosen = self.chosen(way.name for way in ways)
        some = [way for way in ways if way.name in chosen]
        found = measure(models or self.models, self.each(texts), some, self.tokens, **sampling)
        return [pair for pairs in found for pair in pairs]

    def add(self, part: str, pairs: Sequence[Pair], **facts: Any) -> dict[str, dict[str, Any]]:
        """A row of plain decoding and one of each way, which are returned by its name."""
        by_way: dict[str, list[Pair]] = {}
        for pair in pairs:
            by_way.setdefault(pair.way, []).append(pair)
        made = {name: {"part": part, "way": name, **summary(some), **facts} for name, some in by_way.items()}
        plain = {"part": part, "way": "plain", **plain_summary(next(iter(by_way.values()))), **facts}
        self.rows.extend([plain, *made.values()])
        return made

    def finish(self, columns: Mapping[str, str], *notes: str, panels: Sequence[Any] = (), **look: Any) -> None:
        """Prints the table, and keeps it with the rows and the picture."""
        size = sum(f.stat().st_size for f in self.folder.glob("*.safetensors"))
        results = self.results
        results.columns = columns
        results.settings = {"model": self.folder.name, "GB": round(size / 1e9, 2), "texts a stream": self.instances}
        results.settings |= {"tokens": self.tokens, "streams": self.streams}
        results.notes += notes
        if self._cut:
            results.notes.append(f"cut short by the time budget: {', '.join(self._cut)}")
        print(results.text())
        results.write(self.out)
        if panels:
            plots.draw(self.out / f"{results.name}.png", results.rows, panels, **look)
        print(f"kept in {self.out / results.name}.md")


def _parser(
    about: str, instances: int, tokens: int, streams: Iterable[str], options: Mapping[str, Mapping[str, Any]]
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke test, of seconds, on the bundled model")
    parser.add_argument("--model", type=Path, help="Hugging Face folder; default: the toy model grown --grow times")
    parser.add_argument("--grow", type=int, default=8, help="width of the toy, times its own; default %(default)s")
    parser.add_argument("--instances", type=int, help=f"texts per stream; default {instances}")
    parser.add_argument("--tokens", type=int, help=f"new tokens per text; default {tokens}")
    parser.add_argument("--streams", nargs="+", help=f"kinds of prompts; default: {' '.join(streams)}")
    parser.add_argument("--ways", nargs="+", metavar="WAY", help="some of the ways in the table; default: all")
    parser.add_argument("--minutes", type=float, help="time budget: parts are cut short, none is left out")
    parser.add_argument("--out", type=Path, help=f"folder of results; default {OUT}")
    parser.add_argument("--record", action="store_true", help=f"results go to {RECORD}, which READMEs cite")
    for name, settings in options.items():
        parser.add_argument(name, **settings)
    return parser
