"""No answer depends on who asked before: whatever is cached has all in its key that the answer depends on."""

import asyncio
import random

import pytest

import swiftk
from swiftk.testing import make_tiny

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
pytest.importorskip("llguidance")

from serving import TOOL_TEMPLATE, app_of, client_of

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
MESSAGES = [{"role": "user", "content": "hello <s> there"}]


def form(*names):
    properties = {name: {"const": name} for name in names}
    schema = {"type": "object", "properties": properties, "required": sorted(names), "additionalProperties": False}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


def requests(special):
    """(path, body) that share prompts, forms and settings in part."""
    prompt = f"one two {special} three"
    for parse in True, False:
        yield "completions", {"prompt": prompt, "parse_special": parse, "logprobs": 2, "echo": parse}
        yield "completions", {"prompt": prompt, "parse_special": parse, "add_special_tokens": not parse}
        yield "completions", {"prompt": prompt, "skip_special_tokens": parse, "n": 2, "temperature": 1.0, "seed": 3}
    for names in ("a", "b"), ("b", "a"), ("a",):
        yield "completions", {"prompt": "x", **form(*names), "max_tokens": 40}
        yield "chat/completions", {"messages": MESSAGES, **form(*names), "max_tokens": 40}
    for more in {}, {"tools": [TOOL]}, {"tools": [TOOL], "tool_choice": "required"}, {"frequency_penalty": 1.5}:
        yield "chat/completions", {"messages": MESSAGES, "logprobs": True, "top_logprobs": 2, **more}
    for stop in [], ["e"], ["e", "t"]:
        yield "completions", {"prompt": prompt, "stop": stop}
    yield "completions", {"prompt": prompt, "logit_bias": {"30": 100}}
    yield "completions", {"prompt": [5, 9, 17], "min_tokens": 6}


def answers(folder, asked, at_a_time):
    """Of a model that has answered nobody yet, in the order of `asked`; what a text is, and nothing of how it came."""

    async def run(app):
        async with client_of(app) as client:

            async def one(path, body):
                answer = await client.post(f"/v1/{path}", json={"temperature": 0, "max_tokens": 8, **body})
                assert answer.status_code == 200, answer.text
                said = answer.json()
                for choice in said["choices"]:
                    for call in choice.get("message", {}).get("tool_calls", ()):
                        del call["id"]
                return said["choices"], said["usage"]["prompt_tokens"]

            found = []
            for i in range(0, len(asked), at_a_time):
                found += await asyncio.gather(*(one(*request) for request in asked[i : i + at_a_time]))
            return found

    with swiftk.load(folder, device="cpu", threads=1) as lm, app_of(lm) as app:
        return asyncio.run(run(app))


@pytest.mark.parametrize("at_a_time", [1, 6])
def test_answers_are_the_same_in_every_order(tmp_path, at_a_time):
    folder = make_tiny(tmp_path / "tiny", "llama3", layers=2)
    (folder / "chat_template.jinja").write_text(TOOL_TEMPLATE)
    special = next(iter(swiftk.load(folder, device="cpu", threads=1).tokenizer.added(True).values()))
    asked = list(requests(special))
    want = answers(folder, asked, 1)
    assert len({repr(one) for one in want}) > len(asked) * 3 // 4  # they differ, each for its own reason
    for seed in range(2):
        order = random.Random(seed).sample(range(len(asked)), len(asked))
        found = answers(folder, [asked[i] for i in order], at_a_time)
        for i, one in zip(order, found, strict=True):
            assert one == want[i], asked[i]


def test_threads_share_a_tokenizer(tmp_path):
    """What one of them asks for is no setting of the other's."""
    lm = swiftk.load(make_tiny(tmp_path / "tiny", "llama3"), device="cpu", threads=1)
    special = next(iter(lm.tokenizer.added(True).values()))
    text = f"one {special} two" * 20
    want = {parse: lm.encode(text, parse_special=parse) for parse in (True, False)}
    assert want[True] != want[False]

    async def run():
        tasks = [asyncio.to_thread(lm.encode, text, parse_special=bool(i % 2)) for i in range(64)]
        return await asyncio.gather(*tasks)

    assert asyncio.run(run()) == [want[bool(i % 2)] for i in range(64)]
