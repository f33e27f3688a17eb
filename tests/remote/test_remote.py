"""Drafts made by a client: the server's text, whatever is proposed, however lines break, and without a line."""

import socket
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

import swiftk
from swiftk import remote
from swiftk.remote import frames
from swiftk.running.stream import Stream
from swiftk.testing import make_tiny

pytest.importorskip("websockets")
from patience import PATIENCE, until
from relay import Relay, cut
from serving import dial, serving

ASKED = {"max_new_tokens": 60, "ignore_eos": True}
PROMPT = "def read(path):\n"


@pytest.fixture(scope="module")
def lm():
    with swiftk.load(swiftk.demo_model(), draft_weights="own", max_sequences=4) as found:
        yield found


@pytest.fixture(scope="module")
def small():
    """What drafts at the client: another engine of the same model, so that it is always right."""
    with swiftk.load(swiftk.demo_model(), draft_weights="own", threads=1) as found:
        yield found


@pytest.fixture
def server(lm):
    with serving(lm) as (url, app):
        yield url, app


@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"temperature": 1.0, "seed": 7},
        {"temperature": 0.8, "top_p": 0.9, "seed": 1},
        {"frequency_penalty": 0.7, "presence_penalty": 0.3, "logit_bias": {40: 3.0, 41: -9.0}, "seed": 0},
    ],
)
@pytest.mark.parametrize("who", ["suffix", "small"])
def test_the_text_is_the_servers(server, lm, small, sampling, who):
    want = lm.generate(PROMPT, **ASKED, **sampling, speculate=False)
    with dial(server[0], small if who == "small" else who) as line:
        got = line.generate(PROMPT, **ASKED, **sampling)
    assert (got.tokens, got.text, got.finish_reason) == (want.tokens, want.text, want.finish_reason)
    assert (got.seed, got.prompt_tokens) == (want.seed if sampling else got.seed, want.prompt_tokens)
    assert got.alone_from is None and got.lost == 0 and len(got.proposed) == len(got.tokens)
    assert got.sent > 0 and got.received > len(got.tokens)


class Knows:
    """Somebody who knows the text."""

    model = None

    def __init__(self, tokens):
        self.tokens = tokens

    def begin(self, prompt, sampling):
        pass

    def propose(self, text, count):
        return self.tokens[len(text) :][:count]

    def close(self):
        pass


def test_proposals_count(server, lm, monkeypatch):
    """The engine waits for a proposal of what comes next, as of a client that is in time."""
    asked = {"max_new_tokens": 120, "ignore_eos": True}
    want = lm.generate(PROMPT, **asked, speculate=False).tokens
    step, propose, came, known = lm.step, Stream.propose, [1], [0]

    def waits():
        until(lambda: known[0] >= min(came[0] + 8, len(want)))
        step()
        came[0] += lm.last_round["tokens"]

    def receives(self, tokens, at=None, parents=()):
        propose(self, tokens, at, parents)
        known[0] = max(known[0], at + len(tokens))

    monkeypatch.setattr(lm, "step", waits)
    monkeypatch.setattr(Stream, "propose", receives)
    with dial(server[0], Knows(want), ahead=64) as line:
        got = line.generate(PROMPT, **asked)
    assert got.tokens == want and sum(got.proposed) > 100 and got.rounds < 40


def test_pieces_make_the_text(server, lm):
    with dial(server[0]) as line:
        text = line.stream(PROMPT, **ASKED, stop="zzzz")
        pieces = list(text)
    assert "".join(p.text for p in pieces) == text.result.text == lm.generate(PROMPT, **ASKED, speculate=False).text
    assert [t for p in pieces for t in p.tokens] == text.result.tokens
    assert not any(p.alone for p in pieces)


def test_a_text_that_is_closed_ends_at_the_server(server):
    url, app = server
    with dial(url) as line:
        text = line.stream(PROMPT, max_new_tokens=1500, ignore_eos=True)
        next(text)
        text.close()
    until(lambda: len(app.texts) == 0)


@pytest.mark.parametrize("who", ["suffix", "small"])
def test_lines_that_break(server, lm, small, who):
    want = lm.generate(PROMPT, **ASKED, temperature=1.0, seed=3, speculate=False)
    relay = Relay(server[0], [900, 1200, 1500])
    with dial(relay.url, small if who == "small" else who) as line:
        got = line.generate(PROMPT, **ASKED, temperature=1.0, seed=3)
    relay.close()
    assert (got.tokens, got.text) == (want.tokens, want.text)
    assert got.lost >= 1 and got.alone_from is None


def test_a_server_that_forgot_begins_anew(lm):
    """It was started again: the text is the same, its first part verified from what is here."""
    want = lm.generate(PROMPT, **ASKED, temperature=1.0, seed=3, speculate=False)
    with serving(lm, kept=0.0) as (url, _):
        relay = Relay(url, [1500])
        with dial(relay.url) as line:
            got = line.generate(PROMPT, **ASKED, temperature=1.0, seed=3)
        relay.close()
    assert (got.tokens, got.text, got.lost) == (want.tokens, want.text, 1)


def test_alone(server, lm, small, caplog):
    how = {"temperature": 1.0, "seed": 3, "frequency_penalty": 0.6, "min_tokens": 9}  # what counts tokens goes on
    relay = Relay(server[0], [1200])
    with dial(relay.url, small) as line:
        got, pieces = cut(relay, line, PROMPT, **ASKED, **how)
    want = lm.generate(PROMPT, **ASKED, **how, speculate=False)
    assert 0 < got.alone_from < 60 and got.lost >= 1 and got.finish_reason == "length"
    assert got.tokens == want.tokens  # it is the same model here
    assert [p.alone for p in pieces][-1] and not pieces[0].alone
    assert "continues from token" in caplog.text


