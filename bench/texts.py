"""Texts to measure with, in the model's tokens and as it is used: by its chat template where it has one; and the
bundled model at a real size."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from swiftk import demo_model
from swiftk.files import grow
from swiftk.text.tokenizer import Tokenizer

_PROMPTS = Path(__file__).with_name("prompts.jsonl")
_STREAMS = Path(__file__).parent / "paper" / "data"  # its README says whose they are
STREAMS = ("gsm8k", "humaneval", "mt-bench", "translation", "summarization", "qa", "math_reasoning", "rag", "english")
_OF_MT_BENCH = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
CATEGORIES = (*_OF_MT_BENCH, "translation", "summarization", "qa", "math_reasoning", "rag")  # the 13 of Spec-Bench
# How a text is put to a model without a chat template (by default as a question), and to one with a template (by
# default as it is).
_RAW = {"humaneval": "{}", "english": "{}", "summarization": "{}\nSummary:"}
_ASKED = {"humaneval": "Complete this Python function:\n\n{}", "english": "Continue this text: {}"}
_ANSWER = "THE ANSWER IS HERE"  # stands for one, where a template puts it
_PART = 3  # a turn has at most this part of the model's positions


@dataclass(frozen=True, slots=True)
class Text:
    """One of a stream, which is of one kind. A turn's prompt is all that came before it, answers included, and it."""

    stream: str
    turns: tuple[tuple[int, ...], ...]

    @property
    def prompt(self) -> list[int]:
        return list(self.turns[0])


@cache
def lines(name: str) -> list[dict[str, Any]]:
    """A stream's texts, or those of a category: "turns", and what a study needs to judge an answer."""
    file = _STREAMS / f"{'mt-bench' if name in _OF_MT_BENCH else name}.jsonl"
    every = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [line for line in every if name not in _OF_MT_BENCH or line["category"] == name]


@cache
def shots(name: str) -> list[list[str]]:
    """The papers' examples, question and answer: 5 for GSM8K, 1 for summaries."""
    return json.loads((_STREAMS / "shots.json").read_text(encoding="utf-8")).get(name, [])


class Prompts:
    """Streams as prompts for one model. chat: by its template; None: where it has one. shots: behind examples."""

    def __init__(self, model: Path, chat: bool | None = None, shots: bool = False) -> None:
        self._tokenizer, self._shots = Tokenizer(model), shots
        self.files = self._tokenizer.files
        self.chat = self._tokenizer.has_template if chat is None else chat
        self._most = self._tokenizer.files.config["max_position_embeddings"] // _PART

    def stream(self, name: str, count: int | None = None, most: int | None = None) -> list[Text]:
        """The first `count` texts, or all that there are. most: tokens of a turn, examples and template left out."""
        return [self.text(name, line["turns"], most) for line in lines(name)[:count]]

    def text(self, name: str, words: Sequence[str], most: int | None = None) -> Text:
        encode, most = self._asked if self.chat else self._raw, min(most or self._most, self._most)
        return Text(name, tuple(tuple(encode(name, turn, not at, most)) for at, turn in enumerate(words)))

    def _raw(self, name: str, words: str, first: bool, most: int) -> list[int]:
        form = _RAW.get(name, "Question: {}\nAnswer:")
        examples = [f"{form.format(asked)} {answer}\n\n" for asked, answer in self._examples(name, first)]
        before = "".join(examples) if first else "\n"
        return _fitting(words, most, lambda some: self._tokenizer.encode(before + form.format(some), first))

    def _asked(self, name: str, words: str, first: bool, most: int) -> list[int]:
        """The answer before a later turn is in the text already, so that the turn begins after it."""
        form, before = _ASKED.get(name, "{}"), []
        for asked, answer in self._examples(name, first) if first else [("", _ANSWER)]:
            before += [{"role": "user", "content": form.format(asked)}, {"role": "assistant", "content": answer}]

        def encode(some: str) -> list[int]:
            said = self._tokenizer.render([*before, {"role": "user", "content": form.format(some)}])
            said = said if first else said.partition(_ANSWER)[2]
            return self._tokenizer.encode(said, special=False, parse_special=True)

        return _fitting(words, most, encode)

    def _examples(self, name: str, first: bool) -> list[list[str]]:
        return shots(name) if self._shots and first else []


def _fitting(words: str, most: int, encode: Callable[[str], list[int]]) -> list[int]:
    """As many of the first words as make `most` tokens, and at least one; what encode() adds is not counted."""
    ids, around = encode(words), len(encode(""))
    first, *others = words.split(" ")
    while others and (length := len(ids) - around) > most:
        others = others[max(1, len(others) * (length - most) // length) :]
        ids = encode(" ".join([first, *others]))
    return ids


def noise(vocab: int, count: int, tokens: int = 64) -> list[Text]:
    """Prompts of random tokens."""
    draw = random.Random(1)
    return [Text("noise", (tuple(draw.randrange(3, vocab) for _ in range(tokens)),)) for _ in range(count)]


def prompts(folder: Path, count: int | None = None) -> list[list[int]]:
    """Word problems, code and prose in turn."""
    tokenizer = Tokenizer(folder)
    some = _PROMPTS.read_text(encoding="utf-8").splitlines()[:count]
    return [tokenizer.encode(json.loads(line)["text"]) for line in some]


def long_prompt(folder: Path, tokens: int) -> list[int]:
    """All prompts one after another, over and over, cut at `tokens`."""
    ids = [token for prompt in prompts(folder) for token in prompt]
    return (ids * (tokens // len(ids) + 1))[:tokens]


def grown(k: int, source: Path | None = None) -> Path:
    """Directory of the bundled model, or of a drafter for it, k times as wide (k * k times the layer weights)."""
    source = source or demo_model()
    return source if k == 1 else grow.grown(source, k, _told)


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    print(f"growing to {folder}", file=sys.stderr)
    yield
