"""What is checked and then awaited is checked again: requests that meet in every order, and a server that ends."""

import asyncio
import logging
import signal
from types import SimpleNamespace

import pytest

import swiftk
from swiftk.testing import make_tiny

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from fastapi import WebSocketDisconnect

from gates import ASKED, Gate, post, until
from serving import app_of, client_of
from swiftk.serve import running
from swiftk.serve.refusals import Refused

FRAME = {"prompt": [5, 6], "options": {"max_new_tokens": 3, "temperature": 0.0}}


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    folder = make_tiny(tmp_path_factory.mktemp("interleaving") / "tiny", "llama3")
    with swiftk.load(folder, device="cpu", threads=1) as found:
        yield found


def test_two_bursts_share_the_room(lm, monkeypatch):
    """All of them pass the first look, since none has started; as many start as there is room for."""
    gate, most = Gate(monkeypatch, lm, "start"), []

    async def run(app):
        texts = app.state.server.texts
        async with client_of(app) as client:
            answers = [post(client, n=2) for _ in range(4)]
            await gate.reached(2)
            await until(lambda: sum(answer.done() for answer in answers) == 2)
            most.append(len(texts))
            gate.open()
            done = await asyncio.gather(*answers)
            assert sorted(answer.status_code for answer in done) == [200, 200, 429, 429]
            assert len(texts) == 0 and (await post(client, n=4)).status_code == 200

    with app_of(lm, most_texts=4) as app:
        asyncio.run(run(app))
    assert most == [4]


