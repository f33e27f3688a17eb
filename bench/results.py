"""Results of every study: one schema, one writer. Rows are JSON, and the Markdown table is made of them."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any

from .machine import build, described, probe
from .tables import Table

RECORD = Path(__file__).with_name("results")  # what READMEs cite, under version control
OUT = Path(__file__).with_name("out")  # of everyday runs; git ignores it
SMOKE = "a smoke test, on a small model and few tokens: the figures mean nothing"


def folder_of(record: bool, out: Path | None, smoke: bool) -> Path:
    """Where results go. ValueError where the options contradict each other."""
    if record and smoke:
        raise ValueError("--record keeps results that READMEs cite; a smoke test's (--quick, another --grow) are none")
    if record and out:
        raise ValueError(f"--record writes to {RECORD}; leave --out away")
    return RECORD if record else out or OUT


def place(folder: Path, model: Path | None, *how: str | None) -> Path:
    """Where below it results of another model, or of one that is measured in another way, go; how: the kind of its
    file, its weights, an instruction set."""
    return folder / "-".join(filter(None, (model and model.resolve().name.removesuffix(".gguf"), *how)))


@dataclass
class Results:
    """What a study found: plain values by name in each row, those that its table and its pictures need."""

    name: str  # of the study: its path below a folder of results
    about: str  # the question that it answers
    columns: Mapping[str, str]  # of the table: "key" or "key:format" of a row, by title
    command: str = ""  # "": the one that runs now
    settings: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    smoke: bool = False  # it ran only to see whether it runs
    isa: str | None = None  # the instruction set that was asked for

    @cached_property
    def machine(self) -> dict[str, Any]:
        return probe(isa=self.isa)

    def table(self) -> str:
        table = Table(list(self.columns))
        for row in self.rows:
            table.add(*(_cell(row, how) for how in self.columns.values()))
        return table.markdown()

    def text(self) -> str:
        """The table, and what there is to know about it."""
        settings = ", ".join(f"{name} {_words(value)}" for name, value in self.settings.items())
        notes = [SMOKE if self.smoke else "", self.about, described(self.machine), settings, *self.notes]
        return f"{self.table()}\n\n" + "\n".join(f"- {note}" for note in notes if note) + "\n"

    def write(self, folder: Path) -> None:
        """NAME.json and NAME.md in the folder, each whole or not at all."""
        now = datetime.now(timezone.utc).isoformat(timespec="minutes")
        command = self.command or f"python -m bench.{self.name.replace('/', '.')} {shlex.join(sys.argv[1:])}".rstrip()
        head = {"study": self.name, "about": self.about, "smoke_test": self.smoke, "build": build()}
        head |= {"machine": _short(self.machine)}
        head |= {"command": command, "date": now, "settings": self.settings, "notes": self.notes}
        rows = ",\n".join(f"  {json.dumps(_short(row))}" for row in self.rows)
        facts = json.dumps(head, indent=1).removesuffix("\n}") + f',\n "rows": [\n{rows}\n ]\n}}\n'
        made = f"- build {head['build']}, {now}: `{command}`\n"
        path = folder / self.name
        path.parent.mkdir(parents=True, exist_ok=True)
        for suffix, text in ((".json", facts), (".md", self.text() + made)):
            partial = path.with_name(f"{path.name}{suffix}.{os.getpid()}")
            partial.write_text(text, encoding="utf-8")
            partial.replace(path.with_name(path.name + suffix))


def is_current(name: str, folder: Path, smoke: bool) -> bool:
    """Whether the study's results are of the build that would be measured now. smoke: a smoke test's are enough."""
    path = folder / f"{name}.json"
    if not path.is_file():
        return False
    found = json.loads(path.read_text(encoding="utf-8"))
    return found.get("build") == build() and (smoke or not found.get("smoke_test"))


def _cell(row: Mapping[str, Any], how: str) -> str:
    key, _, spec = how.partition(":")
    value = row.get(key)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return format(value, "" if isinstance(value, str) else spec)


def _words(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _short(value: Any) -> Any:
    """Five significant digits of every number."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, Mapping):
        return {key: _short(one) for key, one in value.items()}
    return [_short(one) for one in value] if isinstance(value, (list, tuple)) else value
