"""swiftk chat --url: a conversation with a server."""

import io

import pytest

import swiftk
from swiftk.cli import main
from swiftk.cli.remote import Remote
from swiftk.errors import InvalidArgument
from swiftk.testing import make_tiny

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from serving import serving

MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    return swiftk.load(make_tiny(tmp_path_factory.mktemp("chat") / "tiny", "llama3"), device="cpu", threads=1)


def test_what_a_server_says_is_what_the_model_says(lm, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n/clear\nagain\n/set temprature 1\n"))
    with serving(lm) as (url, _):
        assert main(["chat", "--url", url, "-n", "12", "--temperature", "0", "--seed", "1"]) == 0
    first, second = (
        lm.generate([{"role": "user", "content": text}], max_new_tokens=12, temperature=0.0).text
        for text in ("hello", "again")
    )
    out, err = capsys.readouterr()
    assert out == f"{first}\n{second}\n"
    assert "did you mean temperature?" in err


def test_a_server_s_full_context_drops_turns(lm, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n" + "more " * 60 + "\n" + "again " * 60 + "\n"))
    with serving(lm) as (url, _):
        assert main(["chat", "--url", url, "-n", "5", "--temperature", "0"]) == 0
    out, err = capsys.readouterr()
    want = lm.generate([{"role": "user", "content": "again " * 60}], max_new_tokens=5, temperature=0).text
    assert out.endswith(f"\n{want}\n") and "dropped" in err and "left out" not in err


def test_what_is_wrong_is_one_line(lm):
    with serving(lm, api_key="secret", most_tokens=5) as (url, _):
        with pytest.raises(InvalidArgument, match=r"answers 401: .*API key"):
            Remote(url)
        server = Remote(f"{url}/v1/", key="secret")
        assert server.name == "tiny"
        with pytest.raises(InvalidArgument, match=r"answers 400: .*temperature"):
            list(server.answer(MESSAGES, {"temperature": -1}))
    with pytest.raises(InvalidArgument, match="does not answer"):
        Remote(url)
    with pytest.raises(InvalidArgument, match="want http://HOST:PORT"):
        Remote("localhost:80")
