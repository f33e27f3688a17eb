"""How models spell calls of functions: a table of spellings, and a reader that finds calls in a text as it comes.

A mark is followed by a JSON object with a name and arguments, by several such objects or a list of them, or by a name
and the object of its arguments. Llama's models write no mark: an answer that begins like a call of an offered function
is one, also as `[name(argument=1)]`. Between calls there may be white space, `;` or `,`. A call that does not parse is
text.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..text.grammar import SPELLING
from .nesting import Nesting, balanced

Call = tuple[str, dict[str, Any]]  # name and arguments
_JOINERS = " \t\r\n;,"
_KEYS = ("name", "arguments", "parameters", "type", "function", "id")  # of an object that is a call
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NAME = re.compile(r"\s*([^\s\[\]{}<>]+)\s*((?:\[[A-Z_]+\]\s*\w*\s*)*)(?=\{)")
_NAME_UNDER_WAY = re.compile(r"\s*[^\s\[\]{}<>]*\s*(?:\[[A-Z_]+\]\s*\w*\s*)*(?:\[[A-Z_]*)?")


@dataclass(frozen=True, slots=True)
class Spelling:
    """One row of the table."""

    recognised_by: str  # the chat template of a model that spells calls so has this text
    begin: str  # mark before calls
    end: str = ""  # mark after them; models may leave it out
    before: str = ""  # between `begin` and an object, as the template writes earlier calls
    after: str = ""  # between an object and `end`
    arguments: str = "arguments"
    bare: bool = False  # the template writes no marks, and answers may begin with calls that have none
    between: tuple[str, ...] = ()  # marks between a name and the object of its arguments, where these are apart

    @property
    def marks(self) -> tuple[str, ...]:
        """Special tokens among these must not be left out of the text."""
        return tuple(mark for mark in (self.begin, self.end, *self.between) if mark)

    def grammar(self, functions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """response_format of one call of one of the functions."""
        names = [function["name"] for function in functions]
        schemas = [function.get("parameters") or {"type": "object"} for function in functions]
        leads = [self.begin + self.before] * len(names)
        if self.between:
            leads = [f"{lead}{name}{self.between[-1]}" for lead, name in zip(leads, names, strict=True)]
        else:
            schemas = [self._whole(name, schema) for name, schema in zip(names, schemas, strict=True)]
        if self.bare:
            return {"type": "json_schema", "schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}
        tail = json.dumps(self.after + self.end) if self.after + self.end else ""
        calls = [f"{json.dumps(lead)} call{i} {tail}" for i, lead in enumerate(leads)]
        rules = [f"call{i}: %json {json.dumps({**s, 'x-guidance': SPELLING})}" for i, s in enumerate(schemas)]
        return {"type": "lark", "grammar": "\n".join(["start: " + " | ".join(calls), *rules, ""])}

    def _whole(self, name: str, schema: Any) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {"name": {"const": name}, self.arguments: schema},
            "required": ["name", self.arguments],
            "additionalProperties": False,
        }


MISTRAL_ARGS = Spelling("[ARGS]", "[TOOL_CALLS]", between=("[CALL_ID]", "[ARGS]"))  # since version 11 of its tokenizer
MISTRAL = Spelling("[TOOL_CALLS]", "[TOOL_CALLS]", before="[", after="]")
HERMES = Spelling("<tool_call>", "<tool_call>", "</tool_call>", "\n", "\n")  # Qwen and others
PHI = Spelling("<|tool_call|>", "<|tool_call|>", "<|/tool_call|>", "[", "]")
LLAMA = Spelling("", "<|python_tag|>", arguments="parameters", bare=True)  # 3.1 and later
SPELLINGS = (MISTRAL_ARGS, MISTRAL, HERMES, PHI, LLAMA)  # the first that a template has


def spelling_of(template: str | None) -> Spelling:
    """As the template says it; Llama's where it says nothing."""
    return next(one for one in SPELLINGS if one.recognised_by in (template or ""))


