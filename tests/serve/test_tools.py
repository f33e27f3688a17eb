"""Structured output and calls of functions, over HTTP."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import swiftk
from swiftk.errors import InvalidArgument

pytest.importorskip("fastapi")
pytest.importorskip("llguidance")
httpx = pytest.importorskip("httpx")

from added_tokens import tiny_with_marks  # noqa: E402
from patience import PATIENCE  # noqa: E402
from serving import TOOL_TEMPLATE, lines, serving  # noqa: E402
from swiftk.serve import calls as calls_of  # noqa: E402
from swiftk.serve.calls import HERMES, LLAMA, MISTRAL, MISTRAL_ARGS, PHI, SPELLINGS, Reader, spelling_of  # noqa: E402
from swiftk.serve.tools import Tools, read_message, reported_calls  # noqa: E402
from swiftk.text.tokenizer import Tokenizer  # noqa: E402

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


MODELS = {  # what the template says, and added tokens: that texts show, and special ones
    "llama": ("", [], ["<|python_tag|>"]),
    "hermes": ("<tool_call>", [], []),
    "qwen": ("<tool_call>", ["<tool_call>", "</tool_call>"], []),
    "mistral": ("[TOOL_CALLS]", [], ["[TOOL_CALLS]"]),
    "mistral-args": ("[TOOL_CALLS][ARGS]", [], ["[TOOL_CALLS]", "[ARGS]"]),
}


@pytest.fixture(scope="module", params=MODELS)
def served(request, tmp_path_factory):
    """A client, the model, and how its template has calls spelled."""
    says, shown, special = MODELS[request.param]
    folder = tiny_with_marks(tmp_path_factory.mktemp("tools") / "tiny", shown, special)
    (folder / "chat_template.jinja").write_text(f"{TOOL_TEMPLATE}{{# {says} #}}")
    lm = swiftk.load(folder, device="cpu", threads=1)
    with serving(lm) as (url, _), httpx.Client(base_url=url, timeout=PATIENCE) as client:
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
    options = {"temperature": 1.0, "seed": 3, "max_new_tokens": 80, "keep_special_tokens": spelling.marks}
    want = lm.generate(ids, response_format=grammar, speculate=False, **options)
    assert read(spelling, want.text) == ("", [(name, arguments)])
    chunks = lines(client.post("/v1/chat/completions", json={**asked, "stream": True}))
    reported = [c["choices"][0] for c in chunks]
    assert "".join(c["delta"].get("content") or "" for c in reported) == ""
    assert called(reported[-1]["delta"]) == (name, arguments) and reported[-1]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("form", [{"response_format": {"type": "json_object"}}, {"structured_outputs": {"regex": "a"}}])
def test_a_call_that_is_required_comes_before_a_form(served, form):
    asked = {**ASKED, "tools": TOOLS, "tool_choice": "required"}
    plain, formed = (
        served[0].post("/v1/chat/completions", json={**asked, **more}).json()["choices"][0] for more in ({}, form)
    )
    assert called(formed["message"]) == called(plain["message"])


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


def read(spelling, text, names=("f", "g", "weather", "nothing"), most=None):
    """(what is said, what is called): the same whole and a character at a time."""
    whole = Reader(spelling, names, most).push(text, True)
    reader, said, calls = Reader(spelling, names, most), "", []
    for character in text:
        more, called = reader.push(character)
        said, calls = said + more, calls + called
    more, called = reader.push("", True)
    assert (said + more, calls + called) == whole
    return whole


F, G = ("f", {"a": 1}), ("g", {})
OBJECT = '{"name": "f", "arguments": {"a": 1}}'
CALLS = [  # spelling, text, what is said, calls
    (HERMES, f"<tool_call>\n{OBJECT}\n</tool_call>", "", [F]),
    (HERMES, f"<tool_call>{OBJECT}</tool_call>", "", [F]),
    (HERMES, f"\n <tool_call>  {OBJECT}", "", [F]),  # cut before its mark
    (HERMES, '<tool_call>{"name": "f", "parameters": {"a": 1}}</tool_call>', "", [F]),
    (HERMES, f"Let me see.\n<tool_call>{OBJECT}</tool_call>\n<tool_call>{OBJECT}</tool_call>", "Let me see.", [F, F]),
    (HERMES, f"<think>\nhm\n</think>\n\n<tool_call>\n{OBJECT}\n</tool_call>", "<think>\nhm\n</think>", [F]),
    (HERMES, f'<tool_call>[{OBJECT}, {{"name": "g"}}]</tool_call>', "", [F, G]),
    (HERMES, f'<tool_call>{OBJECT}\n{{"name": "g"}}\n</tool_call> done', "done", [F, G]),
    (HERMES, f"<tool_call>{OBJECT}<tool_call>{OBJECT}", "", [F, F]),
    (HERMES, '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', "", [F]),
    (HERMES, '<tool_call>{"name": "g", "arguments": ""}</tool_call>', "", [G]),
    (HERMES, '<tool_call>{"name": "g", "arguments": null}</tool_call>', "", [G]),
    (HERMES, '<tool_call>{"name": "new", "arguments": {"a": "}\n{"}}</tool_call>', "", [("new", {"a": "}\n{"})]),
    (HERMES, '<tool_call>{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}</tool_call>', "", [F]),
    (HERMES, "a <tool_call>\nno json", "a <tool_call>\nno json", []),
    (HERMES, "a <tool_call>{'b'}</tool_call> c ", "a <tool_call>{'b'}</tool_call> c ", []),
    (HERMES, '<tool_call>{"name": "f", "argum', '<tool_call>{"name": "f", "argum', []),
    (HERMES, '<tool_call>{"name": "f", "arguments": [1]}', '<tool_call>{"name": "f", "arguments": [1]}', []),
    (HERMES, f"<tool_call>x {OBJECT} <tool_call>{OBJECT}", f"<tool_call>x {OBJECT}", [F]),
    (HERMES, OBJECT, OBJECT, []),
    (HERMES, " \n", " \n", []),
    (LLAMA, '{"name": "f", "parameters": {"a": 1}}', "", [F]),
    (LLAMA, f" \n{OBJECT}", "", [F]),
    (LLAMA, '{"name": "g"}', "", [G]),
    (LLAMA, '{"type": "function", "name": "f", "parameters": {"a": 1}}', "", [F]),
    (LLAMA, '{"type": "function", "function": "f", "parameters": {"a": 1}}', "", [F]),
    (LLAMA, f'{OBJECT}; {{"name": "g", "parameters": {{}}}}', "", [F, G]),
    (LLAMA, f"{OBJECT}\n{OBJECT};", "", [F, F]),
    (LLAMA, f"[{OBJECT}]", "", [F]),
    (LLAMA, f"<|python_tag|>{OBJECT}", "", [F]),
    (LLAMA, f"<|python_tag|>{OBJECT};<|python_tag|>{OBJECT}; {OBJECT}", "", [F, F, F]),
    (LLAMA, f"{OBJECT} That is it.", "That is it.", [F]),
    (LLAMA, "[f(a=1), g()]", "", [F, G]),
    (LLAMA, "[f(a=[1, {'b': None}], c=\"]\")]", "", [("f", {"a": [1, {"b": None}], "c": "]"})]),
    (LLAMA, "[f(1)]", "[f(1)]", []),
    (LLAMA, "[f(a=b)]", "[f(a=b)]", []),
    (LLAMA, '{"name": "fly", "parameters": {}}', '{"name": "fly", "parameters": {}}', []),
    (LLAMA, '{"name": "f", "age": 3}', '{"name": "f", "age": 3}', []),
    (LLAMA, f"Sure: {OBJECT}", f"Sure: {OBJECT}", []),
    (LLAMA, "[1, 2]", "[1, 2]", []),
    (LLAMA, "{}", "{}", []),
    (LLAMA, "hello", "hello", []),
    (LLAMA, "", "", []),
    (MISTRAL, f'[TOOL_CALLS] [{OBJECT}, {{"name": "g", "arguments": {{}}, "id": "abcdefghi"}}]', "", [F, G]),
    (MISTRAL, f"[TOOL_CALLS][{OBJECT}]", "", [F]),
    (MISTRAL, f"[TOOL_CALLS]{OBJECT}; {OBJECT}", "", [F, F]),
    (MISTRAL, f"Yes.[TOOL_CALLS][{OBJECT}]", "Yes.", [F]),
    (MISTRAL, f"[{OBJECT}]", f"[{OBJECT}]", []),
    (MISTRAL_ARGS, '[TOOL_CALLS]f[ARGS]{"a": 1}', "", [F]),
    (MISTRAL_ARGS, '[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}', "", [F, G]),
    (MISTRAL_ARGS, '[TOOL_CALLS] f {"a": 1}', "", [F]),
    (MISTRAL_ARGS, f"[TOOL_CALLS][{OBJECT}]", "", [F]),
    (MISTRAL_ARGS, "[TOOL_CALLS]f of x", "[TOOL_CALLS]f of x", []),
    (PHI, f"<|tool_call|>[{OBJECT}]<|/tool_call|>", "", [F]),
]


@pytest.mark.parametrize(("spelling", "text", "said", "calls"), CALLS)
def test_spellings_of_calls(spelling, text, said, calls):
    assert read(spelling, text) == (said, calls)
    assert read(spelling, text, most=1)[1] == calls[:1]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_what_a_template_writes_is_read(spelling):
    """Which is how its grammar has a model write calls, too."""
    template = f"{{{{ '{spelling.recognised_by}' }}}}"
    assert spelling_of(template) is spelling
    call = json.dumps({"name": "f", spelling.arguments: {"a": 1}})
    if spelling.between:
        call = f'f{spelling.between[-1]}{{"a": 1}}'
    marks = ("", "") if spelling.bare else (spelling.begin + spelling.before, spelling.after + spelling.end)
    assert read(spelling, marks[0] + call + marks[1]) == ("", [F])


def test_a_json_answer_streams_as_it_comes():
    """Held back is only what may still be a call."""
    for text, sure in (
        ('{"answer": {"name": "f"}', '{"an'),
        ('{"name": "Bob"', '{"name": "B'),
        ('{"name": "weathers"', '{"name": "weathers'),
        ('{"type": "x", "y', '{"type": "x", "y'),
        ("[3", "[3"),
        ("[fun", "[fu"),
    ):
        reader = Reader(LLAMA, ["f", "weather"])
        shown = [reader.push(character)[0] for character in text]
        first = next(i for i, piece in enumerate(shown) if piece)
        assert "".join(shown[: first + 1]) == sure and "".join(shown) == text, text


@pytest.mark.parametrize("spelling", [HERMES, LLAMA, MISTRAL])
def test_arguments_of_a_call_are_looked_at_once(spelling, monkeypatch):
    """Long ones would else hold up everybody."""
    looked = []
    monkeypatch.setattr(calls_of, "_calls_at", lambda *args, real=calls_of._calls_at: looked.append(1) or real(*args))
    arguments = {"text": 'a (line) {of} "code\n' * 300, "list": [{"a": 1}] * 300}
    mark = "" if spelling.bare else spelling.begin
    text = mark + json.dumps({"name": "f", spelling.arguments: arguments})
    reader, found = Reader(spelling, ["f"]), []
    for at in range(0, len(text), 3):
        found += reader.push(text[at : at + 3])[1]
    assert found + reader.push("", True)[1] == [("f", arguments)] and len(looked) < 40


PARTS = ["<tool", "_call>", "\n", "<", "report", " {", '"name": "f"', "}", '"a"}', "</tool_call>", "[TOOL_CALLS]"]
PARTS += ["[", "]", "f", "[ARGS]", '{"name": "g"}', ";", " ", "f(a=1)", '"', "'", "\\"]


@given(st.lists(st.sampled_from(PARTS)))
def test_any_text_is_read_alike_whole_and_in_parts(parts):
    for spelling in SPELLINGS:
        said, calls = read(spelling, "".join(parts))
        assert calls or said == "".join(parts)


def test_earlier_calls_reach_the_template_as_objects():
    call = {"id": "1", "function": {"name": "f", "arguments": '{"a": 1}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert read_message(message)["tool_calls"][0]["function"]["arguments"] == {"a": 1}
    for nothing in ("", None, {}):
        call["function"]["arguments"] = nothing
        assert read_message(message)["tool_calls"][0]["function"]["arguments"] == {}
    call["function"]["arguments"] = "{"
    with pytest.raises(InvalidArgument, match="no JSON"):
        read_message(message)
    plain = {"role": "assistant", "content": "a"}
    assert read_message({**plain, "tool_calls": None, "refusal": None}) == plain


@pytest.mark.parametrize("calls", [[None], [{}], "f", [{"function": {"name": 1}}], [{"function": None}], [[]]])
def test_calls_of_a_message_that_are_none(calls):
    with pytest.raises(InvalidArgument, match="of a message is"):
        read_message({"role": "assistant", "tool_calls": calls})


def test_ids_of_calls_are_what_mistral_takes_and_stay_the_same():
    (reported,) = reported_calls([F], "12-0", 0)
    assert reported["function"] == {"name": "f", "arguments": '{"a": 1}'}
    assert len(reported["id"]) == 9 and reported["id"].isalnum()
    assert reported["id"] != reported_calls([F], "12-0", 1)[0]["id"] != reported_calls([F], "12-1", 0)[0]["id"]
    for id in (reported["id"], "call_of_another_server"):
        call = {"id": id, "function": {"name": "f", "arguments": "{}"}}
        (sent,) = read_message({"role": "assistant", "tool_calls": [call]})["tool_calls"]
        assert read_message({"role": "tool", "tool_call_id": id, "content": "1"})["tool_call_id"] == sent["id"]
    assert sent["id"] != id


def test_what_is_offered(served, tmp_path):
    tokenizer = served[1].tokenizer
    assert Tools.of(None, None, tokenizer) is None and Tools.of(TOOLS, "none", tokenizer) is None
    assert Tools.of(TOOLS, None, tokenizer, False).most == 1 and Tools.of(TOOLS, None, tokenizer, True).most is None
    with pytest.raises(InvalidArgument, match="tools are missing"):
        Tools.of(None, "required", tokenizer)
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    with pytest.raises(InvalidArgument, match="has no place for them"):
        Tools.of(TOOLS, None, Tokenizer(tmp_path))
