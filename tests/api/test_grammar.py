"""response_format: texts keep to it, and are those of plain masked decoding, whatever drafts."""

import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers

import swiftk
from added_tokens import FIRST, tiny_with_marks
from swiftk.errors import InvalidArgument, InvalidOption, SwiftkError
from swiftk.testing import make_tiny

pytest.importorskip("llguidance")
jsonschema = pytest.importorskip("jsonschema")

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
FORMS = {
    "schema": {"type": "json_schema", "schema": PERSON},
    "regex": {"type": "regex", "regex": r"[0-9]{3}-[a-f]{1,9}\."},
    "choice": {"type": "choice", "choices": ["yes", "no", 'may"be']},
    "lark": {"type": "lark", "grammar": 'start: ("ab" | "ba")~1..8 "."'},
}
GREEDY, SAMPLED = {"temperature": 0.0}, {"temperature": 1.0, "top_p": 0.95, "seed": 9}
WAYS = ({}, {"speculate": "always"}, {"drafter": "plan", "speculate": "always"}, {"drafter": "suffix"})


@pytest.fixture(scope="module")
def lm():
    return swiftk.load(swiftk.demo_model())


def keeps(form, text):
    """Whether a whole text is what was asked for."""
    if form == "schema":
        found = json.loads(text)
        return set(found) == set(PERSON["required"]) and 0 <= found["age"] <= 130 and len(found["name"]) <= 8
    if form == "choice":
        return text in FORMS["choice"]["choices"]
    return re.fullmatch({"regex": FORMS["regex"]["regex"], "lark": r"(ab|ba){1,8}\."}[form], text) is not None


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_texts_are_those_of_plain_masked_decoding(lm, form, sampling):
    options = {"response_format": FORMS[form], "max_new_tokens": 90, "logprobs": 3, **sampling}
    want = lm.generate("Question: who?\nAnswer:", speculate=False, **options)
    assert want.finish_reason == "stop" and keeps(form, want.text)
    for way in WAYS:
        found = lm.generate("Question: who?\nAnswer:", **way, **options)
        assert (found.tokens, found.text, found.logprobs) == (want.tokens, want.text, want.logprobs)
        assert found.finish_reason == "stop"


def test_a_mask_takes_the_best_of_what_is_allowed(lm):
    """By logits: of the first token, which the model alone decides."""
    prompt = lm.encode("The answer is")
    session = lm.session
    session.prefill(np.int32(prompt))
    logits = np.array(session.logits)[-1]
    choices = [" yes", " no", " it", "7"]
    starts = {one[:n] for one in choices for n in range(1, len(one) + 1)}
    firsts = [token for token in range(len(logits)) if lm.decode([token]) in starts]
    best = max(firsts, key=lambda token: logits[token])
    found = lm.generate(prompt, response_format={"type": "choice", "choices": choices}, **GREEDY)
    assert found.tokens[0] == best and found.text in choices and len(firsts) > len(choices)


def test_what_is_forced_is_drafted():
    """Without a plan nobody else can propose what was never said."""
    form = {"type": "json_schema", "schema": {"const": "zqxwvkjh-0918-zyxwvut-3746-qpzm"}}
    accepted = 0
    for _ in range(4):  # where the machine stutters the clock may forbid it, to one that has learned so for long
        with swiftk.load(swiftk.demo_model(), draft_weights="own") as fresh:
            found = fresh.generate("JSON:", response_format=form, speculate="always", skip=None, **GREEDY)
        assert json.loads(found.text) == form["schema"]["const"]
        accepted = max(accepted, found.stats.accepted_by.get("grammar", 0))
        if accepted > 5:
            break
    assert accepted > 5 and found.stats.num_steps < len(found.tokens)


def test_rejection_keeps_to_it(lm):
    for seed in range(4):
        options = {"temperature": 1.0, "seed": seed, "acceptance": "rejection", "speculate": "always"}
        found = lm.generate("x", response_format=FORMS["regex"], max_new_tokens=60, **options)
        assert keeps("regex", found.text)


def test_texts_of_a_batch_have_grammars_of_their_own(lm):
    each = [{"response_format": FORMS[form]} for form in FORMS] + [{}, {"response_format": {"type": "text"}}]
    options = {"max_new_tokens": 70, **GREEDY}
    found = lm.generate_many(["who?"] * len(each), each=each, **options)
    for its, one in zip(each, found):
        assert one.tokens == lm.generate("who?", speculate=False, **its, **options).tokens
    for one in lm.generate("who?", n=3, temperature=1.0, seed=1, response_format=FORMS["schema"], max_new_tokens=90):
        assert keeps("schema", one.text)


