"""A server beside the model that it serves: what comes over HTTP with a seed is what generate() says."""

import asyncio
import subprocess
import sys
import threading
from itertools import count

import pytest

import swiftk
from swiftk.running.stream import Stream
from swiftk.testing import make_tiny

pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

from debug_words import ask  # noqa: E402
from patience import PATIENCE, until  # noqa: E402
from serving import figures, lines, serving  # noqa: E402

TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant] "
MANY = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    model = make_tiny(tmp_path_factory.mktemp("served") / "tiny", "llama3", layers=3)
    (model / "chat_template.jinja").write_text(TEMPLATE)
    return model


@pytest.fixture(scope="module")
def lm(folder):
    return swiftk.load(folder, device="cpu", threads=1)


@pytest.fixture(scope="module")
def served(lm):
    with serving(lm) as (url, server), httpx.Client(base_url=url, timeout=PATIENCE) as client:
        yield client, server


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1.0, "top_p": 0.9, "seed": 7}])
def test_completions_are_what_generate_says(served, lm, sampling):
    client, _ = served
    want = lm.generate("hello world", max_new_tokens=20, **sampling)
    asked = {"model": "tiny", "prompt": "hello world", "max_tokens": 20, **sampling}
    whole = client.post("/v1/completions", json=asked).json()
    assert whole["choices"][0]["text"] == want.text and whole["object"] == "text_completion"
    assert whole["choices"][0]["finish_reason"] == want.finish_reason
    assert whole["usage"]["completion_tokens"] == len(want.tokens)
    assert whole["usage"]["prompt_tokens"] == len(want.prompt_tokens)
    stream = client.post("/v1/completions", json={**asked, "stream": True, "stream_options": {"include_usage": True}})
    *chunks, last = lines(stream)
    assert "".join(c["choices"][0]["text"] for c in chunks) == want.text
    assert [c["choices"][0]["finish_reason"] for c in chunks][-1] == want.finish_reason
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == len(want.tokens)


def test_chats_are_what_generate_says(served, lm):
    client, _ = served
    messages = [{"role": "user", "content": "hello"}]
    want = lm.generate(messages, max_new_tokens=16, temperature=0.0, logprobs=3)
    asked = {"messages": messages, "max_completion_tokens": 16, "temperature": 0, "logprobs": True, "top_logprobs": 3}
    choice = client.post("/v1/chat/completions", json=asked).json()["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": want.text}
    reported = choice["logprobs"]["content"]
    assert [one["logprob"] for one in reported] == [t.logprob for t in want.logprobs]
    assert all(len(one["top_logprobs"]) == 3 for one in reported)
    parts = [{"role": "user", "content": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]}]
    again = client.post("/v1/chat/completions", json={**asked, "messages": parts, "stream": True})
    chunks = lines(again)
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == want.text


def test_n_texts_have_seeds_that_count_up(served, lm):
    client, _ = served
    options = {"temperature": 1.0, "seed": 2**64 - 1}
    want = lm.generate([5, 9, 17], n=3, max_new_tokens=12, **options)
    asked = {"prompt": [5, 9, 17], "max_tokens": 12, "n": 3, **options}
    assert [c["text"] for c in client.post("/v1/completions", json=asked).json()["choices"]] == [r.text for r in want]
    chunks = lines(client.post("/v1/completions", json={**asked, "stream": True}))
    for i, result in enumerate(want):
        assert "".join(c["choices"][0]["text"] for c in chunks if c["choices"][0]["index"] == i) == result.text


def test_several_prompts_and_an_echo(served, lm):
    client, _ = served
    prompts = ["one two", "three"]
    want = [lm.generate(p, max_new_tokens=9, temperature=0.0) for p in prompts]
    found = client.post("/v1/completions", json={"prompt": prompts, "max_tokens": 9, "temperature": 0, "echo": True})
    assert [c["text"] for c in found.json()["choices"]] == [p + r.text for p, r in zip(prompts, want)]


def test_an_echo_with_logprobs_scores_the_prompt(served, lm):
    """As lm-eval's local-completions asks for it, and reads it."""
    client, _ = served
    asked = {"prompt": [5, 9, 17, 33], "max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": True, "seed": 1}
    reported = client.post("/v1/completions", json=asked).json()["choices"][0]["logprobs"]
    want = lm.generate([5, 9, 17, 33], max_new_tokens=1, temperature=0.0, logprobs=1, prompt_logprobs=1)
    both = [*want.prompt_logprobs, *want.logprobs]
    assert reported["token_logprobs"] == [None, *(t.logprob for t in both)]
    assert reported["top_logprobs"][0] is None and all(len(top) == 1 for top in reported["top_logprobs"][1:])
    assert len(reported["tokens"]) == 5


