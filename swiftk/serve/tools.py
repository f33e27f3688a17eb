"""Functions that a model may call: how models spell calls, and OpenAI's shape of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidArgument
from ..grammar import SPELLING


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a chat template has its model spell a call: a JSON object with a name and arguments, between two marks."""

    begin: str
    end: str
    arguments: str

    def calls(self, text: str) -> tuple[str, list[tuple[str, Any]]]:
        """(what is said beside calls, (name, arguments) of each). What does not parse is no call."""
        if not self.begin:
            found = self._call(text)
            return ("", [found]) if found else (text, [])
        said, calls = "", []
        while (at := text.find(self.begin)) >= 0:
            inner, closed, rest = text[at + len(self.begin) :].partition(self.end)
            found = self._call(inner)
            if found is None:
                break
            calls.append(found)
            said += text[:at]
            text = rest if closed else ""
        return ((said + text).strip() if calls else said + text), calls

    def held(self, text: str) -> int:
        """How much of a text under way may be part of a call, counted from its end: what a stream must not yet tell."""
        if not self.begin:
            return len(text) if text.lstrip().startswith("{") or not text.strip() else 0
        if (at := text.find(self.begin)) >= 0:
            return len(text) - at
        return next((n for n in range(min(len(self.begin), len(text)), 0, -1) if self.begin.startswith(text[-n:])), 0)

    def grammar(self, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """response_format of one call of one of the tools."""
        one = [
            {
                "type": "object",
                "properties": {
                    "name": {"const": tool["name"]},
                    self.arguments: tool.get("parameters") or {"type": "object"},
                },
                "required": ["name", self.arguments],
                "additionalProperties": False,
            }
            for tool in tools
        ]
        schema = one[0] if len(one) == 1 else {"anyOf": one}
        if not self.begin:
            return {"type": "json_schema", "schema": schema}
        schema = {**schema, "x-guidance": SPELLING}
        lark = f"start: {json.dumps(self.begin)} call {json.dumps(self.end)}\ncall: %json {json.dumps(schema)}\n"
        return {"type": "lark", "grammar": lark}

    def _call(self, text: str) -> tuple[str, Any] | None:
        try:
            found = json.loads(text)
        except ValueError:
            return None
        good = isinstance(found, dict) and isinstance(found.get("name"), str) and self.arguments in found
        return (found["name"], found[self.arguments]) if good else None


HERMES = Spelling("<tool_call>\n", "\n</tool_call>", "arguments")  # Qwen and others
LLAMA = Spelling("", "", "parameters")  # Llama 3.1 and later


def spelling_of(template: str | None) -> Spelling:
    """As the template says it."""
    return HERMES if "<tool_call>" in (template or "") else LLAMA


@dataclass(frozen=True, slots=True)
class Tools:
    """What a request offers, and whether it wants a call."""

    offered: tuple[Mapping[str, Any], ...]  # as the request has them, which is how templates read them
    spelling: Spelling
    wanted: tuple[Mapping[str, Any], ...] = ()  # functions, of which one must be called

    @classmethod
    def of(cls, offered: Sequence[Any] | None, choice: Any, template: str | None) -> Tools | None:
        """None where nothing may be called. Raises InvalidArgument for what is no function, or none of those."""
        functions = [_function(i, tool) for i, tool in enumerate(offered or ())]
        if not functions or choice == "none":
            return None
        names = [f["name"] for f in functions]
        wanted: Sequence[Mapping[str, Any]] = ()
        if choice == "required":
            wanted = functions
        elif isinstance(choice, Mapping):
            name = (choice.get("function") or choice).get("name")
            wanted = [f for f in functions if f["name"] == name]
            if not wanted:
                raise InvalidArgument(f"[chat] tool_choice names {name!r}, want one of {', '.join(map(repr, names))}")
        elif choice not in (None, "auto"):
            raise InvalidArgument(f"[chat] tool_choice is {choice!r}, want 'none', 'auto', 'required' or a function")
        return cls(tuple(offered or ()), spelling_of(template), tuple(wanted))


def _function(index: int, tool: Any) -> Mapping[str, Any]:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        want = '{"type": "function", "function": {"name": ...}}'
        raise InvalidArgument(f"[chat] tool {index} is {tool!r}, want {want}")
    return function


def told_calls(calls: Sequence[tuple[str, Any]], first: str) -> list[dict[str, Any]]:
    """As OpenAI has calls; first: what their ids begin with."""
    return [
        {
            "id": f"call-{first}-{i}",
            "type": "function",
            "function": {"name": name, "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments)},
        }
        for i, (name, arguments) in enumerate(calls)
    ]


def read_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """With arguments of earlier calls as objects, which templates expect."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return dict(message)
    read = []
    for call in calls:
        function = dict(call.get("function") or {})
        if isinstance(function.get("arguments"), str):
            try:
                function["arguments"] = json.loads(function["arguments"])
            except ValueError as error:
                name = function.get("name")
                raise InvalidArgument(f"[chat] a call of {name!r} has arguments that are no JSON: {error}") from None
        read.append({**call, "function": function})
    return {**message, "tool_calls": read}
