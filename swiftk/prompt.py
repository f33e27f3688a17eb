"""What a prompt may be, and the checks it must pass to become token ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .errors import InvalidArgument
from .tokenizer import Tokenizer


def token_ids(prompt: Any, tokenizer: Tokenizer, vocab: int, context: int) -> np.ndarray:
    """Ids [n] int32 of a text, of chat messages, or of ids; every problem is a typed error before anything runs."""
    ids = _ids(prompt, tokenizer)
    if ids.size == 0:
        raise InvalidArgument("[prompt] the prompt is empty, want at least one token")
    outside = np.flatnonzero((ids < 0) | (ids >= vocab))
    if outside.size:
        raise InvalidArgument(f"[prompt] token {outside[0]} is {ids[outside[0]]}, want 0..{vocab - 1}")
    if ids.size >= context:
        raise InvalidArgument(
            f"[prompt] the prompt has {ids.size} tokens, the context {context}: want at most "
            f"{context - 1}, so that one can follow"
        )
    return np.ascontiguousarray(ids, dtype=np.int32)


def _ids(prompt: Any, tokenizer: Tokenizer) -> np.ndarray:
    if isinstance(prompt, str):
        if not prompt:
            raise InvalidArgument("[prompt] the prompt is empty; to start from nothing, give the BOS id alone")
        return np.asarray(tokenizer.encode(prompt), dtype=np.int64)
    if isinstance(prompt, (Mapping, bytes, bytearray)):
        raise InvalidArgument(f"[prompt] got {type(prompt).__name__}, want text, token ids or a list of messages")
    if isinstance(prompt, (list, tuple)) and prompt:
        if all(isinstance(m, Mapping) for m in prompt):
            return np.asarray(_chat(prompt, tokenizer), dtype=np.int64)
        if isinstance(prompt[0], str):
            raise InvalidArgument("[prompt] got a list of texts, want one text a call")
    if isinstance(prompt, (list, tuple)) and not prompt:
        return np.empty(0, dtype=np.int64)
    return _array(prompt)


def _chat(messages: Any, tokenizer: Tokenizer) -> list[int]:
    for i, message in enumerate(messages):
        missing = [key for key in ("role", "content") if key not in message]
        if missing:
            raise InvalidArgument(f'[prompt] message {i} has no {missing[0]!r}, want "role" and "content"')
    return tokenizer.encode_chat(messages)


def _array(prompt: Any) -> np.ndarray:
    try:
        array = np.asarray(prompt)
    except Exception as error:
        raise InvalidArgument(f"[prompt] not an array of token ids: {error}") from None
    if array.ndim == 2 and array.shape[0] == 1:  # input_ids of one text
        array = array[0]
    if array.ndim != 1 or not (np.issubdtype(array.dtype, np.integer) or array.size == 0):
        raise InvalidArgument(
            f"[prompt] got {array.dtype} of shape {array.shape}, want text, integer token ids [n] or a list of messages"
        )
    if array.size and array.dtype == np.uint64 and array.max() > 1 << 62:
        raise InvalidArgument(f"[prompt] token id {array.max()} is out of range")
    return array.astype(np.int64)
