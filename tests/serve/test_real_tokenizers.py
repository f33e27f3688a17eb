"""Structured output, calls of functions, stops, prompts and logprobs with tokenizers of published models."""

import json
import re

import pytest

import swiftk
from swiftk.serve.calls import HERMES, LLAMA, MISTRAL, spelling_of
from swiftk.text.prompt import token_ids
from swiftk.text.tokenizer import Tokenizer

pytest.importorskip("fastapi")
pytest.importorskip("llguidance")
httpx = pytest.importorskip("httpx")

from patience import PATIENCE  # noqa: E402
from real_tokenizers import FAMILIES, tiny_with  # noqa: E402
from serving import lines, serving  # noqa: E402

pytestmark = pytest.mark.exhaustive
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
ASKED = {"messages": [{"role": "user", "content": "how is it?"}], "temperature": 1.0, "max_tokens": 80}
SPELLS = {"qwen3": HERMES, "llama3_1": LLAMA, "mistral_nemo": MISTRAL}
EOS = {"qwen3": "<|im_end|>", "llama3_1": "<|eot_id|>", "mistral_nemo": "</s>", "llama2": "</s>"}
TEXTS = [
    "Hello world",
    " two  spaces\n\n",
    "日本語 🙂 naïve é",
    "def f(x):\n\treturn x",
    "<tool_call>",
    "1234567",
    "</s>",
]


@pytest.fixture(scope="module", params=FAMILIES)
def named(request, pytestconfig, tmp_path_factory):
    folder = tiny_with(request.param, pytestconfig.cache, tmp_path_factory.mktemp("real"))
    return request.param, folder


@pytest.fixture(scope="module")
def lm(named):
    return swiftk.load(named[1], device="cpu", threads=1)


@pytest.fixture(scope="module")
def client(lm):
    with serving(lm) as (url, _), httpx.Client(base_url=url, timeout=PATIENCE) as client:
        yield client


def id_of(lm, text):
    return next(id for id, content in lm.tokenizer.added().items() if content == text)


def test_the_eos_is_the_tokenizer_s(named, lm):
    assert lm.defaults.eos_token_ids == (id_of(lm, EOS[named[0]]),)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_call_that_is_required_comes(named, lm, client, choice, seed):
    name = named[0]
    if name not in SPELLS:
        pytest.skip("its template has no tools")
    assert spelling_of(lm.tokenizer.template(True)) is SPELLS[name]
    asked = {**ASKED, "seed": seed, "tools": TOOLS, "tool_choice": choice}
    response = client.post("/v1/chat/completions", json=asked)
    assert response.status_code == 200, response.text
    answer = response.json()["choices"][0]
    (call,) = answer["message"]["tool_calls"]
    assert answer["message"]["content"] is None and answer["finish_reason"] == "tool_calls"
    arguments = json.loads(call["function"]["arguments"])
    assert arguments == {} if call["function"]["name"] == "nothing" else 1 <= arguments["day"] <= 31
    last = lines(client.post("/v1/chat/completions", json={**asked, "stream": True}))[-1]["choices"][0]
    assert last["delta"]["tool_calls"][0]["function"] == call["function"]
    messages = [
        *ASKED["messages"],
        answer["message"],
        {"role": "tool", "tool_call_id": call["id"], "content": "17"},
    ]
    again = client.post("/v1/chat/completions", json={**ASKED, "messages": messages, "tools": TOOLS, "max_tokens": 3})
    assert again.status_code == 200, again.text


def test_marks_of_calls_are_their_tokens(named, lm):
    name = named[0]
    if name not in SPELLS or SPELLS[name].bare:
        pytest.skip("it writes no marks")
    spelling = SPELLS[name]
    options = {"response_format": spelling.grammar([WEATHER]), "temperature": 1.0, "seed": 1, "max_new_tokens": 60}
    want = lm.generate("call", speculate=False, **options)
    assert want.tokens[0] == id_of(lm, spelling.begin)
    assert not spelling.end or want.tokens[-2] == id_of(lm, spelling.end)
    assert lm.generate("call", speculate="always", **options).tokens == want.tokens


def forms():
    for text in ("<tool_call>", "a<|im_end|>b", "</s>", "[TOOL_CALLS]", "e\u0301 日本🙂", " x", "<think>\n"):
        yield {"type": "json_schema", "schema": {"const": text}}
        yield {"type": "choice", "choices": [text, text + "y"]}
        yield {"type": "regex", "regex": re.escape(text)}


