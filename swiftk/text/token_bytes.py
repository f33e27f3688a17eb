"""Bytes of tokens: what each adds to a text, half characters included."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_BYTE = re.compile("<0x([0-9A-F]{2})>")


def bytes_of(backend: Any) -> list[bytes]:
    """By id, of a tokenizers.Tokenizer. Ids without a token have no bytes."""
    decoders = list(_decoders(backend))
    by_kind = {one["type"]: one for one in decoders}
    found = backend.get_vocab(with_added_tokens=True)
    out = [b""] * (max(found.values(), default=-1) + 1)
    if "ByteLevel" in by_kind:
        byte = _byte_level()
        for token, id in found.items():
            out[id] = bytes(byte[c] for c in token) if byte.keys() >= set(token) else token.encode()
    else:
        spaces = [one["pattern"]["String"] for one in decoders if one["type"] == "Replace" and one["content"] == " "]
        spaces += [one["replacement"] for one in decoders if one["type"] == "Metaspace"]
        falls_back = "ByteFallback" in by_kind
        for token, id in found.items():
            one = _BYTE.fullmatch(token) if falls_back else None
            for space in spaces:
                token = token.replace(space, " ")
            out[id] = bytes([int(one[1], 16)]) if one else token.encode()
    for id, token in backend.get_added_tokens_decoder().items():
        out[id] = token.content.encode()
    return out


def _decoders(backend: Any) -> Iterator[Mapping[str, Any]]:
    """Of the tokenizer's decoder, a sequence's one by one."""
    state = json.loads(backend.decoder.__getstate__()) if backend.decoder else {"type": None}
    yield from state["decoders"] if state["type"] == "Sequence" else [state]


def _byte_level() -> dict[str, int]:
    """The byte that each character stands for in byte-level vocabularies, as GPT-2 has them: printable ones for
    themselves, the others for characters from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}
