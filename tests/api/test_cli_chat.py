"""swiftk chat: turns and their context, commands, what an error costs."""

import errno
import io
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from chats import said
from swiftk.cli import chat
from swiftk.cli.commands import Commands
from swiftk.cli.conversation import ContextFull, Conversation, Piece
from swiftk.errors import InvalidArgument, NumericalError


class Scripted:
    """A model that answers what it is asked to: texts, pieces, errors, or what a function of the messages gives."""

    name, about, note = "scripted", "scripted: a model", ""
    options = ("temperature", "seed", "max_new_tokens", "stop", "speculate")

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def greedy(self, options):
        return options.get("temperature") == 0

    def answer(self, messages, options):
        self.asked.append((messages, options))
        next = self.answers.pop(0) if self.answers else "yes"
        for one in [next] if isinstance(next, (str, Exception)) else next(messages) if callable(next) else next:
            if isinstance(one, BaseException):
                raise one
            if callable(one):
                one()
                continue
            yield Piece("text", one) if isinstance(one, str) else one


@pytest.fixture
def talk(capsys):
    """talk(model, *lines, system) -> (stdout, stderr, the conversation)."""

    def run(model, *lines, system=None):
        conversation = Conversation(model, system)
        chat.converse(conversation, iter(lines))
        return *capsys.readouterr(), conversation

    return run


def test_the_model_sees_all_turns(talk):
    model = Scripted(" one \n", "two", "three")
    out, err, chat = talk(model, "a", "  ", "b\tc", system="brief")
    system = [{"role": "system", "content": "brief"}]
    assert [messages for messages, _ in model.asked] == [system + said("a"), system + said("a", "one", "b\tc")]
    assert (out, err) == (" one \n\ntwo\n", "")
    assert chat.messages() == system + said("a", "one", "b\tc", "two")


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (NumericalError("logits are NaN"), "logits are NaN"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
        (RecursionError(), "RecursionError"),
        (["half an ans", InvalidArgument("it\x1b[2J broke\noff")], r"it\x1b[2J broke off"),
        (MemoryError(), "MemoryError"),
        (OSError(errno.EIO, "gone"), "gone"),
    ],
)
def test_an_error_costs_a_turn_and_the_message_can_be_retried(talk, failure, says):
    model = Scripted("one", failure, "two", failure, "three")
    out, err, chat = talk(model, "a", "b", "/retry", "c", "d")
    assert [messages for messages, _ in model.asked] == [
        said("a"),
        said("a", "one", "b"),
        said("a", "one", "b"),
        said("a", "one", "b", "two", "c"),
        said("a", "one", "b", "two", "d"),
    ]
    assert chat.messages() == said("a", "one", "b", "two", "d", "three")
    assert err.count(says) == err.count("this turn is left out; /retry asks again") == 2
    assert "\x1b" not in err and all(f"{answer}\n" in out for answer in ("one", "two", "three"))


def test_a_reader_that_goes_away_ends_the_chat(talk):
    with pytest.raises(BrokenPipeError):
        talk(Scripted(BrokenPipeError()), "a")


@pytest.mark.parametrize("empty", [[], [""], ["\n \n"], [Piece("thought", "hm")]])
def test_an_empty_answer_is_no_turn(talk, empty):
    model = Scripted(empty, "yes")
    _, err, chat = talk(model, "a", "b")
    assert "the answer is empty, so this turn is left out" in err
    assert chat.messages() == said("b", "yes")


def test_ctrl_c_ends_an_answer_and_keeps_it(talk):
    ended = []

    def answer(_):
        try:
            yield "half an "
            yield lambda: signal.raise_signal(signal.SIGINT)
            yield "never"
        finally:
            signal.raise_signal(signal.SIGINT)  # the user is impatient
            ended.append(True)

    model, before = Scripted(answer, "two"), signal.getsignal(signal.SIGINT)
    out, _, chat = talk(model, "a", "b")
    assert out == "half an \ntwo\n"
    assert chat.messages() == said("a", "half an", "b", "two") and ended
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("begun", [(), ("",)])
def test_ctrl_c_before_an_answer_costs_the_turn_alone(talk, begun):
    model = Scripted("one", [*begun, lambda: signal.raise_signal(signal.SIGINT)], "three")
    assert talk(model, "a", "b", "c")[2].messages() == said("a", "one", "c", "three")


