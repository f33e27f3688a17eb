"""What goes wrong around a server: others finish, errors are typed, nothing is left behind."""

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

import swiftk
from marks import exhaustive
from swiftk.testing import make_tiny

pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")

from patience import PATIENCE, until  # noqa: E402
from serving import figures, lines, serving  # noqa: E402

ASKED = {"prompt": [5, 6, 7], "max_tokens": 40, "temperature": 1.0, "ignore_eos": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("faults") / "tiny", "llama3", layers=2)


@pytest.fixture(scope="module")
def lm(folder):
    return swiftk.load(folder, device="cpu", threads=1)


@pytest.fixture
def served(lm):
    with serving(lm) as (url, server), httpx.Client(base_url=url, timeout=PATIENCE) as client:
        yield client, server


def wanted(lm, seed, tokens=40):
    options = {"max_new_tokens": tokens, "temperature": 1.0, "ignore_eos": True}
    return lm.generate([5, 6, 7], seed=seed, speculate=False, **options).text


@pytest.mark.parametrize("clients", [60, *exhaustive(1000)])
def test_clients_that_leave_at_any_moment(lm, clients, monkeypatch):
    """Their rows are given back, figures add up, and who stays gets the text. Moments are rounds of the engine."""
    want = {seed: wanted(lm, seed) for seed in range(5)}
    draw, step, rounds, leaving = random.Random(1), lm.step, count(1), []

    def counted():
        step()
        due = next(rounds)
        for at, loop, event in leaving:
            if at == due:
                loop.call_soon_threadsafe(event.set)

    monkeypatch.setattr(lm, "step", counted)

    async def one(client, seed):
        asked = {**ASKED, "seed": seed % 5, "stream": bool(seed % 2)}
        if not seed % 2:
            answer = await client.post("/v1/completions", json=asked)
            text = answer.json()["choices"][0]["text"] if answer.status_code == 200 else None
        else:
            async with client.stream("POST", "/v1/completions", json=asked) as answer:
                await answer.aread()
            text = "".join(c["choices"][0]["text"] for c in lines(answer)) if answer.status_code == 200 else None
        assert text in (None, want[seed % 5])
        return answer.status_code

    async def until_it_leaves(client, seed):
        asked = asyncio.create_task(one(client, seed))
        if draw.random() < 0.8:
            event = asyncio.Event()
            leaving.append((draw.randint(1, 60), asyncio.get_running_loop(), event))
            leaves = asyncio.create_task(event.wait())
            await asyncio.wait({asked, leaves}, return_when=asyncio.FIRST_COMPLETED)
            leaves.cancel()
            if not asked.done():
                asked.cancel()
                return 0
        return await asked

    async def every(url):
        # A connection is used once: one that rests may be closed by the server while the client writes to it.
        limits = httpx.Limits(max_connections=64, max_keepalive_connections=0)
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE, limits=limits) as client:
            return await asyncio.gather(*(until_it_leaves(client, seed) for seed in range(clients)))

    with serving(lm) as (url, server):
        statuses = asyncio.run(every(url))
        assert set(statuses) <= {0, 200, 429} and 200 in statuses and 0 in statuses
        until(lambda: len(server.texts) == 0)
        with httpx.Client(base_url=url, timeout=PATIENCE) as client:
            shown = figures(client)
        ended, left = (shown[f'vllm:request_success_total{{finished_reason="{why}"}}'] for why in ("length", "abort"))
        assert statuses.count(200) <= ended and ended + left <= clients and shown["vllm:num_requests_running"] == 0
        assert 40 * ended <= shown["vllm:generation_tokens_total"] <= 40 * (ended + left)
    assert wanted(lm, 3) == want[3]
    assert lm.last_round["waiting"] == 0


def test_who_reads_slowly_keeps_nobody(served, lm):
    client, _ = served
    with client.stream("POST", "/v1/completions", json={**ASKED, "seed": 1, "stream": True, "max_tokens": 300}) as slow:
        for seed in range(4):
            text = client.post("/v1/completions", json={**ASKED, "seed": seed}).json()["choices"][0]["text"]
            assert text == wanted(lm, seed)
        slow.read()
    assert "".join(c["choices"][0]["text"] for c in lines(slow)) == wanted(lm, 1, 300)


def test_full_memory(folder, lm):
    """Texts give way to each other, and each is what it is alone; a text that cannot fit at all is refused."""
    block = 64 * 2 * 2 * lm.config["num_layers"] * lm.config["num_kv_heads"] * lm.config["head_dim"]
    small = swiftk.load(folder, device="cpu", threads=1, context=256, kv_memory=8 * block)
    with serving(small, most_texts=64) as (url, server), httpx.Client(base_url=url, timeout=PATIENCE) as client:
        answer = client.post("/v1/completions", json={**ASKED, "n": 12, "seed": 0, "max_tokens": 150}).json()
        texts = [choice["text"] for choice in answer["choices"]]
        assert texts == [wanted(lm, seed, 150) for seed in range(12)]
        refused = client.post("/v1/completions", json={**ASKED, "prompt": [5] * 300})
        assert refused.status_code == 400 and "context" in refused.json()["error"]["message"]
        assert len(server.texts) == 0