def test_a_text_that_is_too_short_is_cut(lm):
    found = lm.generate("x", response_format=FORMS["schema"], max_new_tokens=5, **GREEDY)
    assert found.finish_reason == "length" and len(found.tokens) == 5


NEVER = {"type": "object", "required": ["a"], "properties": {"a": False}}
WRONG = [
    ({"type": "xml"}, "want {'type': one of 'text', 'json_object'"),
    ("json", "response_format='json'"),
    ({"type": "regex"}, "has 'regex' as None, want text"),
    ({"type": "choice", "choices": []}, "want a list of texts"),
    ({"type": "json_schema", "json_schema": {"name": "x"}}, "has 'schema' as None, want a JSON schema"),
    ({"type": "json_schema", "schema": {"type": "nonsense"}}, "Invalid type: nonsense"),
    ({"type": "json_schema", "schema": NEVER}, "required property 'a'"),
    ({"type": "regex", "regex": "(a"}, "unclosed group"),
    ({"type": "lark", "grammar": "start: foo"}, 'unknown name: "foo"'),
]


@pytest.mark.parametrize(("form", "words"), WRONG)
def test_what_cannot_be_met_is_refused_by_name(lm, form, words):
    with pytest.raises((InvalidArgument, InvalidOption)) as error:
        lm.generate("x", response_format=form)
    assert words in str(error.value)
    assert lm.generate("x", max_new_tokens=2).tokens


def test_it_needs_an_end(lm, tmp_path):
    with pytest.raises(InvalidArgument, match="ignore_eos"):
        lm.generate("x", response_format=FORMS["lark"], ignore_eos=True)
    folder = make_tiny(tmp_path / "endless", "llama3")
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        path = folder / name
        named = json.loads(path.read_text())
        path.write_text(json.dumps({k: v for k, v in named.items() if k not in ("eos_token_id", "eos_token")}))
    with swiftk.load(folder) as endless, pytest.raises(InvalidArgument, match="eos_token_id"):
        endless.generate("x", response_format=FORMS["lark"])


@pytest.fixture(scope="module")
def with_marks(tmp_path_factory):
    """A model whose tokenizer has added tokens: shown in texts, and special."""
    folder = tmp_path_factory.mktemp("marks") / "tiny"
    tiny_with_marks(folder, ["<call>", "</call>"], ["<|end|>", "[MARK]"], normalizers.NFC())
    return swiftk.load(folder, device="cpu", threads=1)


