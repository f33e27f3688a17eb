"""The openai package against a server: what it reads is what generate() says."""

import asyncio
import json

import pytest

import swiftk
from swiftk.testing import make_tiny

pytest.importorskip("fastapi")
pytest.importorskip("llguidance")
openai = pytest.importorskip("openai")
from pydantic import BaseModel, ConfigDict, Field  # noqa: E402

from serving import TOOL_TEMPLATE, serving  # noqa: E402

HELLO = [{"role": "user", "content": "hello"}]
SAMPLED = {"temperature": 1.0, "seed": 11}


class Day(BaseModel):
    model_config = ConfigDict(extra="forbid")
    day: int = Field(ge=1, le=31)
    wet: bool


TOOL = {"type": "function", "function": {"name": "weather", "parameters": Day.model_json_schema()}}


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    folder = make_tiny(tmp_path_factory.mktemp("clients") / "tiny", "llama3", layers=3)
    (folder / "chat_template.jinja").write_text(TOOL_TEMPLATE)
    return swiftk.load(folder, device="cpu", threads=1)


@pytest.fixture(scope="module")
def url(lm):
    with serving(lm) as (found, _):
        yield f"{found}/v1"


@pytest.fixture(scope="module")
def client(url):
    with openai.OpenAI(base_url=url, api_key="any") as found:
        yield found


def test_completions_and_chats(client, lm):
    want = lm.generate("hello", max_new_tokens=20, **SAMPLED)
    found = client.completions.create(model="tiny", prompt="hello", max_tokens=20, logprobs=2, **SAMPLED)
    assert found.choices[0].text == want.text and found.usage.completion_tokens == len(want.tokens)
    reported = lm.generate("hello", max_new_tokens=20, logprobs=2, **SAMPLED).logprobs
    assert found.choices[0].logprobs.token_logprobs == [one.logprob for one in reported]
    want = lm.generate(HELLO, max_new_tokens=20, **SAMPLED)
    found = client.chat.completions.create(model="tiny", messages=HELLO, max_completion_tokens=20, **SAMPLED)
    assert found.choices[0].message.content == want.text and found.choices[0].finish_reason == "length"
    assert [one.id for one in client.models.list()] == ["tiny"]


def test_streams(client, lm):
    want = lm.generate(HELLO, max_new_tokens=30, **SAMPLED)
    stream = client.chat.completions.create(
        model="tiny", messages=HELLO, max_tokens=30, stream=True, stream_options={"include_usage": True}, **SAMPLED
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == want.text
    assert chunks[-1].usage.completion_tokens == len(want.tokens)


def test_many_at_once_from_an_event_loop(url, lm):
    want = [lm.generate(HELLO, max_new_tokens=25, temperature=1.0, seed=i).text for i in range(12)]

    async def one(client, seed):
        if seed % 2:
            asked = {"model": "tiny", "messages": HELLO, "max_tokens": 25, "temperature": 1.0, "seed": seed}
            stream = await client.chat.completions.create(**asked, stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        found = await client.chat.completions.create(
            model="tiny", messages=HELLO, max_tokens=25, temperature=1.0, seed=seed
        )
        return found.choices[0].message.content

    async def every():
        async with openai.AsyncOpenAI(base_url=url, api_key="any") as client:
            return await asyncio.gather(*(one(client, seed) for seed in range(12)))

    assert asyncio.run(every()) == want


def test_tools(client):
    asked = {"model": "tiny", "messages": HELLO, "tools": [TOOL], "tool_choice": "required", "max_tokens": 80}
    found = client.chat.completions.create(**asked, **SAMPLED).choices[0]
    (call,) = found.message.tool_calls
    assert found.finish_reason == "tool_calls" and call.function.name == "weather"
    day = Day.model_validate_json(call.function.arguments)
    chunks = [c.choices[0] for c in client.chat.completions.create(**asked, stream=True, **SAMPLED)]
    (streamed,) = [c.delta.tool_calls[0] for c in chunks if c.delta.tool_calls]
    assert Day.model_validate_json(streamed.function.arguments) == day
    said = [
        *HELLO,
        {"role": "assistant", "tool_calls": [call.model_dump()]},
        {"role": "tool", "tool_call_id": call.id, "content": "sun"},
    ]
    more = client.chat.completions.create(model="tiny", messages=said, tools=[TOOL], max_tokens=5, **SAMPLED)
    assert more.choices[0].message.role == "assistant"


def test_a_schema_that_the_client_parses(client, lm):
    found = client.chat.completions.parse(
        model="tiny", messages=HELLO, response_format=Day, max_tokens=60, **SAMPLED
    ).choices[0]
    assert isinstance(found.message.parsed, Day)
    form = {"type": "json_schema", "schema": Day.model_json_schema()}
    assert json.loads(found.message.content).keys() == {"day", "wet"}
    want = lm.generate(HELLO, max_new_tokens=60, response_format=form, speculate=False, **SAMPLED).text
    assert Day.model_validate_json(want) == found.message.parsed


def test_errors_are_the_clients_own(client):
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.completions.create(model="tiny", prompt="a", temperature=-1)
    with pytest.raises(openai.NotFoundError, match="want 'tiny'"):
        client.completions.create(model="gpt", prompt="a")
