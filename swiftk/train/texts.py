"""Reads training texts: UTF-8 files, one document each, and JSON lines, one document a line; a piece at a time.

A JSON line holds a `text`, a chat (`messages`), or a `prompt` and its `completion`, as TRL's data sets do. Of the last
two only answers are learned, as Mixture of Attentions has it (arXiv 2410.03804, section 3.3).
"""

from __future__ import annotations

import gzip
import json
import string
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple

from ..errors import InvalidArgument

_PIECE = 1 << 16  # characters read at a time


Messages = Sequence[Mapping[str, Any]]


class Part(NamedTuple):
    text: str
    learned: bool = True  # whether it is what a model should say


class Piece(NamedTuple):
    """Part of a document: whole lines, or a single long one; a chat, or a prompt and its answer, is one piece."""

    parts: tuple[Part, ...]
    first: bool  # whether its document begins here
    last: bool
    framed: bool = False  # whether it has the special tokens around a document already

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)


Render = Callable[[Messages], tuple[Part, ...]]


def pieces(path: Path, template: str | None, render: Render | None = None) -> Iterator[Piece]:
    """The documents of a file, piece by piece. template: the text of a JSON line, None: in the fields that it has;
    render: how a chat is written. A file without any text is an InvalidArgument."""
    empty = True
    for piece in _of_json(path, template, render) if is_json(path) else _of_text(path):
        empty = False
        yield piece
    if empty:
        raise InvalidArgument(f"[data] {path} holds no text, want some")


def prompts(path: Path, template: str | None) -> Iterator[str | list[Mapping[str, Any]]]:
    """What a model is to answer: texts, and chats up to their last question."""
    if not is_json(path):
        with _opened(path) as file:
            yield file.read()
        return
    for where, value in _objects(path):
        if template is None and "messages" in value:
            said = _messages(where, value)
            while said and said[-1]["role"] == "assistant":
                said.pop()
            if not said:
                raise InvalidArgument(f"{where} has no message but the assistant's, want a question")
            yield said
        else:
            yield _filled(where, value, template or ("{prompt}" if "prompt" in value else "{text}"))


def is_json(path: Path) -> bool:
    return ".jsonl" in path.suffixes[-2:]


def check(paths: Sequence[Path], template: str | None) -> None:
    """Names what is missing before anything long begins."""
    if not paths:
        raise InvalidArgument("[data] no file was given, want text files or JSON lines")
    for path in paths:
        if not path.is_file():
            found = "is a folder" if path.is_dir() else "does not exist"
            raise InvalidArgument(f"[data] {path} {found}, want a text file or JSON lines")
        if path.stat().st_size == 0:
            raise InvalidArgument(f"[data] {path} is empty, want text")
    if template is not None:
        _fields(template)


def template_of(field: str | None, template: str | None) -> str | None:
    r"""The one way to say it: "{text}"; None: neither was given. A shell gives \n as two characters."""
    if template is None:
        return None if field is None else "{" + field + "}"
    return template.replace("\\n", "\n").replace("\\t", "\t")


def _of_text(path: Path) -> Iterator[Piece]:
    """Cut at line ends, so that no word is cut; the first and last piece are known by looking one ahead."""
    with _opened(path) as file:
        held: str | None = None
        first = True
        while lines := file.readlines(_PIECE):
            if held is not None:
                yield Piece((Part(held),), first, False)
                first = False
            held = "".join(lines)
        if held is not None and (held.strip() or not first):
            yield Piece((Part(held),), first, True)


def _of_json(path: Path, template: str | None, render: Render | None) -> Iterator[Piece]:
    for where, value in _objects(path):
        if template is None and "messages" in value:
            yield Piece(_chat(where, _messages(where, value), render), True, True, framed=True)
        elif template is None and "prompt" in value:
            asked, said = (_filled(where, value, name) for name in ("{prompt}", "{completion}"))
            yield Piece((Part(asked, False), Part(said)), True, True)
        elif (text := _filled(where, value, template or "{text}")).strip():
            yield Piece((Part(text),), True, True)


def _objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Where each line stands, and what it holds."""
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            where = f"[data] {path} line {number}"
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except ValueError as error:
                raise InvalidArgument(f"{where} is not JSON: {error}") from None
            if not isinstance(value, dict):
                raise InvalidArgument(f"{where} is {type(value).__name__}, want an object")
            yield where, value


def _filled(where: str, value: Mapping[str, Any], template: str) -> str:
    for name in _fields(template):
        if not isinstance(value.get(name), str):
            found = f"field {name!r} of type {type(value[name]).__name__}" if name in value else f"no field {name!r}"
            has = ", ".join(k for k, v in value.items() if isinstance(v, str)) or "none"
            raise InvalidArgument(f"{where} has {found}, want text; its fields with text: {has}")
    return template.format_map(value)


def _messages(where: str, value: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = value["messages"]
    if isinstance(found, list) and all(
        isinstance(message, dict) and isinstance(message.get("role"), str) and isinstance(message.get("content"), str)
        for message in found
    ):
        return list(found)
    raise InvalidArgument(f"{where} has messages that are no list of objects, each with the texts role and content")


def _chat(where: str, messages: Messages, render: Render | None) -> tuple[Part, ...]:
    if render is None:
        raise InvalidArgument(f"{where} has messages, and there is no model whose chat template writes them; want text")
    try:
        parts = render(messages)
    except InvalidArgument as error:
        raise InvalidArgument(f"{where}: {error}") from None
    if not any(part.learned for part in parts):
        raise InvalidArgument(f"{where} has no message of the assistant, want one to learn from")
    return parts


@cache
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
