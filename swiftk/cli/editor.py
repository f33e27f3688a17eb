"""The line editor of `swiftk chat`: prompt_toolkit with a history in a file."""

from __future__ import annotations

import os
import signal
import sys
import termios
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout.processors import TabsProcessor
from prompt_toolkit.output import Output, create_output

from ..files.folders import state_folder
from .common import err

LEAVE = "Ctrl-C again, Ctrl-D or /exit leaves"


class Editor:
    """Messages that are typed or pasted, which may have several lines. Iterating it ends where the user leaves."""

    def __init__(self, output: Output | None = None, **how: Any) -> None:
        """how: PromptSession's options."""
        self._session: PromptSession[str] = PromptSession(
            "> ",
            prompt_continuation="  ",
            multiline=True,
            key_bindings=_keys(),
            history=_history(),
            input_processors=[TabsProcessor(char1=" ", char2=" ")],
            enable_suspend=True,
            reserve_space_for_menu=0,
            output=output,
            **how,
        )

    def __iter__(self) -> Iterator[str]:
        interrupted, output = False, self._session.output
        while True:
            try:
                text = self._session.prompt()
            except KeyboardInterrupt:
                if interrupted and not self._session.default_buffer.text:
                    return
                interrupted = True
                err.print(LEAVE)
                continue
            except EOFError:
                return
            interrupted = False
            output.enable_bracketed_paste()  # for what is pasted while the answer is written
            output.flush()
            yield text
            output.disable_bracketed_paste()
            output.flush()


def _keys() -> KeyBindings:
    """Enter sends; Alt-Enter, or Esc and Enter, begins a new line."""
    keys = KeyBindings()

    @keys.add("enter", filter=has_focus(DEFAULT_BUFFER))
    def send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter", filter=has_focus(DEFAULT_BUFFER))
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("tab", filter=has_focus(DEFAULT_BUFFER))
    def tab(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\t")

    return keys


class _History(FileHistory):
    """One that a full disk does not end a conversation for."""

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            super().store_string(string)


def _history() -> History:
    """History of all chats, in a file that only its user can read; of this chat alone if there can be no file."""
    path = state_folder() / "chat_history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)
    except OSError as error:
        err.print(f"{path} cannot be written ({error.strerror}): the history is of this chat alone")
        return InMemoryHistory()
    return _History(str(path))


@contextmanager
def unechoed(terminal: TextIO) -> Iterator[None]:
    """Keeps what is typed while an answer is written for the next prompt, whole: a terminal that reads line by line
    cuts lines after 4,095 bytes. Ctrl-C still interrupts."""
    before = termios.tcgetattr(terminal)
    now = termios.tcgetattr(terminal)
    now[0] &= ~termios.ICRNL
    now[3] &= ~(termios.ECHO | termios.ICANON)
    now[6][termios.VMIN], now[6][termios.VTIME] = 1, 0
    termios.tcsetattr(terminal, termios.TCSADRAIN, now)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@contextmanager
def typed(shown: TextIO) -> Iterator[Iterable[str]]:
    """Messages from the terminal at stdin; the editor is shown at another stream. Ctrl-C between a prompt and an answer
    interrupts neither, so it does nothing."""
    before = signal.getsignal(signal.SIGINT)
    try:
        with unechoed(sys.stdin):
            yield _uninterrupted(Editor(create_output(shown)))
    finally:
        signal.signal(signal.SIGINT, before)


def _uninterrupted(messages: Iterable[str]) -> Iterator[str]:
    for text in messages:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # each prompt sets a handler of its own
        yield text
