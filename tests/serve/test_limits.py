"""Limits are counted as bodies come in, and hold where many come at once."""

import asyncio
import json
import threading

import pytest

import swiftk
from patience import PATIENCE, until
from swiftk.testing import make_tiny

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from gates import Gate
from serving import app_of, ask, client_of

JSON = [(b"content-type", b"application/json")]
CHUNKED = [*JSON, (b"transfer-encoding", b"chunked")]


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    folder = make_tiny(tmp_path_factory.mktemp("limits") / "tiny", "llama3")
    with swiftk.load(folder, device="cpu", threads=1) as found:
        yield found


class Line:
    """A request over ASGI, whose client sends pieces when it is let to."""

    def __init__(self, app, headers=CHUNKED, path="/v1/completions"):
        self.taken, self.sent = 0, []
        self.pieces = asyncio.Queue()
        self._scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": headers,
            "client": ("test", 1), "server": ("test", 80),
        }  # fmt: skip
        self.running = asyncio.create_task(app(self._scope, self._receive, self._send))

    async def _receive(self):
        piece = await self.pieces.get()
        if piece is None:
            return {"type": "http.disconnect"}
        self.taken += 1
        return {"type": "http.request", "body": piece, "more_body": piece != b""}

    async def _send(self, message):
        self.sent.append((message, self.taken))

    def send(self, *pieces):
        for piece in pieces:
            self.pieces.put_nowait(piece)

    async def until_taken(self, pieces):
        await asyncio.to_thread(until, lambda: self.taken >= pieces)

    @property
    def status(self):
        return self.sent[0][0]["status"]

    @property
    def headers(self):
        return dict(self.sent[0][0]["headers"])

    @property
    def error(self):
        return json.loads(b"".join(m.get("body", b"") for m, _ in self.sent))["error"]["message"]


