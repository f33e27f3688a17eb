"""Literals of Lark grammars that spell special tokens become those tokens; all else stays as it was written."""

import pytest

from swiftk.text.lark import names_plain_tokens, with_added_tokens

SPECIAL = {9: "[TOOL_CALLS]", 10: "<|im_end|>", 11: "[TOOL_CALLS]x"}
OTHERS = {7: "<tool_call>", 8: "</tool_call>"}
CASES = [
    ('start: "[TOOL_CALLS]\\n" x "<|im_end|>"', 'start: (<[9]> "\\n") x (<[10]>)'),
    ('start: "a[TOOL_CALLS]xb"+', 'start: ("a" <[11]> "b")+'),
    ('start: a\na: "<|im_end|>" | "b"', 'start: a\na: (<[10]>) | "b"'),
    ('start: "<tool_call>\\n" x', None),
    ("start: <tool_call> <|im_end|> <other>", 'start: "<tool_call>" <[10]> <other>'),
    ("start: <[8]> <[10]> <[12]> <[7-8]>", 'start: "</tool_call>" <[10]> <[12]> <[7-8]>'),
    ('TAG: "<|im_end|>"\nstart: TAG', None),
    ("start: /<|im_end|>/", None),
    ('start: "<|im_end|>"i', None),
    ('// "<|im_end|>"\n# "<|im_end|>"\nstart: "a"', None),
    ('start: %json {"const": "<|im_end|>", "x": "}"} "b"', None),
    ('start: %json {"const": "a"} "<|im_end|>"', 'start: %json {"const": "a"} (<[10]>)'),
    ('start: a\na[stop="<|im_end|>"]: /.*/', None),
    ('%ignore "<|im_end|>"\nstart: "a"', None),
    ('start: "a" // it\'s "b\nb: "<|im_end|>"', 'start: "a" // it\'s "b\nb: (<[10]>)'),
    ('start: /"/ "<|im_end|>"', 'start: /"/ (<[10]>)'),
    ('?start: "<|im_end|>"', "?start: (<[10]>)"),
    ('start: "\\"<|im_end|>"', 'start: ("\\"" <[10]>)'),
    ('start: "\\q<|im_end|>"', None),
    ("", None),
]


@pytest.mark.parametrize(("grammar", "want"), CASES)
def test_what_becomes_a_token(grammar, want):
    assert with_added_tokens(grammar, SPECIAL, OTHERS) == (grammar if want is None else want)
    assert with_added_tokens(grammar, {}, {}) == grammar


def test_tokens_by_their_ids():
    assert not names_plain_tokens('start: "a" <[9]> <[10]>', SPECIAL)
    for grammar in ("start: <[8]>", "start: <[9-10]>", "start: <[*]>", "start: <[^9]>"):
        assert names_plain_tokens(grammar, SPECIAL)
