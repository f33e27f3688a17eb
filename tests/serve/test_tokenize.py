"""/tokenize and /detokenize read what the completions and chat endpoints read."""

import pytest

import swiftk
from swiftk.testing import make_tiny

pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")

from patience import PATIENCE  # noqa: E402
from serving import TOOL_TEMPLATE, serving  # noqa: E402

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
MESSAGES = [{"role": "user", "content": [{"type": "text", "text": "hi</s>"}]}, {"role": "assistant", "content": "yes"}]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = make_tiny(tmp_path_factory.mktemp("tokenize") / "tiny", "llama3", layers=1)
    (folder / "chat_template.jinja").write_text(
        TOOL_TEMPLATE.replace("[assistant] ", "{% if add_generation_prompt %}[assistant] {% endif %}")
    )
    lm = swiftk.load(folder, device="cpu", threads=1)
    with serving(lm) as (url, _), httpx.Client(base_url=url, timeout=PATIENCE) as client:
        yield client, lm


def ids(client, **asked):
    response = client.post("/tokenize", json=asked)
    assert response.status_code == 200, response.text
    found = response.json()
    assert found["count"] == len(found["tokens"]) and found["max_model_len"] == 512
    return found["tokens"]


def test_a_prompt_as_completions_read_it(served):
    client, lm = served
    prompt = "<s>a</s>b"
    assert (
        ids(client, prompt=prompt)
        == lm.encode(prompt, parse_special=True)
        == [1, 1, *lm.tokenizer.split("a"), 2, *lm.tokenizer.split("b")]
    )
    assert ids(client, prompt=prompt, add_special_tokens=False) == lm.encode(prompt, parse_special=True)[1:]
    assert ids(client, prompt=prompt, parse_special=False) == lm.encode(prompt)
    for more in ({}, {"parse_special": False}, {"add_special_tokens": False}):
        used = client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 1, **more}).json()["usage"]
        assert used["prompt_tokens"] == len(ids(client, prompt=prompt, **more))


def test_messages_as_chat_reads_them(served):
    client, lm = served
    read = [{"role": "user", "content": "hi</s>"}, MESSAGES[1]]
    for tools in (None, TOOLS):
        for more in (
            {},
            {"add_generation_prompt": False},
            {"add_generation_prompt": False, "continue_final_message": True},
            {"add_special_tokens": True},
        ):
            asked = {"messages": MESSAGES, **more, **({"tools": tools} if tools else {})}
            found = ids(client, **asked)
            assert found == lm.tokenizer.encode_chat(read, tools, **more)
            used = client.post("/v1/chat/completions", json={**asked, "max_tokens": 1}).json()["usage"]
            assert used["prompt_tokens"] == len(found)


def test_and_back(served):
    client = served[0]
    tokens = ids(client, prompt="a</s>é")
    assert client.post("/detokenize", json={"tokens": tokens}).json() == {"prompt": "aé"}
    spelled = client.post("/detokenize", json={"tokens": tokens, "skip_special_tokens": False}).json()
    assert spelled == {"prompt": "<s>a</s>é"}
    strings = client.post("/tokenize", json={"prompt": "a</s>", "return_token_strs": True}).json()["token_strs"]
    assert strings == ["<s>", "a", "</s>"]


@pytest.mark.parametrize(
    "body", [{}, {"prompt": "a", "messages": MESSAGES}, {"prompt": 5}, {"messages": []}, {"prompt": None}]
)
def test_what_is_no_request(served, body):
    assert served[0].post("/tokenize", json=body).status_code == 400
    assert served[0].post("/detokenize", json={"tokens": [10**9]}).status_code == 400
