"""Added tokens in Lark grammars. A model writes what an added token spells as that token, so a quoted literal has to be
it: special tokens are put in by their ids. All others are text to llguidance, and are chosen where nothing else may
come. In terminals (upper case) and regexes, where llguidance has no tokens, literals stay as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping

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
_BY_ID = re.compile(r"<\[([^\]]*)\]>")


def with_added_tokens(grammar: str, special: Mapping[int, str], others: Mapping[int, str]) -> str:
    """Ids and texts of the added tokens. `<text>` without quotes, or an id, names any of them, special or not."""
    by_name = {text: f"<[{id}]>" for id, text in special.items()} | {text: json.dumps(text) for text in others.values()}
    by_id = {f"<[{id}]>": json.dumps(text) for id, text in others.items()}
    spelt = re.compile(f"({'|'.join(map(re.escape, sorted(special.values(), key=len, reverse=True))) or '(?!)'})")
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
            text = _as_tokens(text, spelt, by_name)
        elif found["token"]:
            text = by_name.get(text, by_id.get(text, text))
        out += [grammar[at:start], text]
        at = end
    return "".join([*out, grammar[at:]])


def names_plain_tokens(grammar: str, special: Collection[int]) -> bool:
    """Whether it names tokens by ids that are not all special."""
    return any(not (one.isdigit() and int(one) in special) for one in _BY_ID.findall(grammar))


def _as_tokens(literal: str, spelt: re.Pattern[str], by_name: Mapping[str, str]) -> str:
    try:
        parts = spelt.split(json.loads(literal))
    except ValueError:  # an escape that JSON does not have
        return literal
    if len(parts) == 1:
        return literal
    return f"({' '.join(by_name.get(part) or json.dumps(part) for part in parts if part)})"


def _after_json(grammar: str, at: int) -> int:
    try:
        return json.JSONDecoder().raw_decode(grammar, at)[1]
    except ValueError:  # llguidance says what is wrong with it
        return at