def test_a_start_that_fails_gives_its_places_back(lm, monkeypatch):
    async def run(app):
        async with client_of(app) as client:
            monkeypatch.setattr(lm, "start", lambda prepared: 1 // 0)
            assert (await post(client, n=4)).status_code == 500
            monkeypatch.undo()
            assert (await post(client, n=4)).status_code == 200

    with app_of(lm, most_texts=4) as app:
        asyncio.run(run(app))


def test_a_request_that_is_being_read_when_the_server_drains_is_refused(lm, monkeypatch):
    gate = Gate(monkeypatch, lm, "prepare")

    async def run(app):
        server = app.state.server
        async with client_of(app) as client:
            answer = post(client)
            await gate.reached()
            await server.drain(60)
            gate.open()
            refused = await answer
            assert refused.status_code == 503 and refused.headers["retry-after"] == "5"
            assert len(server.texts) == 0

    with app_of(lm) as app:
        asyncio.run(run(app))


def test_a_text_that_is_starting_when_the_server_drains_ends_as_it_should(lm, monkeypatch):
    want = lm.generate([5, 6], max_new_tokens=3, temperature=0.0, ignore_eos=True)
    gate = Gate(monkeypatch, lm, "start")

    async def run(app):
        server = app.state.server
        async with client_of(app) as client:
            answer = post(client)
            await gate.reached()
            draining = asyncio.create_task(server.drain(60))
            await until(lambda: server.state == "draining")
            assert not draining.done() and len(server.texts) == 1
            gate.open()
            assert (await answer).json()["choices"][0]["text"] == want.text
            await draining

    with app_of(lm) as app:
        asyncio.run(run(app))


def test_a_server_that_drains_can_be_asked(lm, monkeypatch, caplog):
    gate = Gate(monkeypatch, lm, "step")

    async def run(app):
        server = app.state.server
        async with client_of(app) as client:
            answer = post(client)
            await gate.reached()
            draining = asyncio.create_task(server.drain(60))
            await until(lambda: server.state == "draining")
            health = await client.get("/health")
            assert (health.status_code, health.text) == (503, "draining")
            assert (await client.get("/metrics")).status_code == (await client.get("/v1/models")).status_code == 200
            refused = await post(client)
            assert refused.status_code == 503 and refused.headers["retry-after"] == "5"
            assert not draining.done()
            gate.open()
            assert (await answer).status_code == 200
            await draining

    with app_of(lm) as app, caplog.at_level(logging.INFO, "swiftk.serve"):
        asyncio.run(run(app))
    assert "stopping: 1 texts may end within 60 s, new ones are refused" in caplog.messages


@pytest.mark.parametrize("stream", [True, False])
def test_texts_fail_once_the_grace_is_over(lm, monkeypatch, stream):
    """No client takes what it has for the whole text."""
    gate = Gate(monkeypatch, lm, "step")

    async def run(app):
        server = app.state.server
        async with client_of(app) as client:
            answer = post(client, stream=stream)
            await gate.reached()
            draining = asyncio.create_task(server.drain(0))
            failed = await answer
            assert failed.status_code == (200 if stream else 503)
            assert "the server ended before the text did" in failed.text and "[DONE]" not in failed.text
            gate.open()
            await draining
            assert len(server.texts) == 0

    with app_of(lm) as app:
        asyncio.run(run(app))


class TestRemote:
    """The same for texts that a client drafts for."""

    def test_it_drains(self, lm, monkeypatch):
        gate = Gate(monkeypatch, lm, "prepare")

        async def run(server):
            begun = asyncio.create_task(server.remotes._begin(FRAME))
            await gate.reached()
            await server.drain(60)
            gate.open()
            with pytest.raises(Refused, match="stopping"):
                await begun

        with app_of(lm) as app:
            asyncio.run(run(app.state.server))

    def test_the_room_is_shared(self, lm, monkeypatch):
        gate, rounds = Gate(monkeypatch, lm, "prepare"), Gate(monkeypatch, lm, "step")

        async def run(server):
            begun = [asyncio.create_task(server.remotes._begin(FRAME)) for _ in range(3)]
            await gate.reached(3)
            gate.open()
            found = await asyncio.gather(*begun, return_exceptions=True)
            assert sorted(type(one).__name__ for one in found) == ["Refused", "str", "str"]
            rounds.open()
            await until(lambda: len(server.texts) == 0)

        with app_of(lm, most_texts=2) as app:
            asyncio.run(run(app.state.server))

    @pytest.mark.parametrize(
        "frame", [{"options": {}}, {"prompt": "a"}, {**FRAME, "options": 3}, {**FRAME, "features": 5}]
    )
    def test_what_a_frame_raises_is_its_fault(self, lm, frame):
        with app_of(lm) as app, pytest.raises(Refused) as refused:
            asyncio.run(app.state.server.remotes._begin(frame))
        assert refused.value.status == 400

    def test_a_client_that_leaves_before_it_knows_its_text_leaves_nothing(self, lm):
        from swiftk.remote import frames

        class Socket(SimpleNamespace):
            async def accept(self):
                pass

            async def receive_bytes(self):
                return frames.pack("begin", version=max(frames.VERSIONS), **FRAME)

            async def send_bytes(self, data):
                raise WebSocketDisconnect

            close = accept

        async def run(server):
            await server.remotes.serve(Socket(scope={"note": SimpleNamespace(prompt_tokens=0, new_tokens=0)}))
            await until(lambda: not server.remotes._held and len(server.texts) == 0)

        with app_of(lm, kept=0.0) as app:
            asyncio.run(run(app.state.server))


def test_the_first_signal_drains_and_the_second_one_ends_the_process(lm, monkeypatch):
    raised: list[int] = []
    monkeypatch.setattr(running, "os", SimpleNamespace(_exit=raised.append))
    gate = Gate(monkeypatch, lm, "step")

    async def run(app):
        http = running.Running(app, app.state.server, 75)
        http._loop = asyncio.get_running_loop()
        async with client_of(app) as client:
            answer = post(client)
            await gate.reached()
            http.handle_exit(signal.SIGTERM, None)
            assert (await client.get("/health")).text == "draining" and not raised and not http.should_exit
            http.handle_exit(signal.SIGTERM, None)
            assert raised == [128 + signal.SIGTERM]
            gate.open()
            assert (await answer).status_code == 200
            await http._draining
            assert http.should_exit

    with app_of(lm) as app:
        asyncio.run(run(app))


class TestLog:
    def lines(self, lm, caplog, *asked, **settings):
        async def run(app):
            async with client_of(app) as client:
                for method, path, how in asked:
                    await client.request(method, path, headers={"X-Request-Id": "id-1"}, **how)

        with app_of(lm, **settings) as app, caplog.at_level(logging.DEBUG, "swiftk.serve"):
            asyncio.run(run(app))
        return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "swiftk.serve"]

    def test_a_line_for_each_request(self, lm, caplog):
        asked = [("POST", "/v1/completions", {"json": {**ASKED, "n": 2, "stream": stream}}) for stream in (True, False)]
        for level, line in self.lines(lm, caplog, *asked):
            assert level == "INFO" and line.startswith("id-1 127.0.0.1 POST /v1/completions 200, ")
            assert line.endswith(" s, 4+6 tokens")

    def test_a_refusal_says_why(self, lm, caplog):
        ((level, line),) = self.lines(
            lm, caplog, ("POST", "/v1/completions", {"json": {"prompt": "a\nb", "model": "x\ny"}})
        )
        assert level == "INFO" and " 404, " in line and "model is 'x\\ny', want 'tiny'" in line and "\n" not in line

    def test_keys_too(self, lm, caplog):
        ((level, line),) = self.lines(lm, caplog, ("GET", "/v1/models", {}), api_key="secret")
        assert level == "INFO" and " 401, " in line and "API key" in line and "secret" not in line

    def test_probes_are_details(self, lm, caplog):
        asked = [("GET", path, {}) for path in ("/health", "/metrics", "/", "/version")]
        assert {level for level, _ in self.lines(lm, caplog, *asked)} == {"DEBUG"}

    def test_a_path_writes_no_line_of_its_own(self, lm, caplog):
        ((_, line),) = self.lines(lm, caplog, ("GET", "/v1/%0aINFO%20all%20is%20well", {}))
        assert "\n" not in line and "%0AINFO" in line


def test_an_engine_that_has_ended_shows(lm):
    async def run(app):
        app.state.server.texts.close()
        async with client_of(app) as client:
            health = await client.get("/health")
            assert (health.status_code, health.text) == (503, "failed")

    with app_of(lm) as app:
        asyncio.run(run(app))