class Reader:
    """Parts one answer, as it comes, into what is said and what is called. It holds back what may yet be a call, and
    white space, which is dropped around calls."""

    def __init__(self, spelling: Spelling, names: Collection[str], most: int | None = None) -> None:
        """names: of offered functions; a call without a mark is of one of them. most: calls; others are dropped."""
        self._spelling, self._names, self._most = spelling, frozenset(names), most
        self._held = ""
        self._under_way: Nesting | None = None  # of what was held back and has not ended
        self._bare = spelling.bare  # nothing was said yet: a call without a mark may begin
        self._after_call = False
        self.count = 0  # calls

    def push(self, text: str, ended: bool = False) -> tuple[str, list[Call]]:
        """(what is said, calls that are complete)."""
        self._held += text
        if self._under_way and not ended:
            self._under_way.follow(self._held)
            if self._under_way.deep:
                return "", []
        self._under_way = None
        said, calls = "", []
        while (at := self._start(ended)) is not None:
            marked = self._held.startswith(self._spelling.begin, at)
            found = _calls_at(self._spelling, self._held[at:], None if marked else self._names, ended)
            if isinstance(found, Open) and not ended:
                call = len(self._held) - at
                said += self._say(at, hold_space=True)
                self._follow(len(self._held) - call, found.bracket, marked)
                return said, self._few(calls)
            if isinstance(found, tuple):
                said += self._say(at, hold_space=True)
                self._held = self._held.lstrip()[found[0] :]
                calls += found[1]
                self._after_call = True
            else:
                self._bare = False
                said += self._say(at + (len(self._spelling.begin) if marked else 0))
        return said + self._say(len(self._held) - self._part_of_a_mark(ended), not ended), self._few(calls)

    def _follow(self, at: int, bracket: int | None, marked: bool) -> None:
        """A call under way need not be looked at before its bracket is closed, or, where it has no mark, before a key
        or a name of it comes."""
        if bracket is not None:
            shallow = 0 if marked else 2 if self._held[at + bracket] == "[" else 1
            self._under_way = Nesting(at + bracket, shallow)
            self._under_way.follow(self._held)

    def _start(self, ended: bool) -> int | None:
        """The place at which the next call may begin."""
        if self._bare:
            at = len(self._held) - len(self._held.lstrip(_JOINERS if self._after_call else None))
            if self._held[at : at + 1] in ("{", "["):
                return at
        at = self._held.find(self._spelling.begin)
        return at if at >= 0 else None

    def _part_of_a_mark(self, ended: bool) -> int:
        """Characters at the end that may begin a mark."""
        begin, text = self._spelling.begin, self._held
        lengths = range(0 if ended else min(len(begin) - 1, len(text)), 0, -1)
        return next((n for n in lengths if text.endswith(begin[:n])), 0)

    def _say(self, n: int, hold_space: bool = False) -> str:
        """Releases so many characters; white space at their end only when it is known what follows."""
        text = self._held[:n]
        if self._after_call:
            text = text.lstrip(_JOINERS)
        if hold_space:
            text = text.rstrip()
            self._held = self._held[len(self._held[:n].rstrip()) :]
        else:
            self._held = self._held[n:]
        if text.strip():
            self._bare = self._after_call = False
        return text

    def _few(self, calls: list[Call]) -> list[Call]:
        few = calls if self._most is None else calls[: max(0, self._most - self.count)]
        self.count += len(few)
        return few


@dataclass(frozen=True, slots=True)
class Open:
    """There may yet be calls."""

    bracket: int | None = None  # which has not been closed


Found = tuple[int, list[Call]] | Open | None


def _calls_at(spelling: Spelling, text: str, names: frozenset[str] | None, ended: bool) -> Found:
    """(characters, calls) at the start of a text; None: there are none. names: of a text without a mark; else None."""
    at, calls = len(spelling.begin) if names is None else 0, []
    while True:
        start = len(text) - len(text[at:].lstrip(_JOINERS if calls else None))
        found = _value(spelling, text, start, names) if not calls or text[start : start + 1] in ("{", "[") else None
        if not isinstance(found, tuple):
            break
        at = found[0]
        calls += found[1]
        if names is not None:
            return at, calls
    if not calls:
        return found
    if spelling.end and text.startswith(spelling.end, start):
        return start + len(spelling.end), calls
    if spelling.end.startswith(text[start:]):  # of the mark at the end, or of nothing
        found = Open()
    return found if isinstance(found, Open) and not ended else (at, calls)