@pytest.mark.parametrize("headers", [CHUNKED, [*JSON, (b"content-length", b"7")]])
def test_a_body_without_end_is_refused_as_soon_as_it_is_too_long(lm, headers):
    """Then the rest is thrown away until the client is done: closing before loses the answer on its way."""

    async def run(app):
        line = Line(app, headers)
        line.send(*[b"x" * 1000] * 40, None)
        await line.running
        return line

    with app_of(lm, most_bytes=4500) as app:
        line = asyncio.run(run(app))
        assert line.status == 413 and "more than 4500 bytes" in line.error
        assert line.headers.get(b"connection") == (b"close" if headers is CHUNKED else None)
        assert [taken for _, taken in line.sent] == [5, 5, 40]  # status, message, end
        assert [message.get("more_body") for message, _ in line.sent] == [None, True, None]
        assert app.state.server.intake.held == (0, 0)
        assert ask(app, "POST", "/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200


@pytest.mark.parametrize(("size", "closes"), [(b"30", False), (b"100000", True)])
def test_a_connection_outlives_the_refusal_of_a_short_body(lm, size, closes):
    async def run(app):
        line = Line(app, [*JSON, (b"content-length", size)])
        line.send(b"x" * 30, b"")
        await line.running
        assert line.status == 401 and line.taken == 2
        assert (line.headers.get(b"connection") == b"close") == closes

    with app_of(lm, api_key="secret") as app:
        asyncio.run(run(app))


def test_bytes_of_many_bodies_are_counted_together(lm):
    async def run(app):
        lines = [Line(app) for _ in range(5)]
        for line in lines:
            line.send(b" " * 3000)
            await line.until_taken(1)
        await lines[4].until_taken(1)
        fifth = lines.pop()
        fifth.send(None)
        await fifth.running
        assert fifth.status == 503 and fifth.headers[b"retry-after"] == b"1"
        assert app.state.server.intake.held == (4, 12000)
        for line in lines:
            line.send(b'{"prompt": "a", "max_tokens": 1}', b"")
        await asyncio.gather(*(line.running for line in lines))
        assert [line.status for line in lines] == [200] * 4
        assert app.state.server.intake.held == (0, 0)

    with app_of(lm, most_held=13000) as app:
        asyncio.run(run(app))


def test_requests_that_are_being_read_are_counted(lm):
    async def run(app):
        lines = [Line(app) for _ in range(3)]
        for line in lines:
            line.send(b" ")
            await line.until_taken(1)
        refused = Line(app, JSON)
        await refused.running
        assert refused.status == 429 and refused.headers[b"retry-after"] == b"1"
        for line in lines:
            line.send(None)
        await asyncio.gather(*(line.running for line in lines))
        assert [line.status for line in lines] == [499] * 3
        assert app.state.server.intake.held == (0, 0)

    with app_of(lm, most_texts=3) as app:
        asyncio.run(run(app))


def test_a_body_that_does_not_come_is_given_up(lm):
    async def run(app):
        line = Line(app)
        await line.running
        assert line.status == 408 and app.state.server.intake.held == (0, 0)

    with app_of(lm, most_seconds=0) as app:
        asyncio.run(run(app))


@pytest.mark.parametrize("stream", [True, False])
def test_who_leaves_while_the_text_starts_takes_no_rows(lm, monkeypatch, stream):
    """Nothing of the answer was sent by then."""
    starts, rounds = Gate(monkeypatch, lm, "start"), Gate(monkeypatch, lm, "step")

    async def run(app):
        line = Line(app)
        asked = {"prompt": [5, 6], "max_tokens": 300, "ignore_eos": True, "stream": stream}
        line.send(json.dumps(asked).encode(), b"")
        await starts.reached()
        line.send(None, None, None)
        starts.open()
        await line.running
        rounds.open()
        await asyncio.to_thread(until, lambda: len(app.state.server.texts) == 0)
        async with client_of(app) as client:
            page = (await client.get("/metrics")).text
        assert 'finished_reason="abort",model_name="tiny"} 1.0' in page

    with app_of(lm) as app:
        asyncio.run(run(app))


def test_few_are_tokenised_at_a_time_and_health_is_answered_meanwhile(lm, monkeypatch):
    may, inside, most = threading.Event(), [0], [0]
    prepare, lock = lm.prepare, threading.Lock()

    def waits(*asked):
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        assert may.wait(PATIENCE)
        with lock:
            inside[0] -= 1
        return prepare(*asked)

    async def run(app):
        async with client_of(app) as client:
            asked = {"prompt": "a", "max_tokens": 1}
            answers = [asyncio.create_task(client.post("/v1/completions", json=asked)) for _ in range(8)]
            try:
                await asyncio.to_thread(until, lambda: inside[0] == 2)
                assert (await client.get("/health")).text == "ok"
            finally:
                may.set()
            assert [answer.status_code for answer in await asyncio.gather(*answers)] == [200] * 8

    monkeypatch.setattr(lm, "prepare", waits)
    with app_of(lm) as app:
        asyncio.run(run(app))
    assert most[0] == 2


def test_what_cannot_fit_is_not_tokenised(lm, monkeypatch):
    """In text, in messages, and as ids."""
    text = "one two three " * 50_000
    monkeypatch.setattr(lm.tokenizer, "_load", lambda parse_special: pytest.fail("it was tokenised"))
    messages = [{"role": "user", "content": text}]
    with app_of(lm) as app:
        for path, body, param in (
            ("completions", {"prompt": text}, "prompt"),
            ("completions", {"prompt": [5] * 100_000}, "prompt"),
            ("chat/completions", {"messages": messages}, "messages"),
        ):
            answer = ask(app, "POST", f"/v1/{path}", json=body)
            error = answer.json()["error"]
            assert answer.status_code == 400 and error["code"] == "context_length_exceeded" and error["param"] == param
            assert f"This model's maximum context length is {lm.context} tokens. However, " in error["message"]


def test_what_just_does_not_fit_is_said_exactly(lm):
    with app_of(lm) as app:
        error = ask(app, "POST", "/v1/completions", json={"prompt": [5] * lm.context}).json()["error"]
    assert error["code"] == "context_length_exceeded" and f"your prompt has {lm.context} tokens" in error["message"]


def test_a_prompt_of_several_texts_is_tokenised_once(lm, monkeypatch):
    calls, encode = [], lm.tokenizer.encode
    monkeypatch.setattr(lm.tokenizer, "encode", lambda *asked, **how: calls.append(asked) or encode(*asked, **how))
    with app_of(lm) as app:
        assert ask(app, "POST", "/v1/completions", json={"prompt": "a b", "n": 5, "max_tokens": 1}).status_code == 200
    assert len(calls) == 1


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":['])
def test_depth_of_json_is_bounded(lm, opening):
    content = '{"prompt": "a", "logit_bias": ' + opening * 200
    brackets = '{"prompt": "' + "[{" * 110 + '", "max_tokens": 1}'  # inside a text they are text
    with app_of(lm) as app:
        for one, status in (content, 400), (brackets, 200):
            answer = ask(app, "POST", "/v1/completions", content=one, headers={"Content-Type": "application/json"})
            assert answer.status_code == status, answer.text
        assert (
            "levels"
            in ask(app, "POST", "/v1/completions", content=content, headers={"Content-Type": "application/json"}).text
        )
