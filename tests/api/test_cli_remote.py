"""swiftk chat --url against servers of all kinds: each answers by a script."""

import contextlib
import io
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from swiftk.cli import main, sse
from swiftk.cli.conversation import ContextFull
from swiftk.cli.remote import Remote
from swiftk.errors import InvalidArgument

HTML = b"<!doctype html><html><body><h1>502 Bad Gateway</h1></body></html>"


def delta(text, **more):
    return json.dumps({"choices": [{"index": 0, "delta": {"content": text}, **more}]}, ensure_ascii=False)


def data(*objects, end="\n\n"):
    return "".join(f"data: {one}{end}" for one in objects)


DONE = data("[DONE]")


class Script:
    """Requests and answers of a server. An answer is (status, type, chunks); chunks that are None break the line."""

    def __init__(self, *answers, models=("m",)):
        self.answers, self.asked, self.keys = list(answers), [], []
        listed = {"data": [{"id": name, "max_model_len": 99} for name in models]}
        self.models = models if isinstance(models, tuple) and models[:1] == (404,) else (200, json.dumps(listed))

    def answer(self, path, body):
        if path.endswith("/models"):
            status, body = self.models[:2]
            return status, "application/json", [body]
        self.asked.append(json.loads(body))
        body = self.answers.pop(0)
        return (
            body if isinstance(body, tuple) else (200, "text/event-stream", body if isinstance(body, list) else [body])
        )


@contextlib.contextmanager
def scripted(*answers, **how):
    """(url, script) of a server on this machine."""
    script = Script(*answers, **how)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            script.keys.append(self.headers.get("Authorization"))
            status, kind, chunks = script.answer(self.path, self.rfile.read(int(self.headers.get("Content-Length", 0))))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for chunk in chunks:
                if chunk is None:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                chunk = chunk.encode() if isinstance(chunk, str) else chunk
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.write(b"0\r\n\r\n")

        do_POST = do_GET

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", script
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def talk(capsys, monkeypatch):
    """talk(url, *lines, more) -> (status, stdout, stderr) of swiftk chat --url."""

    def run(url, *lines, more=()):
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        return main(["chat", "--url", url, *more]), *capsys.readouterr()

    return run


# Server-Sent Events.

STREAMS = {
    b"data: a\n\ndata: b\n\n": ["a", "b"],
    b"data:a\n\ndata:  b\n\n": ["a", " b"],
    b"data: a\r\n\r\ndata: b\r\n\r\n": ["a", "b"],
    b"data: a\r\rdata: b\r\r": ["a", "b"],
    b"data: a\r\n\ndata: b\n\r\n": ["a", "b"],
    b"data: a\r\ndata: b\r\n\r\n": ["a\nb"],
    b": ping\n\ndata: a\n: ping\n\n:\n\n": ["a"],
    b"data: a\ndata: b\ndata\ndata:\n\n": ["a\nb\n\n"],
    b"\xef\xbb\xbfdata: a\n\n": ["a"],
    b"data: \xef\xbb\xbfa\n\n": ["\ufeffa"],
    "data: a\u2028b\x85c\x0b\n\n".encode(): ["a\u2028b\x85c\x0b"],
    "data: \u00e9\u20ac\U0001f600\n\n".encode(): ["\u00e9\u20ac\U0001f600"],
    b"data: \xff\n\n": ["\ufffd"],
    b"id: 1\nretry: 5\nunknown: x\nno colon\n\ndata: a\nid: 2\n\n": ["a"],
    b"data: a\n\ndata: b\n": ["a"],
    b"\n\n\n": [],
    b"": [],
}


@pytest.mark.parametrize("stream", STREAMS, ids=repr)
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_events_of_a_stream(stream, size):
    chunks = (stream[i : i + size] for i in range(0, len(stream), size))
    assert list(sse.events(chunks)) == [("message", one) for one in STREAMS[stream]]


def test_types_of_events():
    stream = b"event: error\ndata: a\n\ndata: b\n\nevent: x\n\ndata: c\n\nevent:y\ndata: d\n\n"
    assert list(sse.events([stream])) == [("error", "a"), ("message", "b"), ("message", "c"), ("y", "d")]


