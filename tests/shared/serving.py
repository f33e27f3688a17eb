"""A server in a thread, and what its streams say."""

import asyncio
import contextlib
import json
import re
import socket
import threading

import httpx
import uvicorn

from patience import PATIENCE, until
from swiftk import remote
from swiftk.serve.app import make_app
from swiftk.serve.settings import ServeSettings

# Tools and messages, written plainly.
TOOL_TEMPLATE = (
    "{% for t in tools or [] %}tool {{ t.function | tojson }}\n{% endfor %}"
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant] "
)


@contextlib.contextmanager
def app_of(lm, **settings):
    """An app without a socket."""
    app = make_app(lm, ServeSettings(**settings))
    yield app
    app.state.server.texts.close()


def client_of(app):
    """Asynchronous, in the loop that it is used in. An error of the app is the test's."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test", timeout=PATIENCE)


def ask(app, method, path, **how):
    """One answer, in a loop of its own."""

    async def one():
        async with client_of(app) as client:
            return await client.request(method, path, **how)

    return asyncio.run(one())


@contextlib.contextmanager
def serving(lm, **settings):
    """The address of a server in a thread, and its app."""
    app = make_app(lm, ServeSettings(**settings))
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", app.state.server
    finally:
        server.should_exit = True
        until(lambda: not thread.is_alive())


def dial(url, *drafter, **options):
    """remote.connect(), patient: a busy machine breaks no line."""
    return remote.connect(url, *drafter, **{"patience": PATIENCE, **options})


def lines(response):
    """Objects of a stream, which ends as it should."""
    data = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert data[-1] == "[DONE]"
    return [json.loads(one) for one in data[:-1]]


def figures(client):
    """What /metrics says, by name and labels; all have the model's name."""
    said = [line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines() if line[0] != "#"]
    assert all("model_name=" in name for name, _ in said)
    return {
        re.sub(r"\{\}", "", re.sub(r'model_name="[^"]*",?', "", name)).replace(",}", "}"): float(x) for name, x in said
    }