def up_to(messages):
    """A model whose context has room for so many."""

    def answer(asked):
        if sum(m["role"] != "system" for m in asked) > messages:
            raise ContextFull("too long")
        yield f"answer {asked[-1]['content']}"

    return answer


@pytest.mark.parametrize("system", [None, "brief"])
def test_a_full_context_drops_the_oldest_turns_and_says_so(talk, system):
    model = Scripted(*[up_to(5)] * 40)
    _, err, chat = talk(model, *"abcdef", system=system)
    first = [] if system is None else [{"role": "system", "content": "brief"}]
    assert model.asked[-1][0] == first + said("d", "answer d", "e", "answer e", "f")
    assert err == "the context is full: the oldest turn is dropped\n" * 3  # at d, e and f
    assert len(chat.messages()) == len(first) + 12  # what is saved has them all


def test_several_turns_are_dropped_at_once(talk):
    model = Scripted("1", "2", "3", *[up_to(1)] * 4)
    _, err, _ = talk(model, *"abcd")
    assert err == "the context is full: the 3 oldest turns are dropped\n"


def test_a_message_that_is_too_long_alone_drops_nothing(talk):
    model = Scripted("1", "2", *[ContextFull("that is too long")] * 3, "4")
    _, err, chat = talk(model, "a", "b", "long", "d")
    assert err == "that is too long\nthis turn is left out; /retry asks again\n"
    assert model.asked[-1][0] == said("a", "1", "b", "2", "d")
    assert chat.messages() == said("a", "1", "b", "2", "d", "4")


def test_an_answer_that_has_begun_is_not_asked_for_again(talk):
    model = Scripted("1", ["half", ContextFull("full")])
    out, err, chat = talk(model, "a", "b")
    assert out == "1\nhalf\n" and len(model.asked) == 2 and "full" in err
    assert chat.messages() == said("a", "1")


def test_notes_come_after_the_answer(talk, monkeypatch):
    both = io.StringIO()
    monkeypatch.setattr(sys, "stdout", both)
    monkeypatch.setattr(sys, "stderr", both)
    talk(Scripted([Piece("note", "that was fast"), "yes"]), "a")
    assert both.getvalue() == "yes\nthat was fast\n"


@pytest.mark.parametrize(
    ("line", "near"),
    [("/hlep", "/help"), ("/exi", "/exit"), ("/clera now", "/clear"), ("/Save x", "/save"), ("/", "/"), ("//x", "/")],
)
def test_an_unknown_command_is_reported_and_never_sent(talk, line, near):
    model = Scripted()
    out, err, _ = talk(model, line)
    assert not model.asked and out == ""
    assert f"there is no command {line.split()[0]}; did you mean {near}" in err


def test_a_slash_after_a_space_is_a_message(talk):
    model = Scripted()
    talk(model, " /etc/hosts, what is that?")
    assert model.asked[0][0] == said(" /etc/hosts, what is that?")


@pytest.mark.parametrize("leaves", ["/exit", "/bye", "/exit now"])
def test_leaving(talk, leaves):
    model = Scripted()
    assert talk(model, leaves, "a")[:2] == ("", "") and not model.asked


def test_help_names_every_command(talk):
    model = Scripted()
    out, err, chat = talk(model, "/help")
    assert out == "" and not model.asked
    listed = {line.split()[0] for line in err.splitlines() if line.startswith("/")}
    assert listed == {f"/{name}" for name in Commands(chat)._all}
    assert {"/help", "/exit", "/bye", "/clear", "/system", "/set", "/save", "/retry"} <= listed


def test_clear_forgets_turns_and_keeps_the_rest(talk):
    model = Scripted()
    _, err, _ = talk(model, "a", "/set seed 3", "/clear", "/retry", "b", system="brief")
    assert model.asked[1] == ([{"role": "system", "content": "brief"}, *said("b")], {"seed": 3})
    assert "no message to answer again" in err


