"""Training texts from source trees: their Python and their prose, as JSON lines.

    python -m swiftk.train.corpus TREE... --out DIR [--limit BYTES]

A tree is a folder, such as an unpacked source archive or a standard library. DIR/code.jsonl and DIR/prose.jsonl get one
file a line, in an order that depends on what they hold alone, so that both mix all trees. Comments that open a Python
file are left out: they are licences, which a model would learn to begin every answer with.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

CODE = {".py"}
PROSE = {".rst", ".txt", ".md"}
LONGEST = 200_000  # bytes of a file: longer ones are tables and generated code
LONGEST_LINE = 400
OPENING = re.compile(r"\A(?:[ \t]*(?:#.*)?\n)+")


def text_of(path: Path) -> str | None:
    """The file's text, or None where it is not one to learn from."""
    if path.is_symlink() or not 200 <= path.stat().st_size <= LONGEST:
        return None
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        return None
    lines = text.splitlines()
    numbers = sum(c.isdigit() for c in text) > len(text) / 5
    return None if numbers or max(map(len, lines), default=0) > LONGEST_LINE else text


def gathered(tree: Path, kinds: set[str], limit: int) -> Iterator[tuple[str, str]]:
    """(digest, text) of a tree's files in the order of their digests, up to `limit` bytes."""
    found = {}
    for path in tree.rglob("*"):
        if path.suffix in kinds and path.is_file() and (text := text_of(path)):
            found[hashlib.sha256(text.encode()).hexdigest()] = OPENING.sub("", text) if path.suffix in CODE else text
    for digest in sorted(found):
        limit -= len(found[digest])
        if limit < 0:
            return
        yield digest, found[digest]


def main(
    trees: Annotated[list[Path], typer.Argument(metavar="TREE...", help="folders", exists=True, file_okay=False)],
    out: Annotated[Path, typer.Option(help="folder to write code.jsonl and prose.jsonl to")],
    limit: Annotated[int, typer.Option(help="most bytes of each kind from one tree")] = 20_000_000,
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name, kinds in ("code", CODE), ("prose", PROSE):
        texts = {digest: text for tree in trees for digest, text in gathered(tree, kinds, limit)}
        with (out / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            for digest in sorted(texts):
                file.write(json.dumps({"text": texts[digest]}) + "\n")
        size = sum(map(len, texts.values()))
        typer.echo(f"{name}.jsonl: {len(texts)} files, {size / 1e6:.1f} M characters")


if __name__ == "__main__":
    typer.run(main)
