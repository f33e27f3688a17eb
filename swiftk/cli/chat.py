"""swiftk chat: a conversation; the cache carries over from turn to turn."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .common import (
    DeviceOption,
    DrafterOption,
    DtypeOption,
    ModelArgument,
    NewTokensOption,
    ThreadsOption,
    err,
    open_model,
    out,
)
from .run import show_cut, show_stats


def command(
    model: ModelArgument,
    system: Annotated[str | None, typer.Option(help="A system message.")] = None,
    max_new_tokens: NewTokensOption = None,
    temperature: Annotated[float | None, typer.Option()] = None,
    seed: Annotated[int | None, typer.Option()] = None,
    no_spec: Annotated[bool, typer.Option("--no-spec", help="Decode without drafts.")] = False,
    stats: Annotated[bool, typer.Option("--stats")] = False,
    threads: ThreadsOption = None,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    drafter: DrafterOption = None,
) -> None:
    """Talk with a model. /exit leaves, /clear forgets; Ctrl-C stops an answer."""
    lm = open_model(model, threads, dtype, device, drafter=drafter)
    messages: list[dict[str, str]] = [{"role": "system", "content": system}] if system else []
    if not lm.tokenizer.has_template:
        err.print("this checkpoint has no chat template: the conversation is written as a plain transcript")
    options = {"max_new_tokens": max_new_tokens, "temperature": temperature, "seed": seed, "speculate": not no_spec}
    while True:
        try:
            said = out.input("[bold]> [/bold]").strip()
        except EOFError:
            return
        if said == "/exit":
            return
        if said == "/clear":
            messages = messages[:1] if system else []
            continue
        if said:
            messages.append({"role": "user", "content": said})
            messages.append({"role": "assistant", "content": _answer(lm, messages, options, stats)})


def _answer(lm: Any, messages: list[dict[str, str]], options: dict[str, Any], stats: bool) -> str:
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