@pytest.mark.parametrize(("error", "status"), [(MemoryError("no more"), 503), (RuntimeError("broken"), 500)])
@pytest.mark.parametrize("stream", [False, True])
def test_a_round_that_fails_ends_its_texts_alone(served, lm, monkeypatch, error, status, stream):
    client, server = served
    step, failures = lm.step, iter([error])

    def fails():
        if (now := next(failures, None)) is not None:
            raise now
        step()

    monkeypatch.setattr(lm, "step", fails)
    failed = client.post("/v1/completions", json={**ASKED, "seed": 1, "stream": stream})
    shown = json.loads(failed.text.removeprefix("data: "))["error"]
    assert failed.status_code == (200 if stream else status)
    assert shown["type"] == "server_error" and shown["code"] is None
    said = str(error) if status == 503 else "internal error"
    assert said in shown["message"] and (status == 503) == (str(error) in shown["message"])
    monkeypatch.undo()
    assert client.post("/v1/completions", json={**ASKED, "seed": 1}).json()["choices"][0]["text"] == wanted(lm, 1)
    assert len(server.texts) == 0


DYING = """
import os, signal, sys
from swiftk.api import LM
from swiftk.cli import main
step, left = LM.step, iter(range({rounds}))
LM.step = lambda self: step(self) if next(left, None) is not None else os.kill(os.getpid(), signal.SIGKILL)
sys.exit(main())
"""


@contextmanager
def process(folder, port=None, rounds=0, **env):
    """(a server in a process of its own, its address), once it answers. rounds: in which it kills itself."""
    if port is None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
    started = ["-c", DYING.format(rounds=rounds)] if rounds else ["-m", "swiftk"]
    command = [sys.executable, *started, "serve", str(folder), "--port", str(port), "--threads", "1"]
    env = {name: value for name, value in {**os.environ, **env}.items() if value is not None}
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env)
    url = f"http://127.0.0.1:{port}"

    def answers():
        try:
            return httpx.get(f"{url}/health", timeout=PATIENCE).status_code == 200
        except httpx.HTTPError:
            return False

    try:
        until(answers)
        yield server, url
    finally:
        server.kill()
        server.wait()
        server.stderr.close()


def test_sigterm_under_load(folder, lm):
    """Texts that are under way end as they should, and so does the process."""

    async def one(client, seed):
        asked = {**ASKED, "seed": seed, "stream": True, "max_tokens": 200}
        async with client.stream("POST", "/v1/completions", json=asked) as answer:
            began.append(seed)
            if len(began) == 6:
                server.send_signal(signal.SIGTERM)
            await answer.aread()
            return "".join(c["choices"][0]["text"] for c in lines(answer))

    async def every():
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:
            return await asyncio.gather(*(one(client, seed) for seed in range(6)))

    began = []
    with process(folder) as (server, url):
        assert asyncio.run(every()) == [wanted(lm, seed, 200) for seed in range(6)]
        assert server.wait(PATIENCE) == 0, server.stderr.read()


def test_a_server_that_is_killed(folder, lm):
    """No client takes what it has for the whole text; another server, at the same port, gives all of it."""
    asked = {**ASKED, "seed": 3, "max_tokens": 900}
    streamed = {"json": {**asked, "stream": True}, "timeout": PATIENCE}
    with process(folder, rounds=100) as (server, url):
        with pytest.raises(httpx.TransportError), httpx.stream("POST", f"{url}/v1/completions", **streamed) as broken:
            for _ in broken.iter_lines():
                pass
        assert server.wait(PATIENCE) == -signal.SIGKILL
    with process(folder, httpx.URL(url).port) as (server, url):
        again = httpx.post(f"{url}/v1/completions", json=asked, timeout=PATIENCE).json()
    assert again["choices"][0]["text"] == wanted(lm, 3, 900)


def test_a_cache_that_cannot_be_written(folder, lm):
    """What was learned cannot be kept: the texts are as they are."""
    with process(folder, SWIFTK_CACHE="/dev/full/cache", SWIFTK_LEARNED=None) as (server, url):
        answer = httpx.post(f"{url}/v1/completions", json={**ASKED, "seed": 2}, timeout=PATIENCE)
        assert answer.json()["choices"][0]["text"] == wanted(lm, 2)
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE) == 0
        assert b"Traceback" not in server.stderr.read()


ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=6)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)
FIELDS = [
    "prompt",
    "messages",
    "model",
    "n",
    "stream",
    "stream_options",
    "stop",
    "seed",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "typical_p",
    "speculate",
    "echo",
    "repetition_penalty",
    "stop_token_ids",
    "ignore_eos",
    "response_format",
    "structured_outputs",
    "logprobs",
    "tools",
    "tool_choice",
    "top_logprobs",
]


def test_any_body_is_answered(served, lm):
    """With what is wrong with it, or a text; never with a fault of the server's own."""
    client, server = served

    @given(
        st.sampled_from(["completions", "chat/completions"]),
        st.dictionaries(st.sampled_from(FIELDS), ANYTHING, max_size=4),
        st.booleans(),
    )
    def ask(path, body, whole):
        asks = {"prompt": "a", "messages": [{"role": "user", "content": "a"}]} if whole else {}
        content = json.dumps({"max_tokens": 2, **asks, **body})
        answer = client.post(f"/v1/{path}", content=content, headers={"content-type": "application/json"})
        assert answer.status_code < 500 or answer.status_code == 503, answer.text
        if answer.status_code >= 400:
            assert answer.json()["error"]["message"]

    ask()
    assert client.post("/v1/completions", json={**ASKED, "seed": 1}).json()["choices"][0]["text"] == wanted(lm, 1)
    assert len(server.texts) == 0
