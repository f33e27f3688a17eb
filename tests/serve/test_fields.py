"""Fields of requests: each acts as generate()'s option of the same name, or is refused by name; null is absent."""

import pytest

import swiftk
from marks import exhaustive
from patience import PATIENCE
from swiftk.options.fields import table
from swiftk.options.generate_options import GenerateOptions
from swiftk.options.generation_config import Defaults
from swiftk.testing import make_tiny

pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

from serving import serving  # noqa: E402
from swiftk.serve.unsupported import PASSED_OVER, REFUSED  # noqa: E402

TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {{ mood }}{% endif %}"
)
HELLO = [{"role": "user", "content": "hello"}]
ENDPOINTS = {"completion": ("completions", {"prompt": "hello"}), "chat": ("chat/completions", {"messages": HELLO})}
# Each option over HTTP has a value that acts, beside what makes it act.
VALUES = {
    "temperature": (0.7, {}),
    "top_k": (3, {}),
    "top_p": (0.5, {}),
    "min_p": (0.2, {}),
    "typical_p": (0.2, {}),
    "repetition_penalty": (1.5, {"temperature": 0}),
    "frequency_penalty": (-2.0, {"temperature": 0}),
    "presence_penalty": (-1.5, {}),
    "logit_bias": ({"17": 40.0}, {}),
    "min_tokens": (12, {"logit_bias": {"2": 90.0}}),
    "seed": (12, {}),
    "stop": (["e"], {}),
    "stop_token_ids": (list(range(100, 300)), {}),
    "ignore_eos": (True, {"logit_bias": {"2": 6.0}}),
    "include_stop_str_in_output": (True, {"stop": ["e"]}),
    "skip_special_tokens": (False, {"logit_bias": {"2": 90.0}, "ignore_eos": True}),
    "add_special_tokens": (None, {}),
    "add_generation_prompt": (False, {}),
    "continue_final_message": (True, {"add_generation_prompt": False}),
    "chat_template_kwargs": ({"mood": "glad"}, {}),
    "parse_special": (None, {}),
    "speculate": (False, {}),
    "draft": ("suffix", {}),
}
TEXTS = [
    (endpoint, name) for endpoint in ENDPOINTS for name, one in table(GenerateOptions).items() if endpoint in one.http
]


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    folder = make_tiny(tmp_path_factory.mktemp("fields") / "tiny", "llama3", layers=2)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return swiftk.load(folder, device="cpu", threads=1, context=96)


@pytest.fixture(scope="module")
def client(lm):
    with serving(lm) as (url, _), httpx.Client(base_url=f"{url}/v1", timeout=PATIENCE) as found:
        yield found


def said(response):
    assert response.status_code == 200, response.text
    choice = response.json()["choices"][0]
    return choice["text"] if "text" in choice else choice["message"]["content"]


@pytest.mark.parametrize(("endpoint", "name"), TEXTS)
def test_a_field_is_the_option(client, lm, endpoint, name):
    path, asked = ENDPOINTS[endpoint]
    value, beside = VALUES[name]
    same = {"temperature": 1.0, "seed": 5, "max_new_tokens": 24, **beside}
    both = {**same, **({} if value is None else {name: value})}
    over_http = {**asked, **both, "max_tokens": both["max_new_tokens"]}
    del over_http["max_new_tokens"]
    prompt = asked.get("prompt", HELLO)
    found = said(client.post(path, json=over_http))
    assert found == lm.generate(prompt, **both).text
    if value is not None and name not in ("speculate", "draft"):
        assert found != lm.generate(prompt, **same).text, "the value does nothing here"


# The nullable fields of OpenAI's specification, and those of vLLM's.
NULLABLE = {
    "completion": "best_of echo frequency_penalty logit_bias logprobs max_tokens n presence_penalty seed stop stream "
    "stream_options suffix temperature top_p user top_k min_p repetition_penalty min_tokens ignore_eos model",
    "chat": "audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens "
    "metadata modalities n parallel_tool_calls prediction presence_penalty reasoning_effort response_format seed top_k "
    "service_tier stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity "
    "web_search_options",
}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_null_is_absent(client, endpoint):
    path, asked = ENDPOINTS[endpoint]
    asked = {**asked, "max_tokens": 8, "temperature": 0.9, "seed": 3}
    nothing = dict.fromkeys(NULLABLE[endpoint].split())
    assert said(client.post(path, json={**nothing, **asked})) == said(client.post(path, json=asked))
    streamed = client.post(path, json={**asked, "stream": True, "stream_options": {"include_usage": None}})
    assert streamed.status_code == 200 and "[DONE]" in streamed.text


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("name", sorted(PASSED_OVER))
def test_fields_that_cannot_change_the_text_are_passed_over(client, endpoint, name):
    path, asked = ENDPOINTS[endpoint]
    assert client.post(path, json={**asked, "max_tokens": 1, name: {"a": 1}}).status_code == 200


