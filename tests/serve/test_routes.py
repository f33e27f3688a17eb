"""Errors that programs read, and HTTP around the routes."""

import asyncio
import json

import pytest

import swiftk
from swiftk.testing import make_tiny

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from serving import app_of, ask, client_of, lines
from swiftk.cli.common import megabytes
from swiftk.cli.serve import needs
from swiftk.serve.running import Running

ASKED = {"prompt": "a", "max_tokens": 1}
PAGE = "https://page.example"


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    folder = make_tiny(tmp_path_factory.mktemp("routes") / "tiny", "llama3")
    with swiftk.load(folder, device="cpu", threads=1) as found:
        yield found


@pytest.fixture(scope="module")
def app(lm):
    with app_of(lm, names=("first", "org/second")) as found:
        yield found


def error_of(answer):
    """OpenAI's error object, whole."""
    error = answer.json()["error"]
    assert answer.json().keys() == {"error"} and error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == ("invalid_request_error" if answer.status_code < 500 else "server_error")
    return error


@pytest.mark.parametrize("path", ["/v1/nope", "/v1", "/nope/", "/v1/completions/", "/v1/engines/x/completions"])
def test_an_unknown_route(app, path):
    answer = ask(app, "GET", path)
    assert answer.status_code == 404 and f"unknown URL (GET {path})" in error_of(answer)["message"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/completions", "POST"),
        ("HEAD", "/v1/completions", "POST"),
        ("DELETE", "/v1/models/first", "GET, HEAD"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("PUT", "/health", "GET, HEAD"),
        ("OPTIONS", "/v1/chat/completions", "POST"),
    ],
)
def test_a_wrong_method(app, method, path, allow):
    answer = ask(app, method, path)
    assert answer.status_code == 405 and answer.headers["allow"] == allow
    if method != "HEAD":
        assert error_of(answer)["code"] == "method_not_supported"


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/v1/models/first", "/metrics", "/version", "/"])
def test_head_is_get_without_a_body(app, path):
    got, head = ask(app, "GET", path), ask(app, "HEAD", path)
    assert head.status_code == 200 and head.content == b"" != got.content
    assert head.headers["content-type"] == got.headers["content-type"] and "content-length" in head.headers


@pytest.mark.parametrize("content", [b"{", b"", b"nonsense", b"\xff\xfe", b'{"prompt": NaN}', b"[1]", b"null", b'"a"'])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"])
def test_a_body_that_is_no_json_object(app, path, content):
    answer = ask(app, "POST", path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400 and error_of(answer)["message"]


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (None, 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("application/vnd.api+json", 200),
    ],
)
def test_content_types(app, kind, status):
    headers = {} if kind is None else {"Content-Type": kind}
    answer = ask(app, "POST", "/v1/completions", content=json.dumps(ASKED), headers=headers)
    assert answer.status_code == status
    if status == 415:
        said = "is missing" if kind is None else f"is {kind!r}"
        assert f"Content-Type {said}" in error_of(answer)["message"] and "application/json" in answer.text


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (None, 401), ("", 401), ("Bearer", 401), ("Bearer wrong", 401), ("Basic secret", 401), ("secret", 401),
        ("Bearer secret ", 200), ("Bearer secret", 200), ("bearer secret", 200), ("BEARER  secret", 200),
        ("Bearer sécret".encode(), 401),
    ],
)  # fmt: skip
def test_keys(lm, given, status):
    with app_of(lm, api_key="secret") as app:
        answer = ask(app, "GET", "/v1/models", headers={} if given is None else {"Authorization": given})
        assert answer.status_code == status
        if status == 401:
            assert answer.headers["www-authenticate"] == "Bearer" and error_of(answer)["code"] == "invalid_api_key"
        for path in "/health", "/metrics", "/version", "/":
            assert ask(app, "GET", path).status_code == 200


