"""swiftk chat: a conversation in the terminal, with a model here or with a server's."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from ..errors import InvalidArgument
from ..options.generate_options import GenerateOptions
from .commands import Commands
from .common import Loading, err, loads
from .conversation import Conversation, Model
from .local import Local
from .options import Given, flags, takes
from .remote import Remote
from .terminal import plain

_HOW = "/help lists commands; Ctrl-C ends an answer; /exit or Ctrl-D leaves"


@loads()
@takes(GenerateOptions, "chosen", without=("parse_special",))
def command(
    model: Annotated[
        str | None, typer.Argument(help="A Hugging Face folder, or 'demo'; or give --url.", show_default=False)
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Talk with a server instead, such as http://127.0.0.1:8000/v1.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="The server's model. Default: the first it lists.")
    ] = None,
    api_key: Annotated[str | None, typer.Option(envvar="SWIFTK_API_KEY", help="The server's key.")] = None,
    system: Annotated[str | None, typer.Option(help="The system message.")] = None,
    max_new_tokens: Annotated[
        int | None,
        typer.Option("--max-new-tokens", "-n", help="Maximum number of tokens of an answer. Default: to its end."),
    ] = None,
    no_spec: Annotated[bool, typer.Option("--no-spec", help="Decode without drafting.")] = False,
    stats: Annotated[bool, typer.Option("--stats", help="After each answer, print speed and acceptance.")] = False,
    *,
    chosen: Given,
    loading: Loading,
) -> None:
    """Talk with a model. /help shows commands."""
    if (model is None) == (url is None):
        raise InvalidArgument("[chat] want a model, or --url of a server")
    if url is not None and loading:
        raise InvalidArgument(f"[chat] {flags(loading)}: for a model that is loaded here, and --url names a server")
    if url is None and name is not None:
        raise InvalidArgument(f"[chat] --model {name} is for --url; a folder is given without --model")
    options = {**chosen, **({"speculate": False} if no_spec else {})}
    options |= {"max_new_tokens": max_new_tokens} if max_new_tokens is not None else {}
    GenerateOptions.parse(options)  # a wrong option shows before minutes of loading
    speaker: Model = Local(model or "", loading, stats) if url is None else Remote(url, name, api_key)
    chat = Conversation(speaker, system)
    for option, value in options.items():
        chat.set(option, value)
    if speaker.note:
        err.print(plain(speaker.note))
    with messages(speaker.about) as received:
        converse(chat, received)


def converse(chat: Conversation, received: Iterable[str]) -> None:
    """Until the user leaves, or there are no more messages."""
    commands = Commands(chat)
    for text in received:
        if not commands.receive(text):
            return


@contextmanager
def messages(about: str) -> Iterator[Iterable[str]]:
    """The user's messages: from a line editor on a terminal, else the lines of stdin."""
    shown = next((stream for stream in (sys.stdout, sys.stderr) if stream.isatty()), None)
    if shown is None or sys.stdin is None or not sys.stdin.isatty():
        yield piped()
        return
    from .editor import typed

    print(f"{plain(about)}\n{_HOW}", file=shown)
    with typed(shown) as received:
        yield received


def piped() -> Iterator[str]:
    """Lines of stdin. Bytes that are no UTF-8 are an error of their line alone."""
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(errors="surrogateescape")
    return (line.removesuffix("\n") for line in sys.stdin or ())