def test_an_event_is_there_as_soon_as_it_has_ended():
    """A server may keep the line open: nothing after the event is waited for."""
    for end in b"\n\n", b"\r\n\r\n", b"\r\r":

        def chunks(end=end):
            yield b"data: a" + end
            pytest.fail("more is read")

        assert next(sse.events(chunks())) == ("message", "a")


# Answers.

GOOD = {  # what a server sends for one answer, which is "ab\u20ac"
    "usual": data(delta("a"), delta("b"), delta("\u20ac", finish_reason="stop"), "[DONE]"),
    "no space": data(delta("ab\u20ac")).replace("data: ", "data:") + "data:[DONE]\n\n",
    "returns": data(delta("ab\u20ac"), "[DONE]", end="\r\r"),
    "returns and newlines": data(delta("ab\u20ac"), "[DONE]", end="\r\n\r\n"),
    "comments": ": ping\n\n" + data(delta("a")) + ": ping\n\n" + data(delta("b\u20ac")) + DONE,
    "several lines": 'data: {"choices":\ndata: [{"delta": {"content": "ab\u20ac"}}]}\n\n' + DONE,
    "byte order mark": "\ufeff" + data(delta("ab\u20ac")) + DONE,
    "one byte at a time": [bytes([one]) for one in (data(delta("ab\u20ac")) + DONE).encode()],
    "no end": data(delta("ab\u20ac", finish_reason="stop")),
    "no end at all": data(delta("ab\u20ac")),
    "text after the end": data(delta("ab\u20ac"), "[DONE]", delta("no")),
    "usage": data(delta("ab\u20ac"), json.dumps({"choices": [], "usage": {"total_tokens": 3}})) + DONE,
    "no choices": data(delta("ab\u20ac"), json.dumps({"usage": {}}), json.dumps({"choices": None}), "{}") + DONE,
    "no delta": data(delta("ab\u20ac"), '{"choices": [{"index": 0, "finish_reason": "stop"}]}') + DONE,
    "delta null": data(delta("ab\u20ac"), '{"choices": [{"delta": null, "finish_reason": "stop"}, null]}') + DONE,
    "content null": data('{"choices": [{"delta": {"role": "assistant", "content": null}}]}', delta("ab\u20ac")) + DONE,
    "error null": data(json.dumps({"error": None, **json.loads(delta("ab\u20ac"))})) + DONE,
    "parts": data('{"choices": [{"delta": {"content": [{"type": "text", "text": "ab\u20ac"}, {"type": "x"}]}}]}')
    + DONE,
    "thoughts": data('{"choices": [{"delta": {"reasoning_content": "hm", "content": ""}}]}', delta("ab\u20ac")) + DONE,
    "refusal": data('{"choices": [{"delta": {"content": null, "refusal": "ab\u20ac"}}]}') + DONE,
    "names of events": "event: ping\ndata: now\n\nevent: completion\n" + data(delta("ab\u20ac")) + DONE,
    "no stream": (
        200,
        "application/json",
        ['{"choices": [{"message": {"role": "assistant", "content": "ab\u20ac"}}]}'],
    ),
    "no stream, plain": (200, "text/plain", [' \n{"choices": [{"message": {"content": "ab\u20ac"}}], "error": null}']),
    "other type": (200, "application/octet-stream", [data(delta("ab\u20ac")) + DONE]),
}


@pytest.mark.parametrize("name", GOOD)
def test_answers(talk, name):
    with scripted(GOOD[name], data(delta("two")) + DONE) as (url, script):
        assert talk(url, "x", "y") == (0, "ab\u20ac\ntwo\n", "")
    said = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "ab\u20ac"}]
    assert script.asked[1]["messages"] == [*said, {"role": "user", "content": "y"}]
    assert script.asked[0] | {"messages": 0} == {"model": "m", "messages": 0, "stream": True}


