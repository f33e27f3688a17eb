"""swiftk chat with a model here, piped."""

import io
import re

import pytest

import swiftk
from chats import said
from swiftk.cli import local, main
from swiftk.cli.conversation import ContextFull
from swiftk.testing import make_tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("chat") / "tiny", "llama3")


@pytest.fixture
def piped(capfd, monkeypatch):
    """piped(text, *arguments) -> (status, stdout, stderr) of swiftk chat with that at stdin."""

    def run(text, *arguments):
        stdin = io.TextIOWrapper(io.BytesIO(text if isinstance(text, bytes) else text.encode()), encoding="utf-8")
        monkeypatch.setattr("sys.stdin", stdin)
        return main(["chat", *map(str, arguments)]), *capfd.readouterr()

    return run


def test_what_is_piped_is_the_answers_alone(piped, folder):
    lm = swiftk.load(folder)
    one = lm.generate(said("a\tb"), max_new_tokens=9, temperature=0).text
    two = lm.generate(said("a\tb", one.strip(), "c"), max_new_tokens=9, temperature=0).text
    assert one.strip() and two.strip()
    found = piped("a\tb\r\n\nc\n/exit\nd\n", folder, "-n", "9", "--temperature", "0")
    assert found == (0, f"{one}\n{two}\n", "")
    assert piped("", folder) == (0, "", "")


def test_no_stdin_is_an_empty_one(piped, folder, monkeypatch, capfd):
    monkeypatch.setattr("sys.stdin", None)
    assert main(["chat", str(folder)]) == 0 and capfd.readouterr() == ("", "")


def test_bytes_that_are_no_text_cost_their_line(piped, folder):
    status, out, err = piped(b"a\xff\nb\n", folder, "-n", "4")
    assert status == 0 and out.strip() and "half of a surrogate pair" in err and err.count("turn is left out") == 1


def test_answers_go_to_the_context_s_end_and_then_turns_are_dropped(piped, folder):
    status, out, err = piped("a\na\n", folder, "--temperature", "0", "--context", "64")
    notes = "the context of 64 tokens ended the answer\n"
    assert status == 0 and err == f"{notes}the context is full: the oldest turn is dropped\n{notes}"
    alone = swiftk.load(folder, context=64).generate(said("a"), max_new_tokens=64, temperature=0)
    assert out == f"{alone.text}\n" * 2 and alone.finish_reason == "length"


def test_an_answer_has_no_limit_but_the_context(piped, folder):
    status, out, err = piped("/set ignore_eos true\na\n", folder, "--temperature", "0")
    alone = swiftk.load(folder).generate(said("a"), max_new_tokens=-1, temperature=0, ignore_eos=True)
    assert len(alone.tokens) > 400 and out == f"{alone.text}\n"
    assert (status, err) == (0, "ignore_eos true\nthe context of 512 tokens ended the answer\n")


def test_a_long_message_costs_a_turn(piped, folder):
    status, out, err = piped("b\n" + "long " * 400 + "\nb\n", folder, "-n", "4")
    assert status == 0
    assert re.fullmatch(r"\[chat\] the message has \d+ tokens .* context 512; want at most 511\n.*left out.*\n", err)
    assert len(out.splitlines()) >= 2


def test_an_answer_has_room(folder):
    """With older turns a prompt leaves a quarter of the context, or what was asked for; alone it may fill it."""
    model = local.Local(str(folder), {})
    for asked, most in ({}, 512 - 128), ({"max_new_tokens": 10}, 512 - 10):
        with pytest.raises(ContextFull, match=f"want at most {most}$"):
            next(iter(model.answer(said("a", "b", "c " * 500), asked)))


def test_a_retry_of_a_sampled_answer(piped, folder):
    status, out, _ = piped("a\n/retry\n", folder, "-n", "9", "--temperature", "1", "--seed", "5")
    lm = swiftk.load(folder)
    texts = [lm.generate(said("a"), max_new_tokens=9, temperature=1, seed=seed).text for seed in (5, 6)]
    assert (status, out) == (0, "".join(f"{text}\n" for text in texts))


def test_without_a_template_it_is_a_transcript(piped):
    status, out, err = piped("Hello\n/set stop zq\nHello\n", "demo", "-n", "5")
    assert status == 0 and out
    assert err.startswith("this checkpoint has no chat template: the conversation is written as a plain transcript\n")


def test_a_folder_without_a_tokenizer_is_refused_before_it_is_loaded(piped, tmp_path, monkeypatch):
    bare = make_tiny(tmp_path / "bare", "llama3", tokenizer=False)
    broken = make_tiny(tmp_path / "broken", "llama3")
    (broken / "tokenizer.json").write_text("{}")
    monkeypatch.setattr(local, "open_model", lambda *_: pytest.fail("it is being loaded"))
    for model, says in (
        (bare, "has no tokenizer.json, and a chat is text"),
        (broken, "is not a tokenizer"),
        (tmp_path / "no", "is not a directory"),
    ):
        status, out, err = piped("a\n", model)
        assert (status, out, err.count("\n")) == (2, "", 1) and says in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "want a model, or --url"),
        (("demo", "--url", "http://127.0.0.1:1"), "want a model, or --url"),
        (("demo", "--model", "x"), "--model x is for --url"),
        (("demo", "--temperature", "-1"), "temperature=-1.0, want"),
        (("--url", "http://127.0.0.1:1", "--threads", "1"), "--threads: for a model that is loaded here"),
    ],
)
def test_mistakes_are_reported_before_anything_is_loaded(piped, monkeypatch, arguments, says):
    monkeypatch.setattr(local, "open_model", lambda *_: pytest.fail("it is being loaded"))
    status, out, err = piped("a\n", *arguments)
    assert (status, out) == (2, "") and says in err


def test_stats_come_after_each_answer(piped, folder):
    assert piped("a\nb\n", folder, "-n", "4", "--stats")[2].count("tokens/s") == 2