def test_system_is_shown_set_and_removed(talk):
    model = Scripted()
    _, err, _ = talk(model, "/system", "a", "/system Be\n\tbrief.", "/system", "b", '/system ""', "c")
    assert [messages[0]["role"] for messages, _ in model.asked] == ["user", "system", "user"]
    assert model.asked[1][0][0]["content"] == "Be\n\tbrief."
    assert err.count("there is no system message") == 2 and err.count("system message: Be") == 2


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("/set temperature 0.5", {"temperature": 0.5}),
        ("/set max-new-tokens 7", {"max_new_tokens": 7}),
        ("/set max_tokens 7", {"max_new_tokens": 7}),
        ("/set stop END OF IT", {"stop": "END OF IT"}),
        ('/set stop ["a", "b"]', {"stop": ["a", "b"]}),
        ("/set speculate false", {"speculate": False}),
        ("/set speculate always", {"speculate": "always"}),
        ("/set seed default", {}),
        ("/set temperature -1", "temperature=-1, want a number in"),
        ("/set temperature warm", "temperature='warm', want"),
        ("/set temperature NaN", "temperature=nan, want"),
        ("/set temprature 1", "temprature is no option of answers of scripted; did you mean temperature?"),
        ("/set kvq true", "kvq is no option of answers of scripted; did you mean"),
        ("/set temperature", "/set temperature has no value"),
    ],
)
def test_set_changes_an_option_or_says_what_is_wrong(talk, line, options):
    model = Scripted()
    _, err, _ = talk(model, line, "a")
    assert model.asked[0][1] == (options if isinstance(options, dict) else {})
    assert options in err if isinstance(options, str) else err.startswith(("max_new_tokens", line.split()[1]))


def test_set_alone_shows_all(talk):
    _, err, _ = talk(Scripted(), "/set seed 3", "/set temperature 0.5", "/set seed default", "/set")
    assert err.splitlines()[3:] == ["temperature 0.5", "at their defaults: seed, max_new_tokens, stop, speculate"]


def test_retry_replaces_the_last_answer_with_another_seed(talk):
    model = Scripted("1", "2", "3", "4", "5")
    _, err, chat = talk(model, f"/set seed {2**64 - 1}", "a", "b", "/retry", "/retry", "c")
    assert [messages for messages, _ in model.asked[2:]] == [said("a", "1", "b")] * 2 + [said("a", "1", "b", "4", "c")]
    assert [options["seed"] for _, options in model.asked] == [2**64 - 1, 2**64 - 1, 0, 1, 2**64 - 1]
    assert chat.messages() == said("a", "1", "b", "4", "c", "5") and "greedy" not in err


def test_a_retry_that_fails_keeps_the_answer_that_there_was(talk):
    model = Scripted("1", "same", InvalidArgument("no"), InvalidArgument("no"), "2")
    _, err, chat = talk(model, "/set temperature 0", "a", "a", "/retry", "a", "/retry")
    assert chat.messages() == said("a", "1", "a", "same", "a", "2")
    assert err.count("the answers are greedy, so this one is the same again") == 2


def test_save_writes_what_was_said(talk, tmp_path):
    lines = ["/set seed 3", "a\tb", "/save x.md", "/save x.md", "/save x.json", "c", "/save --force x.md", "/save"]
    lines += ["/save no/folder/x.md", "/save two words.md"]
    there = Path.cwd()
    os.chdir(tmp_path)
    try:
        _, err, _ = talk(Scripted("1\n2", "3"), *lines, system="brief")
    finally:
        os.chdir(there)
    saved = json.loads((tmp_path / "x.json").read_text())
    system = {"role": "system", "content": "brief"}
    assert saved == {"model": "scripted", "options": {"seed": 3}, "messages": [system, *said("a\tb", "1\n2")]}
    page = (tmp_path / "x.md").read_text()
    parts = (
        "# scripted",
        "## System",
        "brief",
        "## User",
        "a\tb",
        "## Assistant",
        "1\n2",
        "## User",
        "c",
        "## Assistant",
    )
    assert page == "\n\n".join([*parts, "3"]) + "\n"
    assert (tmp_path / "two words.md").read_text() == page
    assert err.count("[chat] x.md is there already; /save --force x.md replaces it") == 1
    assert f"1 turn written to {tmp_path}/x.md" in err and f"2 turns written to {tmp_path}/x.md" in err
    assert "/save has no file" in err and "No such file" in err
