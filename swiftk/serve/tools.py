"""Functions that a model may call, in OpenAI's shape."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidArgument
from ..text.tokenizer import Tokenizer
from .calls import Call, Reader, Spelling, spelling_of

_NINE = re.compile("[A-Za-z0-9]{9}")


@dataclass(frozen=True, slots=True)
class Tools:
    """Tools that a request offers, and whether it wants a call."""

    offered: tuple[Mapping[str, Any], ...]  # as the request has them, which is how templates read them
    spelling: Spelling
    names: tuple[str, ...]
    wanted: tuple[Mapping[str, Any], ...] = ()  # functions, of which one must be called
    most: int | None = None  # calls in one answer

    @classmethod
    def of(
        cls, offered: Sequence[Any] | None, choice: Any, tokenizer: Tokenizer, parallel: bool | None = None
    ) -> Tools | None:
        """None where nothing may be called. Raises InvalidArgument for what is no function, or none of those, and where
        the chat template shows no tools to the model. parallel: OpenAI's parallel_tool_calls; False: one call."""
        functions = [_function(i, tool) for i, tool in enumerate(offered or ())]
        if not functions or choice == "none":
            if isinstance(choice, Mapping) or choice == "required":
                raise InvalidArgument(f"[chat] tool_choice is {choice!r}, and tools are missing or empty")
            return None
        if tokenizer.has_template and not tokenizer.takes_tools:
            raise InvalidArgument(
                f"[chat] tools: the chat template of {tokenizer.folder.name} has no place for them; want a model whose "
                "template has one, or no tools"
            )
        wanted = _wanted(functions, choice)
        names = tuple(f["name"] for f in functions)
        return cls(
            tuple(offered or ()), spelling_of(tokenizer.template(True)), names, wanted, 1 if parallel is False else None
        )

    def reader(self) -> Reader:
        """Reads the calls of one answer."""
        return Reader(self.spelling, self.names, self.most)


def _wanted(functions: Sequence[Mapping[str, Any]], choice: Any) -> tuple[Mapping[str, Any], ...]:
    """Functions of which one must be called."""
    if choice == "required":
        return tuple(functions)
    if isinstance(choice, Mapping):
        function = choice.get("function")
        name = (function if isinstance(function, Mapping) else choice).get("name")
        wanted = tuple(f for f in functions if f["name"] == name)
        if not wanted:
            names = ", ".join(repr(f["name"]) for f in functions)
            raise InvalidArgument(f"[chat] tool_choice names {name!r}, want one of {names}")
        return wanted
    if choice not in (None, "auto"):
        raise InvalidArgument(f"[chat] tool_choice is {choice!r}, want 'none', 'auto', 'required' or a function")
    return ()


def _function(index: int, tool: Any) -> Mapping[str, Any]:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        want = '{"type": "function", "function": {"name": ...}}'
        raise InvalidArgument(f"[chat] tool {index} is {tool!r}, want {want}")
    if not isinstance(function.get("parameters") or {}, Mapping):
        raise InvalidArgument(f"[chat] tool {index} has parameters {function['parameters']!r}, want a JSON schema")
    return function


def reported_calls(calls: Sequence[Call], answer: str, first: int) -> list[dict[str, Any]]:
    """As OpenAI has calls. answer: what tells their ids from those of others; first: the number of the first."""
    return [
        {
            "id": _nine(f"{answer}-{i}"),
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)},
        }
        for i, (name, arguments) in enumerate(calls, first)
    ]


def _nine(id: str) -> str:
    """Nine letters and digits, which is what Mistral's templates take as the id of a call: the id itself where it is
    such, else the same nine for the same id."""
    if _NINE.fullmatch(id):
        return id
    number, letters = int.from_bytes(hashlib.sha256(id.encode()).digest()[:8], "big"), ""
    for _ in range(9):
        number, i = divmod(number, 36)
        letters += "0123456789abcdefghijklmnopqrstuvwxyz"[i]
    return letters


def read_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """As templates expect it: null is absent, ids of calls have nine characters, arguments of earlier calls are objects
    ("" is none)."""
    read = {key: value for key, value in message.items() if value is not None}
    if isinstance(read.get("tool_call_id"), str):
        read["tool_call_id"] = _nine(read["tool_call_id"])
    if not read.get("tool_calls"):
        read.pop("tool_calls", None)
        return read
    calls = read["tool_calls"]
    if not isinstance(calls, list):
        raise InvalidArgument(f"[chat] tool_calls of a message is {calls!r}, want a list of calls")
    read["tool_calls"] = [_read_call(call) for call in calls]
    return read


def _read_call(call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        want = '{"id": ..., "type": "function", "function": {"name": ..., "arguments": ...}}'
        raise InvalidArgument(f"[chat] a call of a message is {call!r}, want {want}")
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError) as error:
            name = function["name"]
            raise InvalidArgument(f"[chat] a call of {name!r} has arguments that are no JSON: {error}") from None
    ids = {"id": _nine(call["id"])} if isinstance(call.get("id"), str) else {}
    return {"type": "function", **call, **ids, "function": {**function, "arguments": arguments}}
