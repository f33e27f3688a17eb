"""A study as a command: its options and texts, the time that it may take, progress, and its results."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from swiftk import LM, demo_model
from swiftk.files.model_files import ModelFiles, open_model_files

from . import plots
from .as_gguf import Missing, quantised
from .lanes import Models, Pair, Way, measure, plain_summary, summary
from .paper import DEVIATIONS
from .published import MODELS, model
from .results import OUT, RECORD, Results, folder_of, place
from .texts import Prompts, Text, grown
from .weights import encoding, flattered, size, told

T = TypeVar("T")
_COLUMNS = (TextColumn("{task.description:50}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())


class Study:
    """Parts in turn, each of which begins with nothing learned; rows; one table and one picture at the end."""

    def __init__(
        self,
        name: str,
        about: str,
        *,
        texts: int = 1,
        tokens: int = 64,
        streams: Sequence[str] = (),
        loading: Mapping[str, Any] | None = None,  # options of load(); by default drafts read no copies
        options: Mapping[str, Mapping[str, Any]] | None = None,  # of the command line, beside those of all
    ) -> None:
        parser = _parser(about, texts, tokens, streams, options or {})
        self.given = given = parser.parse_args()
        try:
            folder = folder_of(given.record, given.out, given.quick)
        except ValueError as error:
            parser.error(str(error))
        kind: str | None = getattr(given, "kind", None)
        self.out = place(folder, given.model, kind, given.dtype, given.isa)
        self.quick = given.quick
        self.count = given.texts or (1 if self.quick else texts)  # of a stream
        self.tokens = given.tokens or (8 if self.quick else tokens)
        self.streams = tuple(given.streams or (streams[:2] if self.quick else streams))
        self.given_models: list[Path] = getattr(given, "models", []) or [one for one in [given.model] if one]
        self.grow = None if self.given_models else 1 if self.quick else given.grow
        self.source: Path = self.given_models[0] if self.given_models else grown(self.grow)
        self.folder = _as_kind(name, self.source, kind, given) if kind else self.source  # or a GGUF file
        self.threads = 1 if self.quick else None  # a trial leaves the machine to others; None: one for each core
        self.asked = {name: value for name in ("dtype", "isa") if (value := getattr(given, name))}  # of every load
        self._loading = {"draft_weights": "own"} if loading is None else dict(loading)
        # The papers' examples stand before prompts of the papers' studies; the toy was trained on such prompts alone.
        paper = name.startswith("paper/") and given.model is not None
        self._shots: bool = paper if given.shots is None else given.shots
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
        return Models(folder, threads=self.threads, **{**self.asked, **self._loading, **loading})

    @cached_property
    def small(self) -> LM:
        """It writes what the grown one writes, in a fraction of the time. A model that is given is not grown."""
        return self.models.of(Way("small")) if self.given_models else self.open(demo_model()).plain

    @property
    def lm(self) -> LM:
        """The plain lane's."""
        return self.models.plain

    @cached_property
    def files(self) -> ModelFiles:
        return open_model_files(self.folder)

    @property
    def layers(self) -> int:
        return self.files.config["num_hidden_layers"]

    @property
    def copy(self) -> str:
        """The copy that drafts of these weights may read without being flattered."""
        return next(form for form in ("int4", "int3") if not self.flatters([form]) or form == "int3")

    @cached_property
    def _rounded(self) -> list[ModelFiles]:
        """Files that the weights are in, and those that they were made of."""
        return [self.files, *([open_model_files(self.source)] if self.source != self.folder else [])]

    def flatters(self, copies: Iterable[str]) -> bool:
        return any(flattered(copies, files, self.asked.get("dtype", "auto")) for files in self._rounded)

    @cached_property
    def prompts(self) -> Prompts:
        return self.prompts_of(self.folder)

    def prompts_of(self, folder: Path) -> Prompts:
        return Prompts(folder, self.given.chat, self._shots)

    @cached_property
    def eos(self) -> bool:
        """Whether a text ends where the model ends it. A model that chats does."""
        return self.prompts.chat if self.given.eos is None else self.given.eos

    def texts(self, name: str, count: int | None = None, most: int | None = None) -> list[Text]:
        """The first ones of a stream; most: tokens of a turn."""
        return self.prompts.stream(name, count or self.count, most)

    def others(self, name: str, count: int) -> list[Text]:
        """The last ones, to search or to train on. SystemExit: some of them are measured, too."""
        every = self.prompts.stream(name)
        if self.count + count > len(every):
            raise SystemExit(f"[{self.results.name}] --texts {self.count}, want at most {len(every) - count} of {name}")
        return every[-count:]

    def parts(self, works: Mapping[str, T], forget: bool = True) -> Iterator[tuple[str, T]]:
        """Each has an even share of the time that is left."""
        with Progress(*_COLUMNS, console=Console(stderr=True), transient=True) as self._progress:
            self._task = self._progress.add_task(self.results.name, total=len(works))
            for at, (name, work) in enumerate(works.items()):
                self._part = name
                self._progress.update(self._task, description=f"{self.results.name}: {name}")
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

    def rounds(self, works: Mapping[str, T]) -> Iterator[tuple[int, str, T]]:
        """Every part with the first of `count` texts, then every part with the second, and so on; nothing is forgotten.
        A round begins only if there is time for another one like the last, so that all parts have as many texts."""
        every = {f"{part}, text {n + 1}": (n, part, work) for n in range(self.count) for part, work in works.items()}
        began, first = perf_counter(), next(iter(works))
        for _, (number, part, work) in self.parts(every, forget=False):
            if number and part == first:
                now, minutes = perf_counter(), self.given.minutes
                if minutes is not None and now + (now - began) > self._began + 60 * minutes:
                    self._cut.append(f"every part ({number} of {self.count} texts)")
                    return
                began = now
            yield number, part, work

    def each(self, things: Sequence[T]) -> Iterator[T]:
        """One at least, the others while the part's time lasts."""
        for at, thing in enumerate(things):
            if at and self._deadline is not None and perf_counter() > self._deadline:
                self._cut.append(f"{self._part} ({at} of {len(things)})")
                return
            self.progress(f"{at + 1} of {len(things)}")
            yield thing

    def progress(self, done: str) -> None:
        self._progress.update(self._task, description=f"{self.results.name}: {self._part}, {done}")

    def chosen(self, names: Iterable[str]) -> list[str]:
        """Those ways that were asked for."""
        known, asked = list(names), self.given.ways or ()
        if unknown := set(asked) - set(known):
            raise SystemExit(f"[{self.results.name}] no way {unknown.pop()!r}, want some of: {', '.join(known)}")
        return [name for name in known if name in asked or not asked]

    def measure(
        self, texts: Sequence[Text], ways: Sequence[Way], models: Models | None = None, **asked: Any
    ) -> list[Pair]:
        """Every text under every way, beside plain decoding."""
        chosen = self.chosen(way.name for way in ways)
        some = [way for way in ways if way.name in chosen]
        asked = asked if "ignore_eos" in asked else {"ignore_eos": not self.eos, **asked}
        found = measure(models or self.models, self.each(texts), some, self.tokens, **asked)
        return [pair for pairs in found for pair in pairs]

    def add(self, part: str, pairs: Sequence[Pair], **facts: Any) -> dict[str, dict[str, Any]]:
        """A row of plain decoding and one of each way, which are returned by its name; none where no answer had two
        tokens."""
        if not pairs:
            self.results.notes.append(f"left out: {part}, whose answers are one token each")
            return {}
        by_way: dict[str, list[Pair]] = {}
        for pair in pairs:
            by_way.setdefault(pair.way, []).append(pair)
        made = {name: {"part": part, "way": name, **summary(some), **facts} for name, some in by_way.items()}
        for name, row in made.items():
            if self.flatters(set().union(*(pair.copies for pair in by_way[name]))):
                row["copy"] += ", flattered"
        plain = {"part": part, "way": "plain", **plain_summary(next(iter(by_way.values()))), **facts}
        self.rows.extend([plain, *made.values()])
        return made

    def finish(self, columns: Mapping[str, str], *notes: str, panels: Sequence[Any] = (), **look: Any) -> None:
        """Prints the table, and keeps it with the rows and the picture."""
        results = self.results
        results.columns = columns
        names, dtype = self.given_models or [self.source], self.asked.get("dtype", "auto")
        models = names if self.source == self.folder else [self.folder]
        results.settings = {"model": " ".join(one.name for one in names)}
        results.settings |= {"weights": ", ".join(dict.fromkeys(told(open_model_files(one), dtype) for one in models))}
        if origin := self._rounded[1:]:
            results.settings["made of"] = encoding(origin[0]) or "16 bits"
        results.settings |= {"GB": round(sum(map(size, models)) / 1e9, 2), "texts a stream": self.count}
        results.settings |= {"tokens": self.tokens, "streams": self.streams, "prompts": self._prompts_told()}
        results.notes += [*notes, *([DEVIATIONS] if results.name.startswith("paper/") else [])]
        if forms := [form for form in ("int8", "int4", "int3") if self.flatters([form])]:
            results.notes.append(
                f"flattered: drafts that read a copy in {' or '.join(forms)}, where tables do not say it"
            )
        if self._cut:
            results.notes.append(f"cut short by the time budget: {', '.join(self._cut)}")
        results.isa = self.given.isa
        print(results.text())
        results.write(self.out)
        if panels:
            plots.draw(self.out / f"{results.name}.png", results.rows, panels, **look)
        print(f"kept in {self.out / results.name}.md")

    def _prompts_told(self) -> str:
        """How texts of streams begin, and how they end, where the study asked for such."""
        if "prompts" not in self.__dict__:
            return "of its own"
        form = "by the model's chat template" if self.prompts.chat else "raw"
        shots = " behind the papers' examples (5 of GSM8K, 1 summary)" if self._shots else ""
        ends = "where the model ends them" if "eos" in self.__dict__ and self.eos else "at the last token"
        return f"{form}{shots}; texts end {ends}"


