"""Tables of a run, loss.csv and valid.csv: a row is there before the checkpoint that follows it, and never twice."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path

from .files import save_error, whole


class Log:
    """Appends rows whose first column is the step. Numbers are written so that they read back as the same float."""

    def __init__(self, path: Path, columns: Sequence[str], step: int) -> None:
        """A file of an earlier process keeps its rows up to `step`: what came later will be run again."""
        self.path = path
        rows = [row for row in read(path) if int(row[0]) <= step] if step else []
        with whole(path) as partial, open(partial, "w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([columns, *rows])
        self._file = open(path, "a", encoding="utf-8", newline="")  # noqa: SIM115  for as long as the run

    def add(self, step: int, values: Sequence[float | None]) -> None:
        """None leaves a cell empty."""
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow([step, *("" if v is None else repr(float(v)) for v in values)])
        try:
            self._file.write(line.getvalue())
            self._file.flush()
        except OSError as error:
            raise save_error(self.path, error) from error

    def sync(self) -> None:
        """To the disk itself."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def read(path: Path) -> list[list[str]]:
    """The whole rows of a table, without its header; one that a kill cut short is no row."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    rows = list(csv.reader(io.StringIO(text[: text.rfind("\n") + 1])))
    return [row for row in rows[1:] if len(row) == len(rows[0]) and row[0].isdigit()]
