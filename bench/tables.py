"""A table that prints as Markdown and reads well as plain text: columns padded, numbers to the right."""

from __future__ import annotations

from collections.abc import Sequence


class Table:
    def __init__(self, columns: Sequence[str]) -> None:
        self.rows: list[list[str]] = [list(columns)]

    def add(self, *cells: str) -> None:
        assert len(cells) == len(self.rows[0])
        self.rows.append(list(cells))

    def markdown(self) -> str:
        width = [max(len(row[i]) for row in self.rows) for i in range(len(self.rows[0]))]

        def line(row: Sequence[str]) -> str:
            cells = [cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, width))]
            return "| " + " | ".join(cells) + " |"

        rule = "|" + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(width)) + "|"
        return "\n".join([line(self.rows[0]), rule, *map(line, self.rows[1:])])
