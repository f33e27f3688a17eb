"""Structured output and calls of functions, over HTTP."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import swiftk
from swiftk.errors import InvalidArgument
from swiftk.testing import make_tiny

pytest.importorskip("fastapi")
pytest.importorskip("llguidance")
httpx = pytest.importorskip("httpx")

from serving import TOOL_TEMPLATE, lines, serving  # noqa: E402
from swiftk.serve.tools import HERMES, LLAMA, Tools, read_message, spelling_of  # noqa: E402

WEATHER = {
    "name": "weather",
    "parameters": {
        "type": "object",
        "properties": {"day": {"type": "integer", "minimum": 1, "maximum": 31}},
        "required": ["day"],
        "additionalProperties": False,
    },
}
NOTHING = {"name": "nothing", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}
TOOLS = [{"type": "function", "function": one} for one in (WEATHER, NOTHING)]
ASKED = {"messages": [{"role": "user", "content": "how is it?"}], "temperature": 1.0, "seed": 3, "max_tokens": 80}


@pytest.fixture(scope="module", params=["llama", "hermes"])
def served(request, tmp_path_factory):
    """A client, the model, and how its template has calls spelled."""
    folder = make_tiny(tmp_path_factory.mktemp("tools") / "tiny", "llama3", layers=2)
    mark = "{# <tool_call> #}" if request.param == "hermes" else ""
    (folder / "chat_template.jinja").write_text(TOOL_TEMPLATE + mark)
    lm = swiftk.load(folder, device="cpu", threads=1)
    with serving(lm) as (url, _), httpx.Client(base_url=url, timeout=60) as client:
        yield client, lm, spelling_of(lm.tokenizer.template())


def called(message):
    (call,) = message["tool_calls"]
    assert call["type"] == "function" and call["id"]
    return call["function"]["name"], json.loads(call["function"]["arguments"])


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_call_that_is_required_comes(served, choice):
    client, lm, spelling = served
    asked = {**ASKED, "tools": TOOLS, "tool_choice": choice}
    answer = client.post("/v1/chat/completions", json=asked).json()["choices"][0]
    assert answer["finish_reason"] == "tool_calls" and answer["message"]["content"] is None
    name, arguments = called(answer["message"])
    assert name in (["weather"] if choice != "required" else ["weather", "nothing"])
    assert arguments == {} if name == "nothing" else 1 <= arguments["day"] <= 31
    wanted = [WEATHER] if choice != "required" else [WEATHER, NOTHING]
    ids = lm.tokenizer.encode_chat(ASKED["messages"], TOOLS)
    grammar = spelling.grammar(wanted)
    want = lm.generate(ids, temperature=1.0, seed=3, max_new_tokens=80, response_format=grammar, speculate=False)
    assert spelling.calls(want.text) == ("", [(name, arguments)])
    chunks = lines(client.post("/v1/chat/completions", json={**asked, "stream": True}))
    told = [c["choices"][0] for c in chunks]
    assert "".join(c["delta"].get("content") or "" for c in told) == ""
    assert called(told[-1]["delta"]) == (name, arguments) and told[-1]["finish_reason"] == "tool_calls"


def test_without_a_call_the_text_is_as_it_was(served):
    client, lm, _ = served
    ids = lm.tokenizer.encode_chat(ASKED["messages"], TOOLS)
    want = lm.generate(ids, temperature=1.0, seed=3, max_new_tokens=80)
    for choice in (None, "auto"):
        asked = {**ASKED, "tools": TOOLS, **({"tool_choice": choice} if choice else {})}
        answer = client.post("/v1/chat/completions", json=asked).json()["choices"][0]
        assert answer["message"] == {"role": "assistant", "content": want.text}
        chunks = lines(client.post("/v1/chat/completions", json={**asked, "stream": True}))
        assert "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks) == want.text
    none = client.post("/v1/chat/completions", json={**ASKED, "tools": TOOLS, "tool_choice": "none"}).json()
    plain = client.post("/v1/chat/completions", json=ASKED).json()
    assert none["choices"] == plain["choices"]


@pytest.mark.parametrize(
    "body",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "w", "schema": WEATHER["parameters"]}}},
        {"structured_outputs": {"json": WEATHER["parameters"]}},
        {"structured_outputs": {"json": json.dumps(WEATHER["parameters"])}},
    ],
)
def test_a_schema_holds_on_both_endpoints(served, body):
    client, lm, _ = served
    form = {"type": "json_schema", "schema": WEATHER["parameters"]}
    options = {"temperature": 1.0, "seed": 3, "response_format": form, "speculate": False}
    want = lm.generate("day:", max_new_tokens=60, **options)
    asked = {"prompt": "day:", "temperature": 1.0, "seed": 3, "max_tokens": 60, **body}
    found = client.post("/v1/completions", json=asked).json()["choices"][0]["text"]
    assert found == want.text and 1 <= json.loads(found)["day"] <= 31
    chat = client.post("/v1/chat/completions", json={**ASKED, **body}).json()["choices"][0]["message"]["content"]
    assert chat == lm.generate(ASKED["messages"], max_new_tokens=80, **options).text


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"response_format": {"type": "xml"}}, "want {'type': one of"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "x"}}}}, "Invalid type: x"),
        ({"structured_outputs": {"json": {}, "regex": "a"}}, "'json', 'regex', want one of"),
        ({"tools": [{"type": "function"}]}, "tool 0 is"),
        ({"tools": TOOLS, "tool_choice": "sometimes"}, "tool_choice is 'sometimes'"),
        ({"tools": TOOLS, "tool_choice": {"function": {"name": "fly"}}}, "names 'fly', want one of 'weather'"),
    ],
)
def test_what_cannot_be_met_is_a_400(served, body, words):
    response = served[0].post("/v1/chat/completions", json={**ASKED, **body})
    assert response.status_code == 400 and words in response.json()["error"]["message"], response.text


def test_spellings_of_calls():
    one = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    assert HERMES.calls(one) == ("", [("f", {"a": 1})])
    assert HERMES.calls(f"Let me see.\n{one}\n{one}") == ("Let me see.", [("f", {"a": 1})] * 2)
    assert HERMES.calls("a <tool_call>\nno json") == ("a <tool_call>\nno json", [])
    assert LLAMA.calls('{"name": "f", "parameters": {}}') == ("", [("f", {})])
    assert LLAMA.calls('{"name": "f"}') == ('{"name": "f"}', [])
    assert LLAMA.calls("hello") == ("hello", [])


@given(st.lists(st.sampled_from(["<tool", "_call>", "\n", "<", "tell", " {", '"a"}', "</tool_call>"])))
def test_a_stream_holds_back_no_more_than_a_call(parts):
    for spelling in (HERMES, LLAMA):
        text = told = ""
        for part in parts:
            text += part
            sure = text[: len(text) - spelling.held(text)]
            assert sure.startswith(told)  # what was told stays told
            assert not spelling.begin or spelling.begin not in sure
            told = sure


def test_earlier_calls_reach_the_template_as_objects():
    call = {"id": "1", "function": {"name": "f", "arguments": '{"a": 1}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert read_message(message)["tool_calls"][0]["function"]["arguments"] == {"a": 1}
    call["function"]["arguments"] = "{"
    with pytest.raises(InvalidArgument, match="no JSON"):
        read_message(message)
    assert Tools.of(None, "required", None) is None and Tools.of(TOOLS, "none", None) is None
