"""What a request's data raises is the request's fault: an answer of one line, whatever it was."""

import json
import logging

import pytest

import swiftk
from swiftk.errors import CheckpointError
from swiftk.testing import make_tiny

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from serving import TOOL_TEMPLATE, app_of, ask

MESSAGES = [{"role": "user", "content": "x" * 4000}]
TEMPLATES = {
    "ValueError": "{{ messages[0].content.index('y') }}",
    "ZeroDivisionError": "{{ 1 // (messages | length - 1) }}",
    "OverflowError": "{{ '%c' % 99999999 }}",
    "RecursionError": "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "MemoryError": "{{ messages[0].content * 2000000000000000 }}",
    "writes more than": "{% for i in range(9999) %}{% for j in range(9999) %}{{ messages[0].content }}{% endfor %}"
    "{% endfor %}",
    "no such thing": "{{ raise_exception('no such thing') }}",
    "has no attribute": "{{ messages[0].name.first }}",
    "TypeError": "{{ messages[0].content + 1 }}",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    model = make_tiny(tmp_path_factory.mktemp("boundary") / "tiny", "llama3")
    (model / "chat_template.jinja").write_text(TOOL_TEMPLATE)
    return model


@pytest.fixture(scope="module")
def lm(folder):
    with swiftk.load(folder, device="cpu", threads=1) as found:
        yield found


def one_line(answer, folder):
    """The message of an error that shows nothing of the server."""
    message = answer.json()["error"]["message"]
    assert "\n" not in message and "Traceback" not in message and str(folder.parent) not in answer.text
    return message


@pytest.mark.parametrize("said", TEMPLATES)
def test_a_template_may_raise_anything(folder, tmp_path, said):
    file = tmp_path / "template"
    file.write_text(TEMPLATES[said])
    with swiftk.load(folder, device="cpu", threads=1, chat_template=file) as lm, app_of(lm) as app:
        answer = ask(app, "POST", "/v1/chat/completions", json={"messages": MESSAGES, "max_tokens": 1})
        assert answer.status_code == 400 and said in one_line(answer, folder), answer.text
        with pytest.raises(swiftk.InvalidArgument, match=said):
            lm.generate(MESSAGES, max_new_tokens=1)


CALL = {"role": "assistant", "content": "", "tool_calls": [None]}
BODIES = {
    "no JSON": {"structured_outputs": {"json": "not json"}},
    "half a schema": {"structured_outputs": {"json": "{"}},
    "a schema as a list": {"structured_outputs": {"json": [1]}},
    "a schema in a circle": {"structured_outputs": {"json": {"$ref": "#"}}},
    "a number as text": {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]},
    "no text": {"messages": [{"role": "user", "content": [{"type": "text"}, {"type": "text", "text": None}]}]},
    "a number as content": {"messages": [{"role": "user", "content": 5}]},
    "null as a call": {"messages": [CALL]},
    "a text as a call": {"messages": [{**CALL, "tool_calls": ["f"]}]},
    "a text as a function": {"messages": [{**CALL, "tool_calls": [{"function": "f"}]}]},
    "an object as calls": {"messages": [{**CALL, "tool_calls": {"a": 1}}]},
    "a list as a role": {"messages": [{"role": ["user"], "content": "a"}]},
    "null as a tool": {"tools": [None]},
    "numbers as parameters": {"tools": [{"type": "function", "function": {"name": "f", "parameters": 3}}]},
    "a list as a choice": {"tool_choice": [1]},
    "an odd choice": {
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "tool_choice": {"type": "function", "function": "f"},
    },
    "a regex without end": {"response_format": {"type": "regex", "regex": "(((" * 1000}},
    "an empty choice": {"response_format": {"type": "choice", "choices": []}},
    "half a character": {"messages": [{"role": "user", "content": "\ud800"}]},
    "half a character as a model": {"model": "\udfff"},
    "half a character as a role": {"messages": [{"role": "\ud800", "content": "a"}]},
    "a large integer": {"seed": 10**400},
    "a large number": {"temperature": 10**400},
    "stops": {"stop": [None, 3]},
}


