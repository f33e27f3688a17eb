"""swiftk chat: a conversation, with a model here or with a server's; the cache carries over from turn to turn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from ..errors import InvalidArgument
from .common import (
    Loading,
    NewTokensOption,
    err,
    loads,
    open_model,
    out,
)
from .options import flags
from .remote import Remote
from .run import show_cut, show_stats

Answer = Callable[[list[dict[str, str]]], str]


@loads()
def command(
    model: Annotated[
        str | None, typer.Argument(help="A Hugging Face folder, or 'demo'; or give --url.", show_default=False)
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Talk with a server instead, such as http://127.0.0.1:8000/v1.")
    ] = None,
    system: Annotated[str | None, typer.Option(help="The system message.")] = None,
    max_new_tokens: NewTokensOption = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy. Default: the model's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same answers. Default: random.")] = None,
    no_spec: Annotated[bool, typer.Option("--no-spec", help="Decode without drafting.")] = False,
    stats: Annotated[bool, typer.Option("--stats", help="After each answer, print speed and acceptance.")] = False,
    *,
    loading: Loading,
) -> None:
    """Talk with a model. /exit leaves, /clear forgets; Ctrl-C stops an answer."""
    if (model is None) == (url is None):
        raise InvalidArgument("[chat] want a model, or --url of a server")
    if url is not None and loading:
        raise InvalidArgument(f"[chat] {flags(loading)}: for a model that is loaded here, and --url names a server")
    answer: Answer
    if url is not None:
        chosen = {"max_completion_tokens": max_new_tokens, "temperature": temperature, "seed": seed}
        answer = partial(_remote, Remote(url), {name: value for name, value in chosen.items() if value is not None})
    else:
        lm = open_model(model or "", loading)
        if not lm.tokenizer.has_template:
            err.print("this checkpoint has no chat template: the conversation is written as a plain transcript")
        options = {"max_new_tokens": max_new_tokens, "temperature": temperature, "seed": seed, "speculate": not no_spec}
        answer = partial(_answer, lm, options, stats)
    _talk(answer, [{"role": "system", "content": system}] if system else [])


def _talk(answer: Answer, messages: list[dict[str, str]]) -> None:
    begun = len(messages)
    while True:
        try:
            said = out.input("[bold]> [/bold]").strip()
        except EOFError:
            return
        if said == "/exit":
            return
        if said == "/clear":
            messages = messages[:begun]
            continue
        if said:
            messages.append({"role": "user", "content": said})
            messages.append({"role": "assistant", "content": answer(messages)})


def _remote(server: Remote, options: dict[str, Any], messages: list[dict[str, str]]) -> str:
    pieces, text = server.chat(messages, options), []
    try:
        for piece in pieces:
            text.append(piece)
            out.print(piece, end="", soft_wrap=True)
    except KeyboardInterrupt:
        pieces.close()
    out.print()
    return "".join(text).strip()


def _answer(lm: Any, options: dict[str, Any], stats: bool, messages: list[dict[str, str]]) -> str:
    prompt, more = (messages, {}) if lm.tokenizer.has_template else (_transcript(messages), {"stop": ["\nUser:"]})
    stream = lm.generate(prompt, stream=True, **options, **more)
    text = []
    try:
        for event in stream:
            text.append(event.text)
            out.print(event.text, end="", soft_wrap=True)
    except KeyboardInterrupt:
        stream.close()
    out.print()
    show_cut(stream.result, options["max_new_tokens"])
    if stats:
        show_stats(stream.result)
    return "".join(text).strip()


def _transcript(messages: list[dict[str, str]]) -> str:
    names = {"user": "User", "assistant": "Assistant", "system": "System"}
    return "\n".join(f"{names[m['role']]}: {m['content']}" for m in messages) + "\nAssistant:"
