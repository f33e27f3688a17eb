"""The input streams: instances of one kind, each a list of turns in the model's tokens. data/README.md says whose they
are."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

_DATA = Path(__file__).resolve().parent / "data"
NAMES = ("gsm8k", "humaneval", "mt-bench", "translation", "summarization", "qa", "math_reasoning", "rag", "english")


@dataclass(frozen=True, slots=True)
class Instance:
    """A turn's prompt is all that came before it, answers included, and the turn."""

    stream: str
    number: int
    turns: tuple[tuple[int, ...], ...]


def stream(name: str, model_dir: Path, count: int | None = None, skip: int = 0) -> list[Instance]:
    """`count` instances behind the first `skip`."""
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    lines = (_DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    end = None if count is None else skip + count
    found = []
    for number, line in list(enumerate(lines))[skip:end]:
        turns = json.loads(line)["turns"]
        ids = [tokenizer.encode(turn, add_special_tokens=at == 0).ids for at, turn in enumerate(turns)]
        found.append(Instance(name, number, tuple(map(tuple, ids))))
    return found


def noise(vocab: int, count: int, tokens: int = 64) -> list[Instance]:
    """Prompts of random tokens."""
    draw = random.Random(1)
    return [Instance("noise", n, (tuple(draw.randrange(3, vocab) for _ in range(tokens)),)) for n in range(count)]
