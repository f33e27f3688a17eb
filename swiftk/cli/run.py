"""swiftk run: one text, streamed. A model with a chat template gets the prompt as the user's message."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from ..draft.sources import DRAFTERS
from ..errors import InvalidArgument
from ..options.generate_options import GenerateOptions
from ..pages.page import check, report
from ..text.tokenizer import Tokenizer
from .common import (
    JsonOption,
    Loading,
    ModelArgument,
    NewTokensOption,
    err,
    loads,
    model_folder,
    open_model,
    print_json,
    why_off,
)
from .options import Given, takes
from .terminal import Screen, one_interrupt

_DRAFTER = (
    f"Sources of draft tokens: {', '.join(DRAFTERS)}; or the folder of a trained head or small model. May be repeated."
)


@loads()
@takes(GenerateOptions, "chosen")
def command(
    model: ModelArgument,
    prompt: Annotated[str, typer.Argument(help="The prompt; - reads it from stdin.")],
    raw: Annotated[bool, typer.Option("--raw", help="Continue the prompt's text: no chat template.")] = False,
    system: Annotated[str | None, typer.Option(help="A system message before the prompt.")] = None,
    max_new_tokens: NewTokensOption = None,
    skip: Annotated[str, typer.Option(help="Layers that drafts skip: auto, or a file of `swiftk tune`.")] = "auto",
    drafter: Annotated[list[str] | None, typer.Option(metavar="NAME|FOLDER", help=_DRAFTER)] = None,
    no_spec: Annotated[bool, typer.Option("--no-spec", help="Decode without drafting.")] = False,
    page: Annotated[
        str | None, typer.Option("--report", metavar="FILE", help="Write an HTML page of who proposed each token.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="At the end, print on stderr why each round drafted or did not.")
    ] = False,
    stats: Annotated[bool, typer.Option("--stats", help="At the end, print speed and acceptance on stderr.")] = False,
    json: JsonOption = False,
    *,
    chosen: Given,
    loading: Loading,
) -> None:
    """Generate one text from a prompt. If the model has a chat template, it answers the prompt."""
    if page is not None:
        check(page)
    words = loading.get("tokenizer") or model_folder(model)
    chats = Tokenizer(words, loading.get("chat_template")).has_template
    asked = _prompt(prompt, system, chats and not raw, "--raw leaves out" if raw else f"{model} does not have")
    name, folders = _drafters(drafter or [])
    lm = open_model(model, {**loading, "drafter": folders})
    options: dict[str, Any] = {
        **chosen,
        "max_new_tokens": max_new_tokens,
        "skip": skip,
        "drafter": name,
        **({"speculate": False} if no_spec else {}),
        "explain": explain,
    }
    result = _streamed(lm, asked, options, quiet=json)
    show_nothing(result, chats, raw)
    if json:
        print_json(result.to_dict())
    elif stats:
        show_stats(result)
    else:
        show_cut(result, max_new_tokens)
    for number, one in enumerate(result.trace.rounds if explain else (), 1):
        err.print(f"{number}: {one.why}")
    if page is not None:
        report(result, page)
    if result.finish_reason == "cancelled":
        raise KeyboardInterrupt


def _drafters(given: list[str]) -> tuple[str | None, list[str]]:
    """(a name of what proposes tokens, folders of what is to be loaded)"""
    names, folders = ([one for one in given if (one in DRAFTERS) == named] for named in (True, False))
    if len(names) > 1:
        raise InvalidArgument(f"[run] --drafter names {' and '.join(names)}, want one of them, or folders")
    return (names[0] if names else None), folders


def _prompt(prompt: str, system: str | None, chat: bool, why_not: str) -> str | list[dict[str, str]]:
    """As generate() takes it: messages for a chat template, else text."""
    if system is not None and not chat:
        raise InvalidArgument(f"[run] --system {system!r} is for the chat template, which {why_not}")
    text = sys.stdin.read() if prompt == "-" else prompt
    before = [] if system is None else [{"role": "system", "content": system}]
    return [*before, {"role": "user", "content": text}] if chat else text


def _streamed(lm: Any, prompt: Any, options: dict[str, Any], quiet: bool) -> Any:
    """The text on stdout as it comes, unless quiet; the result. An interrupt ends the text after what it has."""
    stream, screen = lm.generate(prompt, stream=True, **options), Screen()
    try:
        with one_interrupt():
            for event in stream:
                if not quiet:
                    screen.write(event.text)
    except KeyboardInterrupt:
        stream.close()
    if not quiet:
        screen.end()
    return stream.result


def show_nothing(result: Any, chats: bool, raw: bool = False) -> None:
    """Says that a text ended before there was anything to see, and why it may. chats: the model has a template."""
    if result.finish_reason != "stop" or result.text.strip():
        return
    if chats and raw:
        why = "this model answers messages, and --raw gave it plain text: leave out --raw"
    elif chats:
        why = "the model has nothing to say to that: ask otherwise, or raise --temperature"
    else:
        why = "to the model the prompt is a whole text: leave its last sentence unfinished"
    err.print(f"nothing to show: the text ended at {_tokens(len(result.tokens))}; {why}")


def _tokens(n: int) -> str:
    return "its first token" if n == 1 else f"token {n}, after white space or special tokens"


def show_cut(result: Any, asked: int | None) -> None:
    """Says that a text was ended by a limit that nobody asked for."""
    if asked is None and result.finish_reason == "length":
        err.print(f"ended after {len(result.tokens)} tokens; --max-new-tokens raises the limit")


def show_stats(result: Any) -> None:
    """The figures a user asks for, on stderr."""
    for line in stats_lines(result):
        err.print(line)


def stats_lines(result: Any) -> Iterator[str]:
    """Figures of a text, one line each."""
    s = result.stats
    yield (
        f"{s.generated_tokens} tokens ({result.finish_reason}), {s.tokens_per_second:.1f} tokens/s, first after "
        f"{s.time_to_first_token:.3f} s, seed {result.seed}"
    )
    if s.num_spec_steps:
        gain = "" if s.speedup_vs_plain is None else f", {s.speedup_vs_plain:.2f}x plain decoding"
        yield (
            f"{s.mean_acceptance_length:.2f} tokens per pass with a draft, {s.draft_acceptance_rate:.0%} of draft "
            f"tokens accepted{gain}"
        )
    if s.accepted_by:
        by = (f"{name} {s.accepted_by.get(name, 0)} of {n}" for name, n in s.proposed_by.items())
        yield f"accepted, by source: {', '.join(by)}"
    if s.plans:
        plans = (f"{name} {plan.accepted} of {plan.drafted}" for name, plan in s.plans.items())
        yield f"accepted, by plan: {'; '.join(plans)}"
    if s.reason_off:
        yield why_off(s.speculation, s.reason_off)