def test_lost_without_a_model(server, lm):
    relay = Relay(server[0], [1200])
    with dial(relay.url) as line:
        text = line.stream(PROMPT, **ASKED)
        next(text)
        relay.close()
        line._patience = 0  # nobody will answer
        list(text)
    want = lm.generate(PROMPT, **ASKED, speculate=False).tokens
    assert text.result.finish_reason == "lost" and text.result.tokens == want[: len(text.result.tokens)]


def test_nobody_answers():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with dial(f"http://127.0.0.1:{port}") as line, pytest.raises(remote.Lost, match="answer"):
        line.generate(PROMPT)


def test_another_vocabulary(server, tmp_path):
    other = make_tiny(tmp_path / "tiny", "llama3")
    with dial(server[0], other) as line, pytest.raises(swiftk.UnsupportedModel, match="vocabulary"):
        line.generate(PROMPT)


@pytest.mark.parametrize(
    "options, message",
    [({"drafter": "plan"}, "no option of a text"), ({"temperature": -1}, "temperature"), ({"n": 2}, "no option")],
)
def test_options_that_are_refused_here(server, options, message):
    with dial(server[0]) as line, pytest.raises(swiftk.InvalidArgument, match=message):
        line.generate(PROMPT, **options)


def test_what_the_server_refuses(server):
    url, app = server
    with dial(url) as line:
        with pytest.raises(swiftk.InvalidArgument, match=r"400.*token"):
            line.generate([1, 2, 1 << 20])
        with pytest.raises(swiftk.InvalidArgument, match="context"):
            line.generate([5] * 5000)
        assert line.generate(PROMPT, max_new_tokens=3).finish_reason in ("length", "stop")
    assert len(app.texts) == 0


def test_the_key(lm):
    with serving(lm, api_key="secret") as (url, _):
        with dial(url) as line, pytest.raises(remote.Lost, match="403"):
            line.generate(PROMPT)
        with dial(url, api_key="secret") as line:
            assert len(line.generate(PROMPT, **ASKED).tokens) == 60


def test_many_at_once(server, lm):
    seeds = range(6)
    want = [lm.generate(PROMPT, **ASKED, temperature=1.0, seed=s, speculate=False).tokens for s in seeds]
    got = [None] * len(want)

    def one(i):
        with dial(server[0]) as line:
            got[i] = line.generate(PROMPT, **ASKED, temperature=1.0, seed=i).tokens

    threads = [threading.Thread(target=one, args=(i,)) for i in seeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == want


GARBAGE = st.one_of(
    st.binary(max_size=40),
    st.builds(
        lambda op, fields: frames.pack(op, **fields),
        st.sampled_from(["begin", "resume", "propose", "cancel", "tokens", "other"]),
        st.dictionaries(
            st.sampled_from(["version", "prompt", "options", "id", "at", "digest", "tokens", "features", "known"]),
            st.one_of(
                st.integers(-(2**40), 2**40),
                st.text(max_size=5),
                st.lists(st.integers(-5, 5000), max_size=4),
                st.fixed_dictionaries(
                    {}, optional=dict.fromkeys(("kind", "taps", "width", "dtype"), st.integers(0, 9))
                ),
            ),
        ),
    ),
)


def test_garbage_is_answered_with_what_is_wrong(server, lm):
    from websockets.sync.client import connect

    @given(GARBAGE)
    def ask(data):
        with connect(frames_url(server[0]), compression=None, open_timeout=PATIENCE) as line:
            line.send(data)
            frame = frames.unpack(line.recv(PATIENCE), "error", "begun", "gone")
            assert frame["op"] != "error" or frame["status"] < 500

    def frames_url(url):
        return url.replace("http", "ws") + frames.PATH

    ask()
    with dial(server[0]) as line:
        assert line.generate(PROMPT, **ASKED).tokens == lm.generate(PROMPT, **ASKED, speculate=False).tokens


@pytest.mark.parametrize("module", ["msgpack", "websockets"])
def test_what_is_not_installed_is_named(module):
    code = f"""import sys; sys.modules[{module!r}] = None
import swiftk
try: swiftk.remote.connect
except swiftk.InvalidArgument as error: print(error)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"{module} is not installed" in done.stdout and "swiftk[remote]" in done.stdout


@pytest.mark.parametrize(
    ("proposal", "words"),
    [
        ({"at": 1400, "tokens": [1 << 30]}, "want 0.."),
        ({"at": 1400, "tokens": [1 << 40]}, "31 bits"),
        ({"at": 1 << 40, "tokens": [1]}, "31 bits"),
        ({"at": 5, "tokens": ["a"]}, "31 bits"),
        ({"at": 5}, "tokens of 'propose'"),
    ],
)
def test_garbage_after_the_beginning(server, proposal, words):
    from websockets.sync.client import connect

    with connect(server[0].replace("http", "ws") + frames.PATH, compression=None, open_timeout=PATIENCE) as line:
        line.send(frames.pack("begin", version=1, prompt=PROMPT, options={"max_new_tokens": 1500, "ignore_eos": True}))
        line.send(frames.pack("propose", **proposal))
        while (frame := frames.unpack(line.recv(PATIENCE), "begun", "tokens", "error"))["op"] != "error":
            pass
    assert words in frame["message"] and frame["status"] == 400
    until(lambda: len(server[1].texts) == 0)
