"""swiftk chat --url: a conversation with a server."""

import pytest

import swiftk
from swiftk.cli import chat
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


def test_what_a_server_says_is_what_the_model_says(lm, monkeypatch, capsys):
    said = iter(["hello", "/clear", "again", "/exit"])
    heard = []
    monkeypatch.setattr(chat.out, "input", lambda prompt: next(said))
    monkeypatch.setattr(chat.out, "print", lambda *text, **how: heard.extend(text))
    with serving(lm) as (url, _):
        chat.command(url=url, max_new_tokens=12, temperature=0.0, seed=1)
    first, second = (
        lm.generate([{"role": "user", "content": text}], max_new_tokens=12, temperature=0.0).text
        for text in ("hello", "again")
    )
    assert "".join(heard) == first + second


def test_what_is_wrong_is_one_line(lm, monkeypatch):
    with serving(lm, api_key="secret", most_tokens=5) as (url, _):
        with pytest.raises(InvalidArgument, match=r"answers 401: .*API key"):
            Remote(url)
        monkeypatch.setenv("SWIFTK_API_KEY", "secret")
        server = Remote(f"{url}/v1/")
        assert server.model == "tiny"
        with pytest.raises(InvalidArgument, match=r"answers 400: .*temperature"):
            list(server.chat(MESSAGES, {"temperature": -1}))
    with pytest.raises(InvalidArgument, match="does not answer"):
        Remote(url)
    with pytest.raises(InvalidArgument, match="want http://HOST:PORT"):
        Remote("localhost:80")
    for given in {}, {"model": "demo", "url": url}:
        with pytest.raises(InvalidArgument, match="want a model, or --url"):
            chat.command(**given)
