"""Collects the figures of one benchmark file; prints one table at the end of the run and keeps it in results/."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from machine import Machine
from tables import Table

_RESULTS = Path(__file__).with_name("results")


class Report:
    def __init__(self, name: str, columns: list[str], machine: Machine) -> None:
        self.name, self.machine = name, machine
        self.table = Table(columns)
        self.figures: list[dict[str, Any]] = []
        self.notes: list[str] = []

    def add(self, cells: list[str], figures: dict[str, Any]) -> None:
        self.table.add(*cells)
        self.figures.append(figures)

    def text(self) -> str:
        notes = "\n".join(f"- {note}" for note in (self.machine.describe(), *self.notes))
        return f"{self.table.markdown()}\n\n{notes}\n"

    def write(self) -> None:
        _RESULTS.mkdir(exist_ok=True)
        facts = {"machine": self.machine.facts(), "notes": self.notes, "figures": self.figures}
        (_RESULTS / f"{self.name}.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        (_RESULTS / f"{self.name}.md").write_text(self.text(), encoding="utf-8")