def _as_kind(name: str, model: Path, kind: str, given: argparse.Namespace) -> Path:
    """The file of that kind. SystemExit: there is nothing that makes it."""
    try:
        return Path(quantised(model, kind, given.python_llama))
    except Missing as error:
        raise SystemExit(f"[{name}] --kind {kind} needs llama.cpp, whose quantiser makes the file: {error}") from None


def _parser(
    about: str, texts: int, tokens: int, streams: Iterable[str], options: Mapping[str, Mapping[str, Any]]
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke test, of seconds, on the bundled model")
    help = f"folder, GGUF file, or one of {', '.join(MODELS)}; default: the toy model grown --grow times"
    parser.add_argument("--model", type=model, help=help)
    parser.add_argument("--dtype", help="of the weights in memory, as load() takes it; default: as in the files")
    parser.add_argument("--isa", help="instruction set: avx2, avx512, ...; default: the machine's best")
    parser.add_argument("--grow", type=int, default=8, help="width of the toy, times its own; default %(default)s")
    parser.add_argument("--texts", type=int, help=f"texts per stream; default {texts}")
    parser.add_argument("--tokens", type=int, help=f"new tokens per text; default {tokens}")
    parser.add_argument("--streams", nargs="+", help=f"kinds of prompts; default: {' '.join(streams)}")
    switch = {"action": argparse.BooleanOptionalAction, "default": None}
    parser.add_argument("--chat", **switch, help="prompts by the chat template; default: where there is one")
    parser.add_argument("--eos", **switch, help="texts end where the model ends them; default: with --chat")
    parser.add_argument(
        "--shots", **switch, help="the papers' examples before prompts; default: in paper.*, with --model"
    )
    parser.add_argument("--ways", nargs="+", metavar="WAY", help="some of the ways in the table; default: all")
    parser.add_argument("--minutes", type=float, help="time budget: parts are cut short, none is left out")
    parser.add_argument("--out", type=Path, help=f"folder of results; default {OUT}")
    parser.add_argument("--record", action="store_true", help=f"results go to {RECORD}, which READMEs cite")
    for name, settings in options.items():
        parser.add_argument(name, **settings)
    return parser