def test_many_clients_at_a_time_each_get_their_own(served, lm):
    client, server = served
    asked = [{"prompt": [3 + i, 7, 11], "max_tokens": 10 + i % 7, "temperature": 1.0, "seed": i} for i in range(MANY)]

    async def all_of_them():
        async with httpx.AsyncClient(base_url=client.base_url, timeout=PATIENCE) as many:
            return await asyncio.gather(*(many.post("/v1/completions", json=one) for one in asked))

    for one, found in zip(asked, asyncio.run(all_of_them()), strict=True):
        want = lm.generate(one["prompt"], max_new_tokens=one["max_tokens"], temperature=1.0, seed=one["seed"])
        assert found.json()["choices"][0]["text"] == want.text
    assert len(server.texts) == 0


@pytest.mark.parametrize("stream", [True, False])
def test_who_leaves_takes_no_rows(lm, stream, monkeypatch):
    """The engine stands still from its 20th round on until the server has learned that the client left."""
    n, rounds, cancelled, step, cancel = (1 if stream else 4), count(), [], lm.step, Stream.cancel

    def held():
        if next(rounds) == 20:
            until(lambda: len(cancelled) >= n)
        step()

    monkeypatch.setattr(lm, "step", held)
    monkeypatch.setattr(Stream, "cancel", lambda self: (cancelled.append(self), cancel(self)))
    asked = {"prompt": [5, 6], "max_tokens": 500, "temperature": 1.0, "seed": 1, "ignore_eos": True, "n": n}
    asked |= {"stream": stream, "speculate": False}

    async def ask_and_leave(url, server):
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:
            if stream:
                async with client.stream("POST", "/v1/completions", json=asked) as response:
                    await anext(response.aiter_text())
                    assert len(server.texts) == 1
            else:
                asking = asyncio.create_task(client.post("/v1/completions", json=asked))
                await asyncio.to_thread(until, lambda: len(server.texts) == n)
                asking.cancel()

    with serving(lm) as (url, server):
        asyncio.run(ask_and_leave(url, server))
        until(lambda: len(server.texts) == 0)
    assert len(cancelled) >= n and next(rounds) < 30


class TestRefusals:
    @pytest.mark.parametrize(
        ("path", "body", "status", "words", "param", "code"),
        [
            ("completions", {"prompt": "a", "model": "gpt-5"}, 404, "'gpt-5', want 'tiny'", "model", "model_not_found"),
            ("completions", {"prompt": "a", "temperature": -1}, 400, "temperature=-1.0", "temperature", None),
            ("completions", {"prompt": [5, 999999]}, 400, "token 1 is 999999", None, None),
            ("completions", {"max_tokens": 5}, 400, "prompt: ", "prompt", "missing_required_parameter"),
            ("completions", {"prompt": "a", "n": 0}, 400, "n: ", "n", "invalid_value"),
            ("completions", {"prompt": "a", "n": "many"}, 400, "n: ", "n", "invalid_type"),
            ("completions", {"prompt": ["a", "b"], "stream": True}, 400, "stream with 2 prompts", None, None),
            ("completions", {"prompt": "a", "echo": True, "logprobs": 1, "stream": True}, 400, "with echo", None, None),
            ("chat/completions", {"messages": []}, 400, "messages", "messages", "empty_array"),
            (
                "chat/completions",
                {"messages": [{"role": "user", "content": [{"type": "audio"}]}]},
                400,
                "audio",
                None,
                None,
            ),
            ("chat/completions", {"messages": [{"content": "x"}]}, 400, "no 'role'", None, None),
        ],
    )
    def test_say_what_is_wrong(self, served, path, body, status, words, param, code):
        client, server = served
        response = client.post(f"/v1/{path}", json=body)
        error = response.json()["error"]
        assert response.status_code == status and words in error["message"], error
        assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)
        assert len(server.texts) == 0

    def test_no_json(self, served):
        response = served[0].post("/v1/completions", content=b"{", headers={"content-type": "application/json"})
        assert response.status_code == 400 and "error" in response.json()

    def test_key_size_and_number(self, lm):
        limits = {"api_key": "secret", "most_bytes": 300, "most_texts": 2, "most_tokens": 4, "names": ("other",)}
        with serving(lm, **limits) as (url, _), httpx.Client(base_url=url, timeout=PATIENCE) as client:
            assert client.get("/health").text == "ok"
            refused = client.get("/v1/models")
            assert refused.status_code == 401 and refused.json()["error"]["code"] == "invalid_api_key"
            client.headers["Authorization"] = "Bearer secret"
            assert client.get("/v1/models").json()["data"][0]["id"] == "other"
            assert client.post("/v1/completions", json={"prompt": "a" * 400}).status_code == 413
            busy = client.post("/v1/completions", json={"prompt": "a", "n": 3})
            assert busy.status_code == 429 and busy.headers["retry-after"] == "1"
            short = client.post("/v1/completions", json={"prompt": [5], "max_tokens": 100, "ignore_eos": True})
            assert short.json()["usage"]["completion_tokens"] == 4