@pytest.mark.parametrize("form", list(forms()))
def test_what_a_grammar_spells_is_what_the_text_says(lm, form):
    options = {"response_format": form, "temperature": 1.0, "seed": 2, "max_new_tokens": 60}
    found = lm.generate("x", speculate="always", **options)
    assert found.finish_reason == "stop"
    if form["type"] == "json_schema":
        assert json.loads(found.text) == form["schema"]["const"]
    else:
        assert found.text in form.get("choices", ()) or re.fullmatch(form.get("regex", ""), found.text)
    assert found.tokens == lm.generate("x", speculate=False, **options).tokens


def test_a_lark_literal_is_the_token(named, lm):
    eos = EOS[named[0]]
    other = next(text for text in lm.tokenizer.added(special=True).values() if text != eos)
    for grammar in (f'start: "a{other}b"', f'start: "a" {json.dumps(other)} "b"'):
        found = lm.generate("x", response_format={"type": "lark", "grammar": grammar}, temperature=0.0)
        assert found.tokens.count(id_of(lm, other)) == 1 and found.text == "ab"
        stopped = lm.generate("x", response_format={"type": "lark", "grammar": grammar}, temperature=0.0, stop=other)
        assert stopped.text == "a" and stopped.finish_reason == "stop" and stopped.tokens[-1] == id_of(lm, other)
        spelled = lm.generate(
            "x", response_format={"type": "lark", "grammar": grammar}, temperature=0.0, keep_special_tokens=other
        )
        assert spelled.text == f"a{other}b"


def test_bytes_of_tokens_join_to_the_text(named, lm):
    bytes_of = lm.tokenizer.token_bytes()
    for text in TEXTS:
        ids = lm.tokenizer.split(text)
        joined = b"".join(bytes_of[id] for id in ids).decode()
        assert joined.removeprefix(" " if named[0] == "llama2" else "") == lm.tokenizer.decode(ids), text


@pytest.mark.parametrize("seed", range(4))
def test_logprobs_join_to_the_text(client, seed):
    asked = {"prompt": "日本", "max_tokens": 40, "temperature": 1.0, "seed": seed, "logprobs": 20}
    choice = client.post("/v1/completions", json=asked).json()["choices"][0]
    reported = choice["logprobs"]
    assert "".join(reported["tokens"]) == choice["text"] and all(len(top) == 20 for top in reported["top_logprobs"])
    if "\ufffd" not in choice["text"]:
        assert bytes(b for own in reported["bytes"] for b in own) == choice["text"].encode()


def test_prompts_that_clients_format(named, lm, client):
    """ChatML and FIM marks are tokens; with parse_special off those that texts leave out are text."""
    marks = {
        "qwen3": ("<|fim_prefix|>def f():\n    <|fim_suffix|>\n<|fim_middle|>", "<|im_start|>user\nhi<|im_end|>\n"),
        "llama3_1": ("<|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>",),
        "mistral_nemo": ("[INST]hi[/INST]", "[SUFFIX]b[PREFIX]a"),
        "llama2": ("<s>hi</s>",),
    }[named[0]]
    for prompt in marks:
        ids = client.post("/tokenize", json={"prompt": prompt, "add_special_tokens": False}).json()["tokens"]
        wanted = [id for id, text in lm.tokenizer.added().items() if text in prompt]
        assert set(wanted) <= set(ids) and len(wanted) > 1
        spelled = client.post("/detokenize", json={"tokens": ids, "skip_special_tokens": False}).json()["prompt"]
        assert spelled.replace(" ", "") == prompt.replace(" ", "")
        used = client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 1}).json()["usage"]["prompt_tokens"]
        assert used == len(lm.encode(prompt, parse_special=True))
        plain = client.post("/tokenize", json={"prompt": prompt, "parse_special": False, "add_special_tokens": False})
        special = set(lm.tokenizer.added(special=True))
        assert not special & set(plain.json()["tokens"])
        assert (
            token_ids(prompt, lm.tokenizer, 1 << 18, 500, add_special_tokens=False).tolist() == plain.json()["tokens"]
        )


def test_messages_with_calls_render_as_in_transformers(named):
    transformers = pytest.importorskip("transformers")
    name, folder = named
    if name not in SPELLS:
        pytest.skip("its template has no tools")
    from swiftk.serve.tools import read_message

    call = {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": '{"day": 3}'}}
    messages = [
        {"role": "user", "content": "how is it?"},
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
        {"role": "tool", "tool_call_id": "abcdefghi", "content": "17"},
    ]
    read = [{"content": "", **read_message(m)} for m in messages]
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    ours = Tokenizer(folder)
    theirs.chat_template = ours.template(True)
    special = {k: v for k, v in ours.files.special_tokens.items() if k in ("bos_token", "eos_token")}
    theirs.add_special_tokens(special)
    want = theirs.apply_chat_template(read, tools=TOOLS, tokenize=False, add_generation_prompt=True)
    assert ours.render(read, TOOLS) == want and '"day": 3' in want