def test_models_by_all_their_names(app, lm):
    cards = ask(app, "GET", "/v1/models").json()["data"]
    assert [card["id"] for card in cards] == ["first", "org/second"]
    for card in cards:
        assert card["object"] == "model" and card["max_model_len"] == lm.context
        assert ask(app, "GET", f"/v1/models/{card['id']}").json() == card
        assert ask(app, "POST", "/v1/completions", json={**ASKED, "model": card["id"]}).json()["model"] == card["id"]
    assert ask(app, "POST", "/v1/completions", json=ASKED).json()["model"] == "first"
    for answer in (
        ask(app, "GET", "/v1/models/third"),
        ask(app, "POST", "/v1/completions", json={**ASKED, "model": "third"}),
    ):
        error = error_of(answer)
        assert answer.status_code == 404 and (error["code"], error["param"]) == ("model_not_found", "model")


def test_a_model_in_this_folder_has_its_name(lm, monkeypatch):
    monkeypatch.chdir(lm.folder)
    with swiftk.load(".", device="cpu", threads=1) as here, app_of(here) as app:
        assert ask(app, "GET", "/v1/models").json()["data"][0]["id"] == "tiny"


def test_scripts_of_other_pages(lm):
    """With CORS all answers may be read by the pages that are named, and by no others."""
    preflight = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}
    preflight |= {"Access-Control-Request-Headers": "authorization,content-type"}
    with app_of(lm, cors_origins=(PAGE,), api_key="secret") as app:
        allowed = ask(app, "OPTIONS", "/v1/chat/completions", headers=preflight)
        assert allowed.status_code == 200 and allowed.headers["access-control-allow-origin"] == PAGE
        assert "authorization" in allowed.headers["access-control-allow-headers"].lower()
        refused = ask(app, "GET", "/v1/models", headers={"Origin": PAGE})
        assert refused.status_code == 401 and refused.headers["access-control-allow-origin"] == PAGE
        other = ask(app, "OPTIONS", "/v1/chat/completions", headers={**preflight, "Origin": "https://other"})
        assert "access-control-allow-origin" not in other.headers
    with app_of(lm, cors_origins=("*",)) as app:
        assert ask(app, "GET", "/v1/models", headers={"Origin": "x"}).headers["access-control-allow-origin"] == "*"
    with app_of(lm) as app:
        assert "access-control-allow-origin" not in ask(app, "GET", "/v1/models", headers={"Origin": PAGE}).headers


def test_streams_pass_proxies_as_they_come(app):
    stream = ask(app, "POST", "/v1/completions", json={**ASKED, "stream": True})
    assert stream.headers["x-accel-buffering"] == "no" and stream.headers["cache-control"] == "no-cache"
    assert stream.headers["content-type"].startswith("text/event-stream") and lines(stream)


def test_a_path_that_a_proxy_adds(lm):
    """Whether it takes the path away again or not."""
    with app_of(lm, root_path="/llm", api_key="secret") as app:
        key = {"Authorization": "Bearer secret"}
        for path in "/v1/models", "/llm/v1/models":
            assert ask(app, "GET", path).status_code == 401
            assert ask(app, "GET", path, headers=key).status_code == 200
        for path in "/health", "/llm/health":
            assert ask(app, "GET", path).text == "ok"
        assert ask(app, "GET", "/llm/openapi.json", headers=key).json()["servers"] == [{"url": "/llm"}]


def test_connections_stay_open_for_longer_than_those_of_proxies(app):
    """Which take 60 seconds: a connection that ends first on this side loses a request now and then."""
    assert Running(app, app.state.server, 75).config.timeout_keep_alive == 75


