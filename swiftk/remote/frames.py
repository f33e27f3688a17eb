"""Frames between a client that drafts and the server that verifies: msgpack maps, one in a WebSocket message.

From the client, first `begin`, or `resume` on a new line where the old one broke; then `propose` as often as it likes,
which goes on where the proposal before ended or takes back what it said of `at` and after; `cancel` ends the text. With
`parents` it is a tree (tree.py) from `at` on, in place of all that was proposed before. From the server, first `begun`,
or `gone` where it no longer has the text; then `tokens` after each round; in the end `end` or `error`.
A proposal counts where it equals what the model draws. Tokens alone travel; and where the client's proposer is a head,
what it reads of the model's states (features.py), token by token, of those that the client lacks. `begin` with `states`
asks for those of the prompt alone: all of them come, and what the model says after it is of no use.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgpack
import numpy as np

from ..errors import InvalidArgument, SwiftkError, UnsupportedModel
from ..options.fields import TextOptions, table
from ..options.generate_options import GenerateOptions
from ..text.tokenizer import Tokenizer

VERSION = 3
VERSIONS = (1, 2, VERSION)  # that a server speaks: in 1 nobody asks for features, before 3 proposals are chains
PATH = "/v1/remote"  # of the WebSocket
OPTIONS = tuple(table(TextOptions))  # of generate(): what a text is, not how it is made
_OPTIONAL: dict[str, dict[str, Any]] = {
    "begin": {"features": dict, "states": int},
    "propose": {"parents": list},
    "resume": {"known": int},
    "tokens": {"first": int, "features": bytes},  # of tokens from `first` on, the prompt's counted
}
_FIELDS: dict[str, dict[str, Any]] = {
    "begin": {"version": int, "prompt": (str, list), "options": dict},
    "resume": {"version": int, "id": str, "at": int, "digest": int},
    "propose": {"at": int, "tokens": list},
    "cancel": {},
    # ends: token ids at which the text ends; most: its new tokens, at most
    "begun": {"id": str, "prompt": list, "sampling": dict, "vocabulary": str, "ends": list, "most": int},
    "gone": {},
    "tokens": {"at": int, "tokens": list, "proposed": list, "texts": list},
    "end": {"reason": str},
    "error": {"message": str, "status": int},
}
_NUMBERS, _LISTS = ("at", "first", "known", "most"), ("tokens", "parents", "proposed", "ends")


def pack(op: str, **fields: Any) -> bytes:
    return bytes(msgpack.packb({"op": op, **fields}))


def unpack(data: Any, *ops: str) -> dict[str, Any]:
    """A frame that is one of these; anything else is an InvalidArgument that names what was found."""
    try:
        frame = msgpack.unpackb(data, strict_map_key=False)  # logit_bias has token ids
    except Exception as error:  # the library raises several kinds
        raise InvalidArgument(f"[remote] a frame is not msgpack: {error}") from None
    op = frame.get("op") if isinstance(frame, dict) else None
    if op not in ops:
        raise InvalidArgument(f"[remote] a frame's op is {op!r}, want {' or '.join(map(repr, ops))}")
    given = {name: kind for name, kind in _OPTIONAL.get(op, {}).items() if name in frame}
    for name, kind in (_FIELDS[op] | given).items():
        value = frame.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InvalidArgument(f"[remote] {name} of {op!r} is {value!r:.80}, want {kind}")
        numbers = [value] if name in _NUMBERS else value if name in _LISTS else ()
        if not all(isinstance(one, int) and 0 <= one < 1 << 31 for one in numbers):
            raise InvalidArgument(f"[remote] {name} of {op!r} is {value!r:.80}, want integers from 0 on of 31 bits")
    return frame


def checked(frame: dict[str, Any]) -> dict[str, Any]:
    """A frame of the server, unless it is an error, which is raised."""
    if frame["op"] == "error":
        kind = InvalidArgument if 400 <= frame["status"] < 500 else SwiftkError
        raise kind(f"[remote] the server answers {frame['status']}: {frame['message']}")
    return frame


def options_of(given: Mapping[str, Any]) -> GenerateOptions:
    """Options of a text, as either end has them checked."""
    unknown = next((name for name in given if name not in OPTIONS), None)
    if unknown is not None:
        raise InvalidArgument(f"[remote] {unknown!r} is no option of a text, want some of {OPTIONS}")
    return GenerateOptions.parse(dict(given))


def digest(tokens: Sequence[int]) -> int:
    """CRC-32 of token ids, as little-endian int32."""
    return zlib.crc32(np.asarray(tokens, "<i4").tobytes())


def must_equal(tokenizer: Tokenizer | None, theirs: str) -> None:
    """theirs: vocabulary() of the server's model."""
    if tokenizer is not None and vocabulary(tokenizer) != theirs:
        raise UnsupportedModel(
            f"[remote] {tokenizer.folder} has another vocabulary than the server's model; want a drafter with the same "
            "tokenizer"
        )


def vocabulary(tokenizer: Tokenizer) -> str:
    """SHA-256 of all tokens by id; empty without a tokenizer."""
    if not tokenizer.available:
        return ""
    return hashlib.sha256("\0".join(f"{i} {token}" for token, i in tokenizer.vocabulary()).encode()).hexdigest()