CALL, END, SPECIAL, MARK = range(FIRST, FIRST + 4)
TEXTS = ["<call>", "a</call>\nb", "<|end|>", "[MARK]x", "</s>", "e\N{COMBINING ACUTE ACCENT}", "日🙂"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("form", ["json_schema", "choice", "regex"])
def test_what_a_grammar_spells_is_what_the_text_says(with_marks, form, text):
    wanted = {"json_schema": {"const": text}, "choice": [text], "regex": re.escape(text)}[form]
    part = {"json_schema": "schema", "choice": "choices", "regex": "regex"}[form]
    for seed in range(3):
        options = {"response_format": {"type": form, part: wanted}, "temperature": 1.0, "seed": seed}
        want = with_marks.generate("x", speculate=False, **options)
        assert (json.loads(want.text) if form == "json_schema" else want.text) == text
        assert with_marks.generate("x", speculate="always", **options).tokens == want.tokens
        assert not {SPECIAL, MARK} & set(want.tokens)
        assert (CALL in want.tokens) == ("<call>" in text) and (END in want.tokens) == ("</call>" in text)


@pytest.mark.parametrize(
    ("grammar", "tokens"),
    [
        ('start: "<call>" /[0-9]/ "</call>"', [CALL, None, END]),
        ('start: <call> /[0-9]/ "[MARK]"', [CALL, None, MARK]),
        ('start: "<|end|>" /[0-9]/ <|end|>', [SPECIAL, None, SPECIAL]),
        ('start: ("[MARK]" | "<|end|>") /[0-9]/ <[320]>', [None, None, CALL]),
        ('start: one\none: "[MARK]" %json {"enum": [3, 4]} "</call>"', [MARK, None, END]),
        ("start: /[0-9]/ <[60-90]> <[323]>", [None, None, MARK]),
    ],
)
def test_literals_of_lark_that_spell_added_tokens_are_those_tokens(with_marks, grammar, tokens):
    for seed in range(4):
        options = {"response_format": {"type": "lark", "grammar": grammar}, "temperature": 1.0, "seed": seed}
        want = with_marks.generate("x", speculate=False, **options)
        for found, token in zip(want.tokens, tokens, strict=False):
            assert token is None or found == token
        assert len(want.tokens) == len(tokens) + 1  # the end
        for way in ({"speculate": "always"}, {"speculate": "always", "drafter": "plan"}):
            assert with_marks.generate("x", **way, **options).tokens == want.tokens


@pytest.mark.parametrize("token", [CALL, SPECIAL, 65, 300])
def test_what_was_tried_leaves_nothing_behind(with_marks, token):
    """As drafts try paths, and go back."""
    text = f'start: "7" <[{token}]> <[{token}]> "8"'

    def allowed(grammar, path):
        bits = np.zeros((330 + 31) // 32, np.uint32)
        assert grammar.allow(path, bits.ctypes.data, bits.nbytes)
        return [i for i in range(330) if bits[i // 32] >> (i % 32) & 1]

    form = {"type": "lark", "grammar": text}
    tried, (seven, eight) = with_marks._grammars.of(form), with_marks.tokenizer.split("78")
    for taken, following in (([seven], token), ([token], token), ([token], eight)):
        tried.took(taken)
        for path in ([following], []):
            allowed(tried, path)
        assert allowed(tried, []) == [following]


class Broken:
    """A grammar whose library fails."""

    def allow(self, path, address, size):
        raise RuntimeError("out of ink")

    def forced(self):
        raise RuntimeError("out of ink")

    def took(self, tokens):
        raise RuntimeError("out of ink")


def test_a_grammar_that_fails_ends_its_text_alone(lm, monkeypatch):
    monkeypatch.setattr(lm._grammars, "of", lambda form, said: Broken() if form else None)
    good = lm.submit("who?", max_new_tokens=30, **GREEDY)
    bad = lm.submit("who?", max_new_tokens=30, response_format=FORMS["lark"], **GREEDY)
    with pytest.raises(SwiftkError, match="out of ink"):
        bad.wait()
    assert good.wait().tokens == lm.generate("who?", max_new_tokens=30, speculate=False, **GREEDY).tokens


LEAF = st.sampled_from([
    {"type": "string", "maxLength": 5},
    {"type": "integer", "minimum": -3, "maximum": 99},
    {"type": "boolean"},
    {"enum": ["red", "green", 7]},
    {"type": "null"},
])  # fmt: skip


def objects(inner):
    def made(properties):
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties)[: len(properties) // 2 + 1],
            "additionalProperties": False,
        }

    names = st.text("abcdef_", min_size=1, max_size=6)
    lists = inner.map(lambda one: {"type": "array", "items": one, "maxItems": 2})
    return st.dictionaries(names, inner, min_size=1, max_size=3).map(made) | lists


def keeps_to_random_schema(lm, schema, seed, sampled):
    form = {"type": "json_schema", "schema": schema}
    options = {"response_format": form, "max_new_tokens": 60, "temperature": float(sampled), "seed": seed}
    try:
        want = lm.generate("data", speculate=False, **options)
    except InvalidOption:  # by llguidance, before anything ran
        return
    found = lm.generate("data", speculate="always", **options)
    assert found.tokens == want.tokens
    if found.finish_reason == "stop":
        jsonschema.validate(json.loads(found.text), schema)


RANDOM = (st.recursive(LEAF, objects, max_leaves=5), st.integers(0, 2**32), st.booleans())


@given(*RANDOM)
def test_random_schemas(lm, schema, seed, sampled):
    keeps_to_random_schema(lm, schema, seed, sampled)


@pytest.mark.exhaustive
@settings(max_examples=500)
@given(*RANDOM)
def test_many_random_schemas(lm, schema, seed, sampled):
    keeps_to_random_schema(lm, schema, seed, sampled)


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_a_schema_is_itself_whoever_asked_before(order, tmp_path):
    """The order of its properties is that of the text: schemas that differ in it alone are two."""
    with swiftk.load(make_tiny(tmp_path / "tiny", "llama3"), device="cpu", threads=1) as lm:
        for names in (order, order[::-1]):
            schema = {"type": "object", "properties": {name: {"const": name} for name in names}, "required": ["a", "b"]}
            form = {"type": "json_schema", "schema": {**schema, "additionalProperties": False}}
            text = lm.generate("x", max_new_tokens=60, temperature=0.0, response_format=form).text
            assert text == json.dumps({name: name for name in names})
