"""The editor of swiftk chat, and a terminal."""

import errno
import os
import pty
import stat
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

import swiftk
from swiftk.cli import editor


@pytest.fixture
def typed(monkeypatch, tmp_path, capsys):
    """typed(*keys) -> (messages, stderr): what an editor makes of the keys of each message. Keys that come
    before their prompt are read before the history is."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*keys):
        received = []
        with create_pipe_input() as pipe:
            messages = iter(editor.Editor(DummyOutput(), input=pipe))
            for one in keys:
                pipe.send_text(one)
                received += [next(messages)]
            pipe.send_text(CTRL_D)
            assert list(messages) == []
        return received, capsys.readouterr().err

    return run


UP, LEFT, CTRL_C, CTRL_D, ALT_ENTER = "\x1b[A", "\x1b[D", "\x03", "\x04", "\x1b\r"


def pasted(text):
    return f"\x1b[200~{text}\x1b[201~"


@pytest.mark.parametrize(
    ("keys", "received"),
    [
        (["one\r", "two\r"], ["one", "two"]),
        ([f"ac{LEFT}b\r"], ["abc"]),
        (["one\r", f"{UP}\r"], ["one", "one"]),
        (["one\r", "two\r", f"{UP}{UP}!\r"], ["one", "two", "one!"]),
        ([pasted("a\r\n\tb\rc\n") + "d\r"], ["a\n\tb\nc\nd"]),
        ([pasted("/exit\nnot a command") + "\r"], ["/exit\nnot a command"]),
        ([f"a{ALT_ENTER}b\r"], ["a\nb"]),
        (["a\tb\r"], ["a\tb"]),
        (["one\n"], ["one"]),
        ([], []),
    ],
)
def test_what_is_typed(typed, keys, received):
    assert typed(*keys) == (received, "")


@pytest.mark.parametrize("length", [4094, 4096, 60_000])
def test_a_long_paste_is_whole(typed, length):
    text = "x" * length + "END"
    assert typed(pasted(text) + "\r") == ([text], "")


def test_ctrl_c_cancels_a_line_and_twice_leaves(typed, capsys):
    hint = f"{editor.LEAVE}\n"
    assert typed(f"half{CTRL_C}whole\r", f"{CTRL_C}again\r", "more\r") == (["whole", "again", "more"], hint * 2)
    with create_pipe_input() as pipe:
        pipe.send_text(f"one\r{CTRL_C}two\r{CTRL_C}half{CTRL_C}half{CTRL_C}{CTRL_C}three\r")
        assert list(editor.Editor(DummyOutput(), input=pipe)) == ["one", "two"]
    assert capsys.readouterr().err == hint * 4


def test_the_history_is_kept_for_its_user_alone(typed, tmp_path):
    assert typed(f"one{ALT_ENTER}two\r") == (["one\ntwo"], "")
    assert typed(f"{UP}\r") == (["one\ntwo"], "")
    file = tmp_path / "state" / "swiftk" / "chat_history"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    file.chmod(0o644)
    typed()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_history_that_cannot_be_written_is_of_this_chat(typed, tmp_path, monkeypatch):
    (tmp_path / "state").write_text("a file")
    received, err = typed("one\r", f"{UP}\r")
    assert received == ["one", "one"] and "the history is of this chat alone" in err
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))

    def full(*_):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(editor.FileHistory, "store_string", full)
    assert typed("one\r") == (["one"], "")


@pytest.mark.skipif(sys.platform != "linux", reason="how a terminal ends differs")
def test_in_a_terminal(tiny_dir, tmp_path):
    """A process of its own on a pseudo-terminal, which is afterwards what it was."""
    ours, terminal = pty.openpty()
    before = termios.tcgetattr(ours)
    environment = {**os.environ, "TERM": "xterm", "XDG_STATE_HOME": str(tmp_path), "PROMPT_TOOLKIT_NO_CPR": "1"}
    command = [sys.executable, "-m", "swiftk", "chat", str(tiny_dir("llama3")), "-n", "6"]
    streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    shown, seen = b"", 0
    with subprocess.Popen(command, env=environment, cwd=Path(swiftk.__file__).parents[1], **streams) as child:
        os.close(terminal)  # so that reading ends where the child does

        def until(text):
            """Of what was not waited for yet."""
            nonlocal shown, seen
            while text not in shown[seen:]:
                shown += os.read(ours, 4096)
            seen = shown.index(text, seen) + len(text)

        prompt = b"\x1b[?2004h"  # asks for pastes to be marked
        until(b": llama, ")
        until(b"context 512 tokens")
        until(b"/help lists commands")
        until(prompt)
        os.write(ours, pasted("/one\n/two").encode() + b"\r")
        until(b"there is no command /one")
        until(prompt)
        os.write(ours, b"hello\r/three\r")  # both at once: the second is typed while an answer is written
        until(b"there is no command /three")
        until(prompt)
        os.write(ours, CTRL_C.encode())
        until(editor.LEAVE.encode())
        until(prompt)
        os.write(ours, CTRL_D.encode())
        assert child.wait() == 0
    assert termios.tcgetattr(ours) == before
    os.close(ours)
