"""What a text may ask for beyond its tokens, on a GPU: a grammar, and what the model says of the prompt."""

import json
from dataclasses import replace

import pytest

import swiftk
from gpu import clean_fixture, gpu_fixture  # noqa: F401
from swiftk.testing import make_tiny

pytestmark = pytest.mark.usefixtures("clean")

SCHEMA = {
    "type": "object",
    "properties": {"a_name": {"type": "string", "maxLength": 4}, "n": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["a_name", "n"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("texts") / "tiny", "llama3", "float32", layers=4)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_grammars_hold(folder, temperature):
    pytest.importorskip("llguidance")
    options = {"temperature": temperature, "seed": 4, "max_new_tokens": 70, "logprobs": 2}
    options["response_format"] = {"type": "json_schema", "schema": SCHEMA}
    with swiftk.load(folder, device="cuda", dtype="float32", draft_weights="int8") as lm:
        want = lm.generate("say:", speculate=False, **options)
        assert 0 <= json.loads(want.text)["n"] <= 9
        for way in {}, {"speculate": "always"}, {"drafter": "plan", "speculate": "always"}:
            found = lm.generate("say:", **way, **options)
            assert (found.tokens, found.logprobs) == (want.tokens, want.logprobs)
        many = lm.generate_many(["say:", "free"], each=[{}, {"response_format": None}], **options)
        assert many[0].tokens == want.tokens


def test_prompts_are_reported(folder):
    options = {"temperature": 0.0, "ignore_eos": True}
    with swiftk.load(folder, device="cuda", dtype="float32", draft_weights="own") as lm:
        first = lm.generate([5, 9, 17], max_new_tokens=60, logprobs=3, **options)
        again = lm.generate([5, 9, 17, *first.tokens], max_new_tokens=2, prompt_logprobs=3, **options)
        assert again.prompt_logprobs[2:] == [replace(t, piece="") for t in first.logprobs]


def test_a_model_drafts_from_few_bits(folder):
    options = {"temperature": 0.0, "ignore_eos": True, "max_new_tokens": 30}
    with swiftk.load(folder, device="cuda", dtype="float32", draft_weights="int8", drafter=folder) as lm:
        plain = lm.generate([5, 9, 17], speculate=False, **options)
        found = lm.generate([5, 9, 17], drafter="model", speculate="always", **options)
        assert found.tokens == plain.tokens and found.stats.num_accepted_draft_tokens > 0
