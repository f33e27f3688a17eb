"""The server's README has every field of a request, and what becomes of it."""

import re
from pathlib import Path

import pytest

from swiftk.serve.protocol import ChatRequest, CompletionRequest
from swiftk.serve.unsupported import PASSED_OVER, REFUSED

README = (Path(__file__).resolve().parents[2] / "swiftk" / "serve" / "README.md").read_text()
FIELDS = README.partition("## Fields of requests")[2].partition("## Errors")[0]


@pytest.mark.parametrize("kind, endpoint", [(ChatRequest, "chat"), (CompletionRequest, "completions")])
def test_every_field_of_an_endpoint_is_in_the_table(kind, endpoint):
    rows = re.findall(r"^\| (`.*?) \| (both|chat|completions) \|", FIELDS, re.M)
    named = [name for names, where in rows if where in ("both", endpoint) for name in re.findall(r"`(\w+)`", names)]
    assert sorted(named) == sorted(kind.model_fields)


@pytest.mark.parametrize("word, names", [("Passed over", PASSED_OVER), ("Refused", REFUSED)])
def test_every_other_field_is_named(word, names):
    paragraph = FIELDS.partition(f"**{word}**")[2].partition("\n\n")[0]
    assert re.findall(r"`(\w+)`", paragraph) == sorted(names)
