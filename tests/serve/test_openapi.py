"""Requests as the server's own description allows them, and beside it: none is a fault of the server."""

import pytest
from hypothesis import given
from hypothesis.errors import Unsatisfiable

import swiftk
from swiftk.testing import make_tiny

pytest.importorskip("fastapi")
schemathesis = pytest.importorskip("schemathesis")

from serving import TOOL_TEMPLATE, app_of  # noqa: E402


@pytest.fixture
def app(tmp_path):
    folder = make_tiny(tmp_path / "tiny", "llama3")
    (folder / "chat_template.jinja").write_text(TOOL_TEMPLATE)
    with swiftk.load(folder, device="cpu", threads=1) as lm, app_of(lm, most_tokens=4) as found:
        yield found


def must_answer(case):
    answer = case.call()
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert answer.json()["error"]["message"]


@pytest.mark.parametrize("mode", schemathesis.GenerationMode)
def test_no_request_is_the_servers_fault(app, mode):
    operations = [one.ok() for one in schemathesis.openapi.from_asgi("/openapi.json", app).get_all_operations()]
    assert {"/v1/chat/completions", "/v1/completions", "/tokenize"} <= {one.path for one in operations}
    for operation in operations:
        try:
            given(operation.as_strategy(generation_mode=mode))(must_answer)()
        except Unsatisfiable:  # all requests of this operation are right
            assert mode == schemathesis.GenerationMode.NEGATIVE and operation.method == "get"
