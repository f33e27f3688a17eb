"""Texts to measure with, in the model's tokens, and the bundled model at a real size."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from swiftk import demo_model
from swiftk.files import grow
from swiftk.text.tokenizer import Tokenizer

_PROMPTS = Path(__file__).with_name("prompts.jsonl")
_STREAMS = Path(__file__).parent / "paper" / "data"  # its README says whose they are
STREAMS = ("gsm8k", "humaneval", "mt-bench", "translation", "summarization", "qa", "math_reasoning", "rag", "english")


@dataclass(frozen=True, slots=True)
class Text:
    """One of a stream, which is of one kind. A turn's prompt is all that came before it, answers included, and it."""

    stream: str
    turns: tuple[tuple[int, ...], ...]

    @property
    def prompt(self) -> list[int]:
        return list(self.turns[0])


def turns(name: str) -> list[list[str]]:
    """A stream's texts, turn by turn."""
    return [json.loads(line)["turns"] for line in (_STREAMS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def stream(name: str, folder: Path, count: int | None = None, skip: int = 0) -> list[Text]:
    """`count` texts after the first `skip`, in the tokens of the model in `folder`."""
    tokenizer, end = Tokenizer(folder), None if count is None else skip + count
    every = turns(name)[skip:end]
    return [Text(name, tuple(tuple(tokenizer.encode(t, i == 0)) for i, t in enumerate(text))) for text in every]


def noise(vocab: int, count: int, tokens: int = 64) -> list[Text]:
    """Prompts of random tokens."""
    draw = random.Random(1)
    return [Text("noise", (tuple(draw.randrange(3, vocab) for _ in range(tokens)),)) for _ in range(count)]


def prompts(folder: Path, count: int | None = None) -> list[list[int]]:
    """Word problems, code and prose in turn."""
    tokenizer = Tokenizer(folder)
    lines = _PROMPTS.read_text(encoding="utf-8").splitlines()
    return [tokenizer.encode(json.loads(line)["text"]) for line in lines[:count]]


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
