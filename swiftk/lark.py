"""Added tokens in Lark grammars: a quoted literal that spells one is that token, because a model writes it as nothing
else. In terminals (upper case) and regexes, where llguidance has no tokens, literals stay text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_PARTS = re.compile(
    rf"""
      (?P<comment> //[^\n]* | \#[^\n]* )
    | (?P<object> %(?:json|regex|llguidance)\s*(?={{) )
    | (?P<head> ^[ \t]*[?!]?(?P<name>[A-Za-z_][\w-]*)(?:\.-?\d+)?(?:\s*\[(?:[^\]"]|{_STRING})*\])?(?:::\w+)?\s*: )
    | (?P<directive> ^[ \t]*%\w+ )
    | (?P<literal> {_STRING}(?![i\w]) )
    | (?P<other> {_STRING} | /(?![*/])(?:[^/\\\n]|\\.)+/\w* )
    | (?P<token> <[^<>\s"]+> )
    """,
    re.VERBOSE | re.MULTILINE,
)


def with_added_tokens(grammar: str, added: Mapping[int, str]) -> str:
    """added: ids and texts of the tokens. `<text>` names one as well, special or not."""
    ids = {text: id for id, text in added.items()}
    if not ids:
        return grammar
    spelt = re.compile(f"({'|'.join(map(re.escape, sorted(ids, key=len, reverse=True)))})")
    out, at, in_rule = [], 0, False
    while found := _PARTS.search(grammar, at):
        start, end, text = found.start(), found.end(), found[0]
        if found["object"]:
            end = _after_json(grammar, end)
            text = grammar[start:end]
        elif found["head"]:
            in_rule = not found["name"].isupper()
        elif found["directive"]:
            in_rule = False
        elif found["literal"] and in_rule:
            text = _as_tokens(text, spelt, ids)
        elif found["token"] and text in ids:
            text = f"<[{ids[text]}]>"
        out += [grammar[at:start], text]
        at = end
    return "".join([*out, grammar[at:]])


def _as_tokens(literal: str, spelt: re.Pattern[str], ids: Mapping[str, int]) -> str:
    try:
        parts = spelt.split(json.loads(literal))
    except ValueError:  # an escape that JSON does not have
        return literal
    if len(parts) == 1:
        return literal
    return f"({' '.join(f'<[{ids[part]}]>' if part in ids else json.dumps(part) for part in parts if part)})"


def _after_json(grammar: str, at: int) -> int:
    try:
        return json.JSONDecoder().raw_decode(grammar, at)[1]
    except ValueError:  # llguidance says what is wrong with it
        return at
