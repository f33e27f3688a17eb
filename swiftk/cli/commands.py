"""Commands of a chat: lines that begin with a slash. They print on stderr."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import InvalidArgument, SwiftkError
from .common import err
from .conversation import Conversation
from .options import value
from .terminal import plain

_FORCE = "--force "


class Commands:
    """Runs the commands of a chat, and passes on messages."""

    def __init__(self, chat: Conversation) -> None:
        self._chat = chat
        # name: (what it takes, what it does, how). None: it leaves.
        self._all: dict[str, tuple[str, str, Callable[[str], None] | None]] = {
            "help": ("", "shows this", self._help),
            "exit": ("", "leaves, as /bye and Ctrl-D do", None),
            "bye": ("", "leaves", None),
            "clear": ("", "forgets the conversation; the system message and options stay", self._clear),
            "system": ("[TEXT]", 'sets the system message; "" removes it; alone it shows it', self._system),
            "set": (
                "[NAME VALUE]",
                "sets an option; the VALUE default unsets it; alone it shows all",
                self._set,
            ),
            "save": ("[--force] FILE", "writes the conversation, as JSON or Markdown by FILE's ending", self._save),
            "retry": ("", "asks for another answer to the last message, with another seed", self._retry),
        }

    def receive(self, text: str) -> bool:
        """A message or a command; False: the user leaves."""
        if not text.startswith("/"):
            if text.strip():
                self._chat.ask(text)
            return True
        word, *rest = text[1:].split(maxsplit=1) or [""]
        if word not in self._all:
            near = difflib.get_close_matches(word, self._all, n=1, cutoff=0)[0]
            err.print(
                plain(f"there is no command /{word}; did you mean /{near}? /help shows all. ")
                + "A message may begin with a slash after a space."
            )
            return True
        how = self._all[word][2]
        if how is None:
            return False
        try:
            how(rest[0] if rest else "")
        except (SwiftkError, OSError) as error:
            err.print(plain(str(error)))
        return True

    def _help(self, _: str) -> None:
        for name, (takes, does, _how) in self._all.items():
            err.print(f"{f'/{name} {takes}':<24}{does}", soft_wrap=True)
        err.print(
            "Alt-Enter, or Esc and Enter, begins a new line. Up and Down go through earlier messages, Ctrl-R searches "
            "them. Ctrl-C ends an answer, and what came of it is kept."
        )

    def _clear(self, _: str) -> None:
        self._chat.clear()
        err.print("the conversation is empty")

    def _system(self, text: str) -> None:
        if text:
            self._chat.system = None if text.strip() == '""' else text
        system = self._chat.system
        err.print("there is no system message" if system is None else f"system message: {plain(system)}")

    def _set(self, text: str) -> None:
        chat, (name, *given) = self._chat, text.split(maxsplit=1) or [""]
        if given:
            name = chat.set(name, value(given[0]))
            err.print(plain(f"{name} {_spelled(chat.options.get(name))}"))
        elif name:
            raise InvalidArgument(f"[chat] /set {name} has no value, want /set {name} VALUE, or default")
        else:
            for name, one in chat.options.items():
                err.print(plain(f"{name} {_spelled(one)}"))
            rest = (name for name in chat.model.options if name not in chat.options)
            err.print(f"at their defaults: {', '.join(rest)}")

    def _save(self, text: str) -> None:
        force = f"{text} ".startswith(_FORCE)
        name = text[len(_FORCE) :].strip() if force else text.strip()
        if not name:
            raise InvalidArgument("[chat] /save has no file, want /save FILE.json or /save FILE.md")
        path, turns = Path(name).expanduser(), len(self._chat.turns)
        saved = _json(self._chat) if path.suffix == ".json" else _markdown(self._chat)
        try:
            with path.open("w" if force else "x", encoding="utf-8", errors="replace") as file:
                file.write(saved)
        except FileExistsError:
            raise InvalidArgument(f"[chat] {path} is there already; /save --force {path} replaces it") from None
        err.print(f"{turns} turn{'s' * (turns != 1)} written to {os.path.abspath(path)}")

    def _retry(self, _: str) -> None:
        self._chat.retry()


def _spelled(value: Any) -> str:
    return "default" if value is None else json.dumps(value, ensure_ascii=False)


def _json(chat: Conversation) -> str:
    saved = {"model": chat.model.name, "options": chat.options, "messages": chat.messages()}
    return json.dumps(saved, ensure_ascii=False, indent=2) + "\n"


def _markdown(chat: Conversation) -> str:
    parts = (f"## {message['role'].capitalize()}\n\n{message['content']}\n" for message in chat.messages())
    return "\n".join([f"# {chat.model.name}\n", *parts])