@pytest.mark.parametrize("copies", [["own"], ["int4"], ["int8", "int4"]])
def test_what_a_server_needs_is_a_line(lm, copies):
    with swiftk.load(lm.folder, device="cpu", threads=1, draft_weights=copies) as one:
        model, copied = one.model, sum(one.model.copies.values())
        said = f" + {megabytes(copied)} of copies ({', '.join(copies)})" if copies != ["own"] else ""
        weights, kv = megabytes(model.weight_bytes), megabytes(one.kv["bytes"])
        memory = f"{weights} of bfloat16 weights{said} + at most {kv} of K and V"
        assert needs(one) == f"{memory}; 1 threads, {one.model.isa} kernels, context {one.context}"
        assert (copied > 0) == bool(said)


def test_a_template_from_a_file(lm, tmp_path):
    file = tmp_path / "other.jinja"
    file.write_text("{% for m in messages %}<{{ m.content }}>{% endfor %}")
    messages = [{"role": "user", "content": "hello"}]
    with swiftk.load(lm.folder, device="cpu", threads=1, chat_template=file) as other:
        assert other.tokenizer.render(messages) == "<hello>" != lm.tokenizer.render(messages)
        with app_of(other) as app:
            asked = {"messages": messages, "max_tokens": 3, "temperature": 0}
            assert ask(app, "POST", "/v1/chat/completions", json=asked).json()["usage"]["prompt_tokens"] == len(
                other.tokenizer.encode("<hello>", special=False)
            )
    with pytest.raises(swiftk.InvalidArgument, match="is no file"):
        swiftk.load(lm.folder, chat_template=tmp_path / "none")


def test_the_description_names_every_body(app):
    """Clients and fuzzers read it."""
    shown = ask(app, "GET", "/openapi.json").json()
    for path, name in (("/v1/completions", "CompletionRequest"), ("/v1/chat/completions", "ChatRequest")):
        schema = shown["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert (
            schema == {"$ref": f"#/components/schemas/{name}"} and "properties" in shown["components"]["schemas"][name]
        )
    text = json.dumps(shown)
    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert names <= shown["components"]["schemas"].keys()


def test_identifiers_are_unique_over_replicas(lm):
    """Each server would count from 1 else."""
    ids = []
    for _ in range(2):
        with app_of(lm) as app:
            for _ in range(2):
                answer = ask(app, "POST", "/v1/completions", json=ASKED)
                ids += [answer.json()["id"], answer.headers["x-request-id"]]
    assert len(set(ids)) == len(ids) and all(len(one) >= 16 for one in ids)


@pytest.mark.parametrize("given", ["a-b.c_1", "x" * 65, "two words", "line%0a", ""])
def test_a_request_keeps_the_id_that_its_client_gives(app, given):
    found = ask(app, "GET", "/health", headers={"X-Request-Id": given}).headers["x-request-id"]
    assert (found == given) == (given == "a-b.c_1")


def test_openai_s_client_knows_the_errors(lm):
    openai = pytest.importorskip("openai")

    async def run(app):
        async with client_of(app) as http:
            client = openai.AsyncOpenAI(base_url="http://test/v1", api_key="secret", http_client=http, max_retries=0)
            said = await client.completions.with_raw_response.create(model="tiny", prompt="a", max_tokens=1)
            assert (
                said.request_id == said.headers["x-request-id"] and (await client.models.retrieve("tiny")).id == "tiny"
            )
            with pytest.raises(openai.BadRequestError) as long:
                await client.completions.create(model="tiny", prompt=[5] * lm.context)
            assert (long.value.code, long.value.param) == ("context_length_exceeded", "prompt")
            with pytest.raises(openai.NotFoundError) as unknown:
                await client.completions.create(model="gpt", prompt="a")
            assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
            with pytest.raises(openai.NotFoundError):
                await client.models.retrieve("org/gpt")
            with pytest.raises(openai.BadRequestError) as wrong:
                await client.completions.create(model="tiny", prompt="a", temperature=-1)
            assert wrong.value.param == "temperature"
            client.api_key = "other"
            with pytest.raises(openai.AuthenticationError) as refused:
                await client.models.list()
            assert refused.value.code == "invalid_api_key"

    with app_of(lm, api_key="secret") as app:
        asyncio.run(run(app))
