"""Reads training texts: UTF-8 files, one document each, and JSON lines, one document a line; a piece at a time."""

from __future__ import annotations

import gzip
import json
import string
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from ..errors import InvalidArgument

_PIECE = 1 << 16  # characters read at a time


class Piece(NamedTuple):
    """Part of a document: whole lines, or a single long one."""

    text: str
    first: bool  # whether its document begins here
    last: bool


def pieces(path: Path, template: str) -> Iterator[Piece]:
    """The documents of a file, piece by piece. A file without any text is an InvalidArgument."""
    empty = True
    for piece in _of_json(path, template) if is_json(path) else _of_text(path):
        empty = False
        yield piece
    if empty:
        raise InvalidArgument(f"[data] {path} holds no text, want some")


def is_json(path: Path) -> bool:
    return ".jsonl" in path.suffixes[-2:]


def check(paths: Sequence[Path], template: str) -> None:
    """Names what is missing before anything long begins."""
    if not paths:
        raise InvalidArgument("[data] no file was given, want text files or JSON lines")
    for path in paths:
        if not path.is_file():
            found = "is a folder" if path.is_dir() else "does not exist"
            raise InvalidArgument(f"[data] {path} {found}, want a text file or JSON lines")
        if path.stat().st_size == 0:
            raise InvalidArgument(f"[data] {path} is empty, want text")
    _fields(template)


def template_of(field: str, template: str | None) -> str:
    r"""The one way to say it: "{text}". A shell gives \n as two characters."""
    if template is None:
        return "{" + field + "}"
    return template.replace("\\n", "\n").replace("\\t", "\t")


def _of_text(path: Path) -> Iterator[Piece]:
    """Cut at line ends, so that no word is cut; the first and last piece are known by looking one ahead."""
    with _opened(path) as file:
        held: str | None = None
        first = True
        while lines := file.readlines(_PIECE):
            if held is not None:
                yield Piece(held, first, False)
                first = False
            held = "".join(lines)
        if held is not None and (held.strip() or not first):
            yield Piece(held, first, True)


def _of_json(path: Path, template: str) -> Iterator[Piece]:
    names = _fields(template)
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip() and (text := _filled(path, number, line, template, names)).strip():
                yield Piece(text, True, True)


def _filled(path: Path, number: int, line: str, template: str, names: Iterable[str]) -> str:
    where = f"[data] {path} line {number}"
    try:
        value = json.loads(line)
    except ValueError as error:
        raise InvalidArgument(f"{where} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidArgument(f"{where} is {type(value).__name__}, want an object")
    for name in names:
        if not isinstance(value.get(name), str):
            found = f"field {name!r} of type {type(value[name]).__name__}" if name in value else f"no field {name!r}"
            has = ", ".join(k for k, v in value.items() if isinstance(v, str)) or "none"
            raise InvalidArgument(f"{where} has {found}, want text; its fields with text: {has}")
    return template.format_map(value)


def _fields(template: str) -> list[str]:
    """Names in braces; an attribute, index or conversion is refused, as templates may come from elsewhere."""
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError as error:
        raise InvalidArgument(f"[data] --template {template!r} does not parse: {error}") from None
    names = [name for _, name, _, _ in parsed if name is not None]
    plain = all(name and not set(name) & set(".[]") for name in names)
    if not names or not plain or any(form or conversion for _, _, form, conversion in parsed):
        raise InvalidArgument(f"[data] --template is {template!r}, want text with names of fields in braces")
    return names


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    """Plain or gzip; what goes wrong while it is read names the file."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            yield file
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"[data] {path} is not UTF-8: {error.reason}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidArgument(f"[data] {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