@pytest.mark.parametrize("endpoint", ["completion", *exhaustive("chat")])
@pytest.mark.parametrize("name", sorted({*REFUSED, "guided_json", "guided_regex", "guided_anything"}))
def test_fields_that_would_change_the_text_are_refused_unless_they_are_off(client, endpoint, name):
    path, asked = ENDPOINTS[endpoint]
    if (endpoint, name) == ("completion", "echo"):
        return
    for off in (None, {}, [], "", 0, False, *REFUSED.get(name, ())):
        found = client.post(path, json={**asked, "max_tokens": 1, name: off})
        assert found.status_code == 200, (off, found.text)
    error = client.post(path, json={**asked, name: "x"})
    assert error.status_code == 400 and name in error.json()["error"]["message"]
    assert error.json()["error"]["param"] == name


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("temprature", 1, "'temperature'"),
        ("max_token", 5, "'max_tokens'"),
        ("repeat_penalty", 1.2, "'repetition_penalty'"),
        ("n_predict", 5, "'max_tokens'"),
        ("stream_option", {}, "'stream_options'"),
        ("quux_zzz", 1, "want some of"),
    ],
)
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_misspelt_fields_are_reported_with_the_nearest(client, endpoint, name, value, hint):
    path, asked = ENDPOINTS[endpoint]
    error = client.post(path, json={**asked, name: value})
    assert error.status_code == 400
    assert repr(name) in error.json()["error"]["message"] and hint in error.json()["error"]["message"]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"temperature": 1e-8}, 200),
        ({"temperature": 2.5}, 200),
        ({"temperature": -0.1}, 400),
        ({"top_p": 0}, 200),
        ({"top_p": 1.1}, 400),
        ({"top_k": -1}, 200),
        ({"seed": -1}, 200),
        ({"seed": -(2**63)}, 200),
        ({"seed": 2**63 - 1}, 200),
        ({"seed": 2**64}, 400),
        ({"frequency_penalty": 2}, 200),
        ({"frequency_penalty": 2.1}, 400),
        ({"presence_penalty": -2.1}, 400),
        ({"logit_bias": {"5": 100}}, 200),
        ({"logit_bias": {"5": 101}}, 400),
        ({"logit_bias": {"a": 1}}, 400),
        ({"logit_bias": {"999999999": 1}}, 400),
        ({"stop": []}, 200),
        ({"stop": [""]}, 400),
        ({"n": 2, "best_of": 2}, 200),
        ({"max_tokens": 2, "min_tokens": 3}, 400),
    ],
)
def test_ranges_are_those_of_peers(client, endpoint, given, status):
    path, asked = ENDPOINTS[endpoint]
    found = client.post(path, json={"max_tokens": 2, **asked, **given})
    assert found.status_code == status, found.text


def test_a_tiny_temperature_is_greedy_and_top_p_0_is_the_best_token(client, lm):
    want = lm.generate("hello", max_new_tokens=12, temperature=0.0).text
    for given in ({"temperature": 1e-8}, {"temperature": 1.0, "top_p": 0}):
        assert said(client.post("completions", json={"prompt": "hello", "max_tokens": 12, **given})) == want


def test_defaults_are_the_protocols(client, lm, monkeypatch):
    """A completion has 16 tokens; a chat goes on to the model's end, or fills the context. The temperature is 1."""
    monkeypatch.setattr(lm, "defaults", Defaults(bos_token_id=lm.defaults.bos_token_id))
    completion = client.post("completions", json={"prompt": "hello", "seed": 9}).json()
    assert completion["usage"]["completion_tokens"] == 16
    assert completion["choices"][0]["text"] == lm.generate("hello", max_new_tokens=16, temperature=1.0, seed=9).text
    chat = client.post("chat/completions", json={"messages": HELLO, "seed": 9}).json()
    assert chat["usage"]["total_tokens"] == lm.context and chat["choices"][0]["finish_reason"] == "length"
    assert (
        chat["choices"][0]["message"]["content"] == lm.generate(HELLO, max_new_tokens=-1, temperature=1.0, seed=9).text
    )


@pytest.mark.parametrize(
    ("defaults", "temperature"),
    [
        ({"sampling": {"temperature": 0.6}}, 0.6),
        ({"do_sample": True, "sampling": {"temperature": 0.6}}, 0.6),
        ({"do_sample": False}, 0.0),
        ({}, 1.0),
    ],
)
def test_the_models_own_defaults_come_first(client, lm, monkeypatch, defaults, temperature):
    monkeypatch.setattr(lm, "defaults", Defaults(**defaults))
    found = said(client.post("completions", json={"prompt": "hello", "seed": 4}))
    assert found == lm.generate("hello", max_new_tokens=16, temperature=temperature, seed=4).text


def test_no_tokens_score_a_prompt(client, lm):
    """As lm-eval asks for log-likelihoods."""
    asked = {"prompt": [5, 9, 17, 33], "max_tokens": 0, "temperature": 0, "logprobs": 1, "echo": True}
    found = client.post("completions", json=asked).json()
    reported, want = found["choices"][0]["logprobs"], lm.generate([5, 9, 17, 33], max_new_tokens=1, prompt_logprobs=1)
    assert reported["token_logprobs"] == [None, *(t.logprob for t in want.prompt_logprobs)]
    assert found["usage"]["completion_tokens"] == 0 and found["choices"][0]["finish_reason"] == "length"
    assert found["choices"][0]["text"] == lm.decode([5, 9, 17, 33])
