"""A model's own answers, for heads to learn from, as JSON lines.

    python -m swiftk.train.answers PROMPTS... --target MODEL --out chats.jsonl [--invent N] [--tokens N]

PROMPTS are text files and JSON lines, as the trainer reads them; a chat's last answers are left out. With --invent N
the model draws N further questions itself: a chat model that is given the beginning of a user's message goes on with
what users ask (Magpie, arXiv 2406.08464), and those that it ends are taken. Each line of the result is a chat
(`messages`), or a `prompt` and its `completion` for models without a chat template. An invented one has its seed, too
(`invented`). Every second answer is drawn at --temperature, the others are greedy. A run that was stopped goes on where
it was.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any

import typer

import swiftk

from ..api import LM
from ..cli import guarded
from ..files.model_folder import find
from . import texts
from .progress import counting

_TOGETHER = 128  # texts that the model generates at a time
_GROUP = 4 * _TOGETHER  # answers between two writes
_LONGEST = 128  # tokens of a prompt that the model invents
_MARK = "THE PROMPT"


def main(
    target: Annotated[str, typer.Option(help="the model that answers: a folder or a GGUF file")],
    out: Annotated[Path, typer.Option(help="the file to write, or to go on with")],
    prompts: Annotated[list[Path] | None, typer.Argument(metavar="PROMPTS...", help="text files, JSON lines")] = None,
    invent: Annotated[int, typer.Option(help="prompts that the model writes itself", min=0)] = 0,
    tokens: Annotated[int, typer.Option(help="most tokens of an answer", min=1)] = 256,
    temperature: Annotated[float, typer.Option(help="of every second answer", min=0)] = 1.0,
    field: Annotated[str | None, typer.Option(help="the field of a JSON line that is a prompt")] = None,
    template: Annotated[str | None, typer.Option(help="the prompt of a JSON line from several fields")] = None,
) -> None:
    form = texts.template_of(field, template)
    if prompts or not invent:
        texts.check(prompts or [], form)
    load = {"device": "cpu", "draft_weights": "own", "draft_vocab": "all", "max_sequences": _TOGETHER}
    lm = swiftk.load(find(target, "train"), **load)
    there = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    count, last = len(there), json.loads(there[-1]).get("invented") if there else None
    given = prompts_of(lm, prompts or [], form) if last is None else iter(())
    drawn = invented(lm, 0 if last is None else last + 1, invent)
    asked = chain(islice(given, count, None), drawn)
    with out.open("a", encoding="utf-8") as file, counting("answered") as say:
        while group := list(islice(asked, _GROUP)):
            for line in answered(lm, group, count, tokens, temperature):
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
            file.flush()
            count += len(group)
            say(count)


def prompts_of(lm: LM, files: Sequence[Path], form: str | None) -> Iterator[tuple[Any, None]]:
    """Texts, or lists of messages that end with a question. A chat model gets texts as questions."""
    for path in files:
        for prompt in texts.prompts(path, form):
            chat = isinstance(prompt, str) and lm.tokenizer.has_template
            yield ([{"role": "user", "content": prompt}] if chat else prompt), None


def invented(lm: LM, first: int, end: int) -> Iterator[tuple[list[dict[str, str]], int]]:
    """Questions that the model draws after the beginning of a user's message, those that end; and their seeds, from
    first up to end."""
    if first >= end:
        return
    written = lm.tokenizer.render([{"role": "user", "content": _MARK}])
    begin = lm.tokenizer.encode(written[: written.index(_MARK)], special=False, parse_special=True)
    options = {"temperature": 1.0, "max_new_tokens": _LONGEST, "speculate": False}
    for at in range(first, end, _TOGETHER):
        seeds = range(at, min(at + _TOGETHER, end))
        found = lm.generate_many([begin] * len(seeds), each=[{"seed": seed} for seed in seeds], **options)
        for seed, result in zip(seeds, found, strict=True):
            if result.finish_reason == "stop" and result.text.strip():
                yield [{"role": "user", "content": result.text.strip()}], seed


def answered(
    lm: LM, asked: Sequence[tuple[Any, int | None]], first: int, tokens: int, temperature: float
) -> Iterator[dict[str, Any]]:
    """Lines of the result; first: how many came before."""
    each = [{"temperature": temperature * (i % 2), "seed": i} for i in range(first, first + len(asked))]
    prompts, options = [prompt for prompt, _ in asked], {"parse_special": True, "speculate": False}
    found = lm.generate_many(prompts, each=each, max_new_tokens=tokens, **options)
    for (prompt, seed), result in zip(asked, found, strict=True):
        if isinstance(prompt, str):
            yield {"prompt": prompt, "completion": result.text}
        else:
            drawn = {} if seed is None else {"invented": seed}
            yield {"messages": [*prompt, {"role": "assistant", "content": result.text}], **drawn}


if __name__ == "__main__":
    sys.exit(guarded(lambda: typer.run(main) or 0, "swiftk.train.answers"))