def test_metrics_add_up(lm):
    with serving(lm) as (url, _), httpx.Client(base_url=url, timeout=PATIENCE) as client:
        for i in range(5):
            client.post("/v1/completions", json={"prompt": [5, 6, 7], "max_tokens": 6, "ignore_eos": True, "seed": i})
        page = figures(client)
        assert page["vllm:generation_tokens_total"] == 30 and page["vllm:prompt_tokens_total"] == 15
        assert page['vllm:request_success_total{finished_reason="length"}'] == 5
        assert page["vllm:num_requests_running"] == 0


def test_what_operators_ask(served, lm):
    client, _ = served
    found = client.post("/tokenize", json={"prompt": "hello"}).json()
    assert found["tokens"] == lm.encode("hello") and found["count"] == len(found["tokens"])
    assert client.post("/detokenize", json={"tokens": found["tokens"]}).json()["prompt"] == "hello"
    assert client.get("/version").json() == {"version": swiftk.__version__}


def test_who_proposed_what_is_reported_where_asked(folder, monkeypatch):
    ask(monkeypatch, "clock=plan:.6/row:.03/far:.09")  # on a busy machine little is drafted
    asked = {"prompt": "hello hello hello", "max_tokens": 30, "temperature": 0, "stream": True, "speculate": "always"}
    with (
        swiftk.load(folder, device="cpu", threads=1) as lm,
        serving(lm) as (url, _),
        httpx.Client(base_url=url, timeout=PATIENCE) as client,
    ):
        want = lm.generate("hello hello hello", max_new_tokens=30, temperature=0.0)
        chunks = lines(client.post("/v1/completions", json={**asked, "stream_options": {"include_sources": True}}))
        plain = lines(client.post("/v1/completions", json=asked))
        usage = lines(client.post("/v1/completions", json={**asked, "stream_options": {"include_usage": True}}))[-1]
    assert set(usage["metrics"]["speculative_decoding"]["accepted_by_plan"]) <= {"int4 copy"}
    pieces = [piece for chunk in chunks for piece in chunk["choices"][0]["pieces"]]
    assert "".join(text for text, _ in pieces) == want.text and len(pieces) == len(want.tokens)
    sources = {source for _, source in pieces} - {None}
    assert sources and sources <= {"plan", "suffix", "recycle"}
    assert "pieces" not in plain[0]["choices"][0]


def test_the_page_loads_nothing_from_elsewhere(served):
    page = served[0].get("/")
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    assert "http://" not in page.text and "https://" not in page.text and "src=" not in page.text


def test_an_end_waits_for_texts_and_refuses_new_ones(lm):
    with serving(lm) as (url, server), httpx.Client(base_url=url, timeout=PATIENCE) as client:
        server.state = "draining"
        assert client.get("/health").status_code == 503
        refused = client.post("/v1/completions", json={"prompt": "a"})
        assert refused.status_code == 503 and refused.headers["retry-after"] == "5"
        server.state = "ok"
        asked = {"prompt": [5], "max_tokens": 200, "ignore_eos": True, "stream": True, "temperature": 0}
        with client.stream("POST", "/v1/completions", json=asked) as response:
            parts = response.iter_text()
            text = next(parts)
            drained = threading.Thread(target=lambda: asyncio.run(server.drain(PATIENCE)))
            drained.start()
            text += "".join(parts)
        drained.join()
        assert text.rstrip().endswith("[DONE]")


def test_a_model_is_loaded_while_the_server_runs(folder):
    """And whoever asks meanwhile is answered so."""
    may = threading.Event()

    def load():
        assert may.wait(PATIENCE)
        return swiftk.load(folder, device="cpu", threads=1)

    with serving(load) as (url, server), httpx.Client(base_url=url, timeout=PATIENCE) as client:
        assert (client.get("/health").status_code, client.get("/health").text) == (503, "loading")
        refused = client.post("/v1/completions", json={"prompt": "a"})
        assert refused.status_code == 503 and refused.headers["retry-after"] == "5"
        assert client.get("/v1/models").status_code == 503 and client.get("/metrics").status_code == 200
        may.set()
        until(lambda: client.get("/health").status_code == 200)
        assert client.post("/v1/completions", json={"prompt": [5]}).status_code == 200
    server.lm.close()


def test_the_command_ends_with_a_line_where_a_model_does_not_load(tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{}")
    command = [sys.executable, "-m", "swiftk", "serve", str(broken), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 2 and "config" in done.stderr and "Traceback" not in done.stderr


def test_the_openai_client(served, lm):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{served[0].base_url}/v1/", api_key="any")
    want = lm.generate("hello", max_new_tokens=12, temperature=0.0)
    stream = client.completions.create(model="tiny", prompt="hello", max_tokens=12, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == want.text
    with pytest.raises(openai.NotFoundError, match="want 'tiny'"):
        client.completions.create(model="gpt", prompt="a")