BAD = {  # answers that are errors, and what is said of them
    "error as object": (data('{"error": {"message": "out of luck", "code": 500}}'), "out of luck"),
    "error as text": (data('{"error": "out of luck"}'), "out of luck"),
    "error in an error": (data('{"error": {"error": {"message": "out of luck"}}}'), "out of luck"),
    "error without message": (data('{"error": {"code": 7}}'), '{"code": 7}'),
    "object error": (data('{"object": "error", "message": "out of luck"}'), "out of luck"),
    "event error": ('event: error\ndata: {"message": "out of luck"}\n\n', "out of luck"),
    "event error, text": ("event: error\ndata: out of luck\n\n", "out of luck"),
    "in the middle": (data(delta("half"), '{"error": {"message": "out of luck"}}'), "out of luck"),
    "no stream": ((200, "application/json", ['{"error": {"message": "out of luck"}}']), "out of luck"),
    "no JSON": (data("{oops"), "the server sends what is no JSON: {oops"),
    "no object": (data("null"), "sends null, want an object"),
    "no text": (DONE, "the answer is empty"),
    "nothing": ("", "the answer is empty"),
    "a page": ((200, "text/html", [HTML]), "is a page for browsers"),
    "broken off": ([data(delta("half")), None], "broke off"),
    "broken off at once": ([None], "broke off"),
    "control characters": (data('{"error": "out\\u001b[2J of luck"}'), r"out\x1b[2J of luck"),
    **{
        f"{status} {kind}": ((status, kind, [body]), f"answers {status}: {says}")
        for status, kind, body, says in (
            (401, "text/html", HTML, "Unauthorized"),
            (404, "application/json", '{"detail": "Not Found"}', "Not Found"),
            (422, "application/json", '{"detail": [{"msg": "no"}]}', '[{"msg": "no"}]'),
            (429, "application/json", '{"error": {"message": "slow down", "type": "x"}}', "slow down"),
            (500, "text/html", HTML, "Internal Server Error"),
            (502, "text/plain", "bad\n\tgateway", "bad gateway"),
            (503, "application/json", "", "Service Unavailable"),
        )
    },
}


@pytest.mark.parametrize("name", BAD)
def test_an_error_costs_a_turn(talk, name):
    body, says = BAD[name]
    with scripted(data(delta("one")) + DONE, body, data(delta("three")) + DONE) as (url, script):
        status, out, err = talk(url, "a", "b", "c")
    assert status == 0 and says in err and "/retry asks again" in err and "\x1b" not in err
    assert out in ("one\nthree\n", "one\nhalf\nthree\n")
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "one"}]
    assert script.asked[2]["messages"] == [*said, {"role": "user", "content": "c"}]


FULL = (
    (400, '{"error": {"message": "maximum context length is 9 tokens", "code": "context_length_exceeded"}}'),
    (400, '{"error": {"message": "too many tokens", "code": "context_length_exceeded"}}'),
    (413, '{"error": "the request exceeds the available context size"}'),
    (400, '{"object": "error", "message": "This model\'s maximum context length is 9 tokens."}'),
)


@pytest.mark.parametrize(("status", "body"), FULL)
def test_a_full_context_drops_turns(talk, status, body):
    full = (status, "application/json", [body])
    with scripted(data(delta("one")) + DONE, full, data(delta("two")) + DONE, full) as (url, script):
        status, out, err = talk(url, "a", "b", "/clear", "c")
    assert out == "one\ntwo\n" and err.startswith("the context is full: the oldest turn is dropped\n")
    assert script.asked[2]["messages"] == [{"role": "user", "content": "b"}] and "left out" in err


def test_an_answer_that_the_server_cuts_says_so(talk):
    with scripted(data(delta("half", finish_reason="length")) + DONE) as (url, _):
        assert talk(url, "a")[1:] == ("half\n", "the server ended the answer early: length\n")


