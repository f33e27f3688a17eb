"""Literals of Lark grammars that spell added tokens become those tokens; all else stays as it was written."""

import pytest

from swiftk.lark import with_added_tokens

ADDED = {7: "<tool_call>", 8: "</tool_call>", 9: "[TOOL_CALLS]", 10: "<|im_end|>", 11: "[TOOL_CALLS]x"}
CASES = [
    ('start: "<tool_call>\\n" x "</tool_call>"', 'start: (<[7]> "\\n") x (<[8]>)'),
    ('start: "a[TOOL_CALLS]xb"+', 'start: ("a" <[11]> "b")+'),
    ('start: a\na: "<|im_end|>" | "b"', 'start: a\na: (<[10]>) | "b"'),
    ("start: <tool_call> <|im_end|> <other>", "start: <[7]> <[10]> <other>"),
    ('TAG: "<tool_call>"\nstart: TAG', None),
    ("start: /<tool_call>/", None),
    ('start: "<tool_call>"i', None),
    ('// "<tool_call>"\n# "<tool_call>"\nstart: "a"', None),
    ('start: %json {"const": "<tool_call>", "x": "}"} "b"', None),
    ('start: %json {"const": "a"} "<tool_call>"', 'start: %json {"const": "a"} (<[7]>)'),
    ('start: a\na[stop="<tool_call>"]: /.*/', None),
    ('%ignore "<tool_call>"\nstart: "a"', None),
    ('start: "a" // it\'s "b\nb: "<tool_call>"', 'start: "a" // it\'s "b\nb: (<[7]>)'),
    ('start: /"/ "<tool_call>"', 'start: /"/ (<[7]>)'),
    ('?start: "<tool_call>"', "?start: (<[7]>)"),
    ('start: "\\"<tool_call>"', 'start: ("\\"" <[7]>)'),
    ("", None),
]


@pytest.mark.parametrize(("grammar", "want"), CASES)
def test_what_becomes_a_token(grammar, want):
    assert with_added_tokens(grammar, ADDED) == (grammar if want is None else want)
    assert with_added_tokens(grammar, {}) == grammar
