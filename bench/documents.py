"""Long documents in a model's tokens, with facts near their beginnings that questions at their ends ask for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from time import perf_counter

import numpy as np

from swiftk import _core
from swiftk.text.tokenizer import Tokenizer

from .texts import lines

CODES = {"Aldwin": 4831, "Berit": 7206, "Corin": 1594, "Dagny": 6048}
CODES |= {"Edmund": 3917, "Freya": 8250, "Gideon": 2763, "Hedda": 9485}
_STREAMS = ("summarization", "rag", "english", "mt-bench", "humaneval", "gsm8k", "math_reasoning", "translation", "qa")
_BEFORE = 900  # characters before the facts, so that no draft sees them among a text's first tokens
_PER_TOKEN = 8  # characters, at most in the mean
_QUESTION = "THE QUESTION IS HERE"  # stands for one, where a template puts it


def whole(path: Path | None) -> str:
    """A file's text; None: the articles, and then the other prompts, of all streams."""
    if path:
        return path.read_text(encoding="utf-8", errors="replace")
    every = [turn for name in _STREAMS for line in lines(name) for turn in line["turns"]]
    return "\n\n".join(turn.removeprefix("Summarize: ") for turn in every)


class Document:
    """A text that begins at one of `count` places of the whole one, and goes round. chat: it is what a user says."""

    def __init__(self, tokenizer: Tokenizer, chat: bool, text: str, number: int, count: int, most: int) -> None:
        """most: tokens of a prompt."""
        begin = len(text) * number // count
        begin = text.find("\n", begin) + 1 if number else 0
        body = f"{text[begin:]}\n\n{text[:begin]}"[: most * _PER_TOKEN]
        facts = " ".join(f"The access code of {name} is {code}." for name, code in CODES.items())
        at = body.find(" ", _BEFORE)
        self._words = f"{body[:at]}\n\n{facts}\n\n{body[at + 1 :]}"
        self._tokenizer, self._chat = tokenizer, chat

    def goes_on(self, tokens: int) -> list[int]:
        """A prompt of so many tokens: the text's beginning, of which a model that chats is to write a summary."""
        return self._asked(tokens, self._after("\n\nSummarize the text above.") if self._chat else [])

    def asks(self, tokens: int, name: str) -> list[int]:
        """The same with the question for a code."""
        question = f"What is the access code of {name}?"
        answer = f"\n\nQuestion: {question}\nAnswer: The access code of {name} is"
        return self._asked(tokens, self._after(f"\n\n{question}" if self._chat else answer))

    @cached_property
    def tokens(self) -> list[int]:
        if not self._chat:
            return self._tokenizer.encode(self._words)
        said = self._tokenizer.render([{"role": "user", "content": self._words + _QUESTION}])
        return self._tokenizer.encode(said.partition(_QUESTION)[0], special=False, parse_special=True)

    @cached_property
    def _end(self) -> str:
        """Of a chat, up to where the model speaks."""
        asked = [{"role": "user", "content": _QUESTION}]
        return self._tokenizer.render(asked).partition(_QUESTION)[2] if self._chat else ""

    def _after(self, words: str) -> list[int]:
        return self._tokenizer.encode(words + self._end, special=False, parse_special=True)

    def _asked(self, tokens: int, end: Sequence[int]) -> list[int]:
        if tokens <= len(end) or tokens - len(end) > len(self.tokens):
            raise ValueError(f"[documents] a prompt of {tokens} tokens, of a text that has {len(self.tokens)}")
        return [*self.tokens[: tokens - len(end)], *end]


def documents(path: Path | None, tokenizer: Tokenizer, chat: bool, count: int, most: int) -> list[Document]:
    """So many of a file, or of all streams, at places that are evenly apart."""
    text = whole(path)
    return [Document(tokenizer, chat, text, i, count, most) for i in range(count)]


class Prefixes:
    """Keys and values that engines of the same weights begin with: computed by one, loaded into all, to the same
    bits."""

    def __init__(self, model: _core.Model, context: int) -> None:
        self._engine = _core.Engine(model, context=context)
        self._blocks: dict[bytes, _core.SavedBlock] = {}

    @property
    def bytes_of_token(self) -> int:
        kv = self._engine.kv
        return kv["bytes"] // kv["blocks"] // kv["block_tokens"]

    def read(self, tokens: Sequence[int]) -> float:
        """Seconds until the token after it; what is there already is not computed again."""
        boxes, prompt = {}, np.int32(tokens)
        wholes = _wholes(prompt)
        if all(name in self._blocks for name in wholes):
            return 0.0
        self.give(self._engine, tokens)
        began = perf_counter()
        self._engine.submit(boxes, _core.Request(prompt=prompt, max_new_tokens=1, drafting="off"))
        while not self._engine.idle():
            self._engine.step(boxes)
        took = perf_counter() - began
        stretched, identity = self._engine.stretches(len(prompt) + 1), bytes(_core.SavedBlock.IDENTITY)
        for name, part in wholes.items():
            if name not in self._blocks and (file := self._engine.save_block(part, stretched, identity)):
                self._blocks[name] = self._engine.read_block(file, part, stretched, identity)
        return took

    def forget(self) -> None:
        """Drops all of them, so that prompts are computed again."""
        self._blocks.clear()
        self._engine.forget_texts()

    def give(self, engine: _core.Engine, tokens: Sequence[int]) -> None:
        """All that is there of a prompt."""
        there = list(map(self._blocks.get, _wholes(np.int32(tokens))))
        engine.load_blocks(there[: there.index(None)] if None in there else there)


def _wholes(prompt: np.ndarray) -> dict[bytes, np.ndarray]:
    """Its beginnings that end with a whole block, by a hash of each."""
    digest, block, found = blake2b(digest_size=16), _core.SavedBlock.TOKENS, {}
    for end in range(block, len(prompt) + 1, block):
        digest.update(prompt[end - block : end].tobytes())
        found[digest.digest()] = prompt[:end]
    return found