@pytest.mark.parametrize("said", BODIES)
def test_a_body_may_hold_anything(folder, lm, said):
    plain = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
    content = json.dumps({**plain, **BODIES[said]})
    with app_of(lm) as app:
        answer = ask(app, "POST", "/v1/chat/completions", content=content, headers={"Content-Type": "application/json"})
        assert answer.status_code in (200, 400, 404), answer.text  # 200: some templates pass some of it over
        assert answer.status_code == 200 or one_line(answer, folder)
        assert ask(app, "POST", "/v1/chat/completions", json=plain).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_grammar_that_fails_later_shows_no_stack(folder, lm, stream):
    """This one matches nothing, which shows where the first token is drawn."""
    body = {"prompt": "a", "max_tokens": 3, "stream": stream}
    body["response_format"] = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "#"}}}
    with app_of(lm) as app:
        answer = ask(app, "POST", "/v1/completions", json=body)
    assert answer.status_code == (200 if stream else 400)
    message = json.loads(answer.text.removeprefix("data: "))["error"]["message"]
    assert message.startswith("[grammar] ") and ".py" not in message and "At:" not in message and "\n" not in message


class Panic(BaseException):
    """As libraries in Rust raise them."""


def failing(error):
    def fails(*_, **__):
        raise error

    return fails


@pytest.mark.parametrize(
    "error", [Panic("in /usr/lib/secret/x.rs"), StopIteration(), AttributeError("a\nb"), OSError(2)]
)
def test_all_that_is_made_of_a_body_is_inside(folder, lm, monkeypatch, caplog, error):
    monkeypatch.setattr(lm, "prepare", failing(error))
    with app_of(lm) as app:
        answer = ask(app, "POST", "/v1/completions", json={"prompt": "a"})
    assert answer.status_code == 400 and type(error).__name__ in one_line(answer, folder)
    assert "/usr" not in answer.text and "failing" not in answer.text
    assert any(record.exc_info and record.exc_info[1] is error for record in caplog.records)


@pytest.mark.parametrize("error", [RuntimeError("in /a/b/c"), ValueError("\n"), swiftk.InternalError("broken")])
def test_what_fails_after_it_is_the_servers_fault(lm, monkeypatch, caplog, error):
    """The answer has an id, the log the stack under this id."""
    monkeypatch.setattr(lm, "start", failing(error))
    with app_of(lm) as app, caplog.at_level(logging.INFO, "swiftk.serve"):
        answer = ask(app, "POST", "/v1/completions", json={"prompt": "a"}, headers={"X-Request-Id": "mine-7"})
        assert len(app.state.server.texts) == 0
    said = "[serve] internal error; the server's log has more of request mine-7"
    assert answer.status_code == 500 and answer.headers["x-request-id"] == "mine-7"
    assert answer.json() == {"error": {"message": said, "type": "server_error", "param": None, "code": None}}
    logged = [record for record in caplog.records if record.exc_info]
    assert [record.exc_info[1] for record in logged] == [error] and "mine-7" in logged[0].getMessage()


def test_a_broken_template_is_the_servers_fault(folder, tmp_path):
    file = tmp_path / "template"
    file.write_text("{% if %}")
    with swiftk.load(folder, device="cpu", threads=1, chat_template=file) as lm, app_of(lm) as app:
        answer = ask(app, "POST", "/v1/chat/completions", json={"messages": MESSAGES})
        assert answer.status_code == 500 and "internal error" in one_line(answer, folder)
        with pytest.raises(CheckpointError, match="does not parse"):
            lm.generate(MESSAGES)


def test_a_folder_without_a_template_stays_unknown(folder, tmp_path):
    model = make_tiny(tmp_path / "deep" / "bare", "llama3")
    (model / "tokenizer_config.json").unlink()
    with swiftk.load(model, device="cpu", threads=1) as lm, app_of(lm) as app:
        answer = ask(app, "POST", "/v1/chat/completions", json={"messages": MESSAGES})
        assert answer.status_code == 400 and "bare has no chat template" in one_line(answer, tmp_path / "deep")