def test_options_have_the_protocol_s_names(talk):
    lines = ["/set stop END", "/set top_p 0.5", "/set max_tokens 7", "/set kvq true", "a", "/set temperature -1"]
    more = ("--temperature", "0.5", "--seed", "3", "-n", "4", "--no-spec", "--system", "brief")
    with scripted(data(delta("one")) + DONE) as (url, script):
        status, _, err = talk(url, *lines, more=more)
    asked = script.asked[0]
    assert asked.pop("messages")[0] == {"role": "system", "content": "brief"}
    same = {"model": "m", "stream": True, "temperature": 0.5, "seed": 3, "stop": "END", "top_p": 0.5}
    assert asked == {**same, "max_completion_tokens": 7, "speculate": False}
    assert status == 0 and "kvq is no option of answers of m" in err and "temperature=-1, want" in err
    with scripted(data(delta("one")) + DONE) as (url, script):
        talk(url, "/set max_new_tokens -1", "/set seed -1", "a")
    assert script.asked[0].keys() == {"model", "messages", "stream", "seed"}


def test_models(talk):
    with scripted(data(delta("one")) + DONE, models=("first", "second", "third")) as (url, script):
        assert talk(url, "a")[2] == "the server has other models, too, which --model names: second, third\n"
        assert script.asked[0]["model"] == "first"
    with scripted(data(delta("one")) + DONE, models=("first", "second")) as (url, script):
        assert talk(url, "a", more=("--model", "second"))[2] == ""
        assert script.asked[0]["model"] == "second"


@pytest.mark.parametrize(
    "models", [(), (404, "<html>"), (404, '{"error": {"message": "no such route"}}')], ids=["none", "page", "error"]
)
def test_a_server_that_lists_no_models_needs_a_name(talk, models):
    with scripted(data(delta("one")) + DONE, models=models) as (url, script):
        status, out, err = talk(url, "a")
        assert (status, out) == (2, "") and "--model NAME says which one to ask for" in err
        assert talk(url, "a", more=("--model", "mine"))[:2] == (0, "one\n")
        assert script.asked[0]["model"] == "mine"


@pytest.mark.parametrize("body", ["[]", "5", '{"data": [{"name": "x"}, 3, {"id": null}]}', "{oops", '{"data": {}}'])
def test_a_list_of_models_that_is_none(body):
    with scripted() as (url, script):
        script.models = (200, body)
        with pytest.raises(InvalidArgument, match="--model NAME"):
            Remote(url)


def test_a_key_is_sent(talk, monkeypatch):
    monkeypatch.delenv("SWIFTK_API_KEY", raising=False)
    with scripted(*[data(delta("one")) + DONE] * 3) as (url, script):
        talk(url, "a")
        talk(url, "a", more=("--api-key", "k1"))
        monkeypatch.setenv("SWIFTK_API_KEY", "k2")
        talk(url, "a")
    assert script.keys == [None, None, "Bearer k1", "Bearer k1", "Bearer k2", "Bearer k2"]


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("http://h:1", "http://h:1/v1"),
        ("http://h:1/", "http://h:1/v1"),
        ("http://h:1/v1/", "http://h:1/v1"),
        ("http://h:1/v1/chat/completions", "http://h:1/v1"),
        ("https://h/openai", "https://h/openai/v1"),
        ("https://h/v1beta/openai", "https://h/v1beta/openai"),
        ("https://v1.h", "https://v1.h/v1"),
    ],
)
def test_addresses(given, base):
    assert Remote(given, "m").about.endswith(f"at {base}")


def test_nobody_listens(talk):
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    listening.close()
    status, out, err = talk(url, "a")
    assert (status, out, err.count("\n")) == (2, "", 1) and "does not answer: " in err and "refused" in err
    status, out, err = talk(url, "a", "b", more=("--model", "m"))
    assert (status, out) == (0, "") and err.count("does not answer: ") == 2
    for wrong in "localhost:80", "ftp://h", "http://":
        assert "want http://HOST:PORT" in talk(wrong, "a")[2]


def test_an_answer_that_is_closed_ends_the_request():
    with scripted([data(delta("one")), *[data(delta("x"))] * 9]) as (url, _):
        pieces = Remote(url).answer([{"role": "user", "content": "a"}], {})
        assert next(pieces) == ("text", "one")
        pieces.close()
        assert list(pieces) == []
    assert issubclass(ContextFull, InvalidArgument)
