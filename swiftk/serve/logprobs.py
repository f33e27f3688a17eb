"""Logprobs in OpenAI's two shapes, with an entry for each token of a text.

An entry's text is what its token adds to the text, so that entries join to it: nothing for a token that ends the text,
and for a stop string's tokens what comes before the stop string. A character is the text of its last token's entry. An
entry's bytes are its token's own, half characters included.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..running.result import Event, Result, TokenLogprobs
from ..text.detokenizer import Detokenizer
from ..text.tokenizer import Tokenizer

_utf8 = codecs.getincrementaldecoder("utf-8")


@dataclass(frozen=True, slots=True)
class Entry:
    text: str
    bytes: bytes
    logprob: float | None  # None: of a first token nothing is known
    token: int
    top: tuple[Entry, ...] | None = ()


class Entries:
    """Entries of one text, as it comes."""

    def __init__(self, tokenizer: Tokenizer, begins: bool) -> None:
        """begins: whether no words come before the text, so that a decoder drops its first space."""
        self._tokenizer, self._begins = tokenizer, begins
        self._waiting: deque[Event | TokenLogprobs] = deque()
        self._room = 0  # characters of the text that no entry has yet
        self._half = b""  # of a character that has not ended
        self._open: list[Entry] = []  # its tokens'

    def push(self, tokens: Iterable[Event | TokenLogprobs], text: str, ended: bool = False) -> list[Entry]:
        """Those whose text is out, after these tokens and this text; all of them once it has ended."""
        self._waiting.extend(tokens)
        self._room += len(text)
        out: list[Entry] = []
        while self._waiting and (ended or len(self._waiting[0].piece) <= self._room):
            piece = self._waiting[0].piece
            self._open.append(self._entry(self._waiting.popleft()))
            if not self._half or self._open[-1].text != piece:
                out += self._closed(self._open[-1].text != piece)
        return out + self._closed(True) if ended else out

    def _closed(self, cut: bool) -> list[Entry]:
        """Entries of a character, or of what a stop string or the end leaves of it."""
        entries, self._open = self._open, []
        left = len("".join(entry.text for entry in entries).encode())
        for i, entry in enumerate(entries if cut else ()):
            entries[i] = replace(entry, bytes=entry.bytes[:left])
            left -= len(entries[i].bytes)
        return entries

    def _entry(self, reported: Event | TokenLogprobs) -> Entry:
        top = tuple(self._other(*one) for one in reported.top)
        if not self._tokenizer.available:
            return Entry(str(reported.token), b"", reported.logprob, reported.token, top)
        text = reported.piece[: self._room]
        self._room -= len(text)
        (own, dropped), decoder = self._bytes(reported.token), _utf8("replace")
        decoder.decode(self._half + own)
        said = reported.piece or decoder.getstate()[0]  # else a token that the text leaves out, or a first space
        if said:
            self._half = decoder.getstate()[0]
        self._begins = self._begins and not said and not dropped
        return Entry(text, own if said else b"", reported.logprob, reported.token, top)

    def _other(self, token: int, logprob: float) -> Entry:
        """An alternative to a token."""
        if not self._tokenizer.available:
            return Entry(str(token), b"", logprob, token)
        (own, _), decoder = self._bytes(token), _utf8("replace")
        text = decoder.decode(self._half + own)
        if decoder.getstate()[0]:
            text = "bytes:" + "".join(f"\\x{byte:02x}" for byte in own)
        return Entry(text, own, logprob, token)

    def _bytes(self, token: int) -> tuple[bytes, bool]:
        """What the token adds, and whether that lacks a space: a decoder drops it at the start of a text."""
        table = self._tokenizer.token_bytes()
        own = table[token] if token < len(table) else b""
        dropped = self._begins and own[:1] == b" " and self._tokenizer.decode([token]).encode() == own[1:]
        return (own[1:] if dropped else own), dropped


def of_prompt(tokenizer: Tokenizer, result: Result, text: str) -> list[Entry]:
    """Entries of a prompt's tokens, which join to the text that is echoed for it: it may lack the BOS, and more."""
    if result.prompt_logprobs is None:
        return []
    spell = Detokenizer(lambda ids: tokenizer.decode(ids, skip_special_tokens=False) if tokenizer.available else "")
    reported = [TokenLogprobs(result.prompt_tokens[0], 0.0), *result.prompt_logprobs]
    out, at = [], 0
    entries = Entries(tokenizer, True)
    for i, one in enumerate(reported):
        piece = spell.push(one.token)
        piece = next((p for p in (piece, piece.removeprefix(" ")) if text.startswith(p, at)), "")
        if i == len(reported) - 1:
            piece = text[at:]  # half a character, perhaps
        at += len(piece)
        out += entries.push([TokenLogprobs(one.token, one.logprob, one.top, piece)], piece, i == len(reported) - 1)
    return [replace(out[0], logprob=None, top=None), *out[1:]]


def chat_shape(entries: Sequence[Entry]) -> dict[str, Any]:
    def one(entry: Entry) -> dict[str, Any]:
        return {"token": entry.text, "logprob": entry.logprob, "bytes": list(entry.bytes)}

    return {"content": [{**one(entry), "top_logprobs": list(map(one, entry.top or ()))} for entry in entries]}


def completion_shape(entries: Sequence[Entry], offset: int = 0) -> dict[str, Any]:
    """offset: characters of the text before these."""
    offsets = []
    for entry in entries:
        offsets.append(offset)
        offset += len(entry.text)
    return {
        "tokens": [entry.text for entry in entries],
        "token_logprobs": [entry.logprob for entry in entries],
        "top_logprobs": [None if entry.top is None else _by_text(entry.top) for entry in entries],
        "text_offset": offsets,
        "bytes": [list(entry.bytes) for entry in entries],
    }


def _by_text(top: Sequence[Entry]) -> dict[str, float | None]:
    """Alternatives that spell alike are `token_id:N`, as vLLM has it, but the likeliest of them."""
    out: dict[str, float | None] = {}
    for entry in top:
        out[f"token_id:{entry.token}" if entry.text in out else entry.text] = entry.logprob
    return out