def _value(spelling: Spelling, text: str, at: int, names: frozenset[str] | None) -> Found:
    """As _calls_at(), of one object, list, or name with arguments."""
    if at == len(text):
        return Open()
    name = None
    if text[at] not in "{[":
        if names is not None or not spelling.between:
            return None
        if not (name := _NAME.match(text, at)):
            return Open() if _NAME_UNDER_WAY.fullmatch(text, at) else None
        at = name.end()
    end = balanced(text, at)
    if end is None:
        return Open(at) if names is None or _may_be_call(text[at:], names) else None
    try:
        found = json.loads(text[at:end], strict=False)
    except (ValueError, RecursionError):
        calls = _pythonic(text[at:end], names) if names is not None else None
    else:
        calls = _calls({"name": name[1], "arguments": found} if name else found, names)
    return (end, calls) if calls else None


def _calls(found: Any, names: frozenset[str] | None) -> list[Call] | None:
    """None: it is no call, or some of a list are none."""
    calls = [_call(one, names) for one in (found if isinstance(found, list) else [found])]
    return None if None in calls else [call for call in calls if call]


def _call(found: Any, names: frozenset[str] | None) -> Call | None:
    if not isinstance(found, dict) or (names is not None and not found.keys() <= set(_KEYS)):
        return None
    inner = found["function"] if isinstance(found.get("function"), dict) else found
    name = inner.get("name", inner.get("function"))
    arguments = next((inner[key] for key in ("arguments", "parameters") if inner.get(key) not in (None, "")), {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments, strict=False)
        except (ValueError, RecursionError):
            return None
    known = isinstance(name, str) and (names is None or name in names)
    return (name, arguments) if known and isinstance(arguments, dict) else None


def _pythonic(text: str, names: frozenset[str]) -> list[Call] | None:
    """[f(a=1), g()], as Llama 3.2 and 4 are asked to write them."""
    try:
        found = ast.parse(text, mode="eval").body
        calls = [
            (ast.unparse(one.func), {str(word.arg): ast.literal_eval(word.value) for word in one.keywords})
            for one in getattr(found, "elts", ())
            if isinstance(one, ast.Call) and not one.args and all(word.arg for word in one.keywords)
        ]
        json.dumps([arguments for _, arguments in calls])
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    whole = isinstance(found, ast.List) and len(calls) == len(found.elts)
    return calls if whole and all(name in names for name, _ in calls) else None


def _may_be_call(text: str, names: frozenset[str]) -> bool:
    """Whether an unfinished object or list without a mark may become calls of these names."""
    if text[0] == "[":
        inner = text[1:].lstrip()
        if inner[:1] in ("", "{"):
            return not inner or balanced(inner, 0) is not None or _may_be_call(inner, names)
        name, opened, _ = inner.partition("(")
        return name in names if opened else any(one.startswith(name) for one in names)
    at = 1
    while True:
        at = _after_space(text, at, ",")
        key = _string_at(text, at)
        if not isinstance(key, tuple):
            return _begins(text[at:], _KEYS)
        if key[0] not in _KEYS:
            return False
        at = _after_space(text, key[1])
        if text[at : at + 1] not in ("", ":"):
            return False
        at = _after_space(text, at + 1)
        value = _string_at(text, at)
        named = key[0] in ("name", "function") and text[at : at + 1] != "{"
        if named and not (value[0] in names if value else _begins(text[at:], names)):
            return False
        end = value[1] if value else _end_of_value(text, at)
        if end is None:
            return True
        at = end


def _after_space(text: str, at: int, more: str = "") -> int:
    return len(text) - len(text[at:].lstrip(" \t\r\n" + more))


def _string_at(text: str, at: int) -> tuple[str, int] | None:
    """(the string, where it ends); None where none is whole."""
    found = _STRING.match(text, at)
    return (found[0][1:-1], found.end()) if found else None


def _begins(text: str, strings: Collection[str]) -> bool:
    """Whether a text is the beginning of one of these, quoted."""
    return any(f'"{one}"'.startswith(text) for one in strings)


def _end_of_value(text: str, at: int) -> int | None:
    if text[at : at + 1] in ("{", "["):
        return balanced(text, at)
    end = next((i for i in range(at, len(text)) if text[i] in ",}"), None)
    return None if text[at : at + 1] == '"' else end
