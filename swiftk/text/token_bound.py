"""A lower bound on the tokens of a text, which costs next to nothing: long prompts are refused by it before they are
tokenised."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ContextExceeded

_KEEPING = {"ByteLevel", "Digits", "Split"}  # pre-tokenizers that drop no byte of a text
_NFC = 9  # bytes of a text for each byte of it in normalization form C, at most


@dataclass(frozen=True, slots=True)
class TokenBound:
    """For tokenizers that merge bytes: each byte of a text is part of a token, or unknown to the vocabulary."""

    longest: int  # bytes of text that a token can stand for
    unknown: bytes  # bytes that no token spells: the tokenizer drops them, or joins them
    composes: bool  # whether texts are normalised first, which leaves ASCII as it is

    def fewest(self, text: str) -> int:
        """The text has at least so many tokens."""
        spelt = len(text.encode(errors="replace").translate(None, self.unknown))
        return -(-spelt // (self.longest * (_NFC if self.composes and not text.isascii() else 1)))


def read_token_bound(tokenizer: bytes) -> TokenBound | None:
    """Of what tokenizer.json holds; None where it may drop or join any amount of text."""
    spec = json.loads(tokenizer)
    vocabulary, added = spec["model"].get("vocab"), spec.get("added_tokens") or []
    steps = _steps(spec.get("pre_tokenizer"), "pretokenizers")
    normal = _steps(spec.get("normalizer"), "normalizers")
    merges_bytes = spec["model"].get("type", "BPE") == "BPE" and any(one["type"] == "ByteLevel" for one in steps)
    keeps = all(one["type"] in _KEEPING and one.get("behavior") != "Removed" for one in steps)
    swallows = any(token.get("lstrip") or token.get("rstrip") for token in added)  # any amount of white space
    unknown = bytes(b for b, spelling in enumerate(_spellings()) if spelling not in vocabulary) if merges_bytes else b""
    composes = [one["type"] for one in normal] == ["NFC"]
    if not (merges_bytes and keeps) or swallows or (normal and not composes) or (composes and set(unknown) & _IN_TEXTS):
        return None
    longest = max(map(len, vocabulary), default=1)
    spelt = max((len(token["content"].encode()) for token in added), default=1)
    return TokenBound(max(longest, spelt), unknown, composes)


_IN_TEXTS = set(range(256)) - {0xC0, 0xC1, *range(0xF5, 0x100)}  # bytes that UTF-8 uses


def _steps(spec: Mapping[str, Any] | None, inner: str) -> list[Mapping[str, Any]]:
    """Of a normalizer or pre-tokenizer, which may be a sequence."""
    if spec is None:
        return []
    if spec["type"] == "Sequence":
        return [step for one in spec[inner] for step in _steps(one, inner)]
    return [spec]


def _spellings() -> list[str]:
    """The character that stands for each byte in a byte-level vocabulary."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


def too_long(tokens: str, context: int) -> ContextExceeded:
    """In the words that programs look for."""
    return ContextExceeded(
        f"[prompt] This model's maximum context length is {context} tokens. However, your prompt has {tokens} tokens; "
        f"want at most {context - 1}, so that one can follow."
    )
