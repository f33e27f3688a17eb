"""Forms of a prompt, and the checks on the way to token ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import InvalidArgument
from .token_bound import too_long
from .tokenizer import Tokenizer

_FORMS = "text, token ids [n] or a list of messages"


def token_ids(
    prompt: Any,
    tokenizer: Tokenizer,
    vocab: int,
    context: int,
    parse_special: bool = False,
    bos: int | None = None,
    *,
    add_special_tokens: bool | None = None,
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    chat_template_kwargs: Mapping[str, Any] | None = None,
) -> np.ndarray:
    """Ids [n] int32 of a text, of chat messages, or of ids; every problem is a typed error before anything runs. A text
    without tokens is the BOS.

    add_special_tokens: whether the tokenizer adds its BOS; None: to a text, not to chat messages. The others are
    Tokenizer.render()'s."""
    if isinstance(prompt, str):
        ids: list[int] | None = tokenizer.encode(
            prompt, add_special_tokens is not False, parse_special, context=context
        )
    elif _is_chat(prompt):
        ids = tokenizer.encode_chat(
            prompt,
            context=context,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            add_special_tokens=bool(add_special_tokens),
            chat_template_kwargs=chat_template_kwargs,
        )
    else:
        ids = None
        if isinstance(prompt, (list, tuple)) and len(prompt) >= context and isinstance(prompt[0], int):
            raise too_long(f"{len(prompt)}", context)
    if ids == [] and bos is not None:
        ids = [bos]
    found = known_ids(prompt if ids is None else ids, vocab, "prompt", _FORMS)
    if found.size == 0:
        no_bos = "" if ids is None else ", and the model names no BOS to start from"
        raise InvalidArgument(f"[prompt] the prompt is empty{no_bos}; want at least one token")
    if found.size >= context:
        raise too_long(f"{found.size}", context)
    return found


def known_ids(ids: Any, vocab: int, where: str, forms: str = "token ids [n]") -> np.ndarray:
    """[n] int32 of anything that is an array of token ids, all of them in the vocabulary."""
    try:
        array = np.asarray(ids)
    except Exception as error:
        raise InvalidArgument(f"[{where}] not an array of token ids: {error}") from None
    if array.ndim == 2 and array.shape[0] == 1:  # input_ids of one text
        array = array[0]
    if array.ndim != 1 or not (np.issubdtype(array.dtype, np.integer) or array.size == 0):
        kind = f"{array.dtype} of shape {array.shape}" if isinstance(ids, (list, tuple, np.ndarray)) else repr(ids)
        raise InvalidArgument(f"[{where}] got {kind}, want {forms}")
    outside = np.flatnonzero((array < 0) | (array >= vocab))
    if outside.size:
        raise InvalidArgument(f"[{where}] token {outside[0]} is {array[outside[0]]}, want 0..{vocab - 1}")
    return np.ascontiguousarray(array, dtype=np.int32)


def _is_chat(prompt: Any) -> bool:
    """Whether it is a list of messages, each with a role and something that was said. What is neither these, nor ids,
    is an error."""
    if isinstance(prompt, (Mapping, bytes, bytearray)):
        raise InvalidArgument(f"[prompt] got {type(prompt).__name__}, want {_FORMS}")
    if not (isinstance(prompt, (list, tuple)) and prompt):
        return False
    if isinstance(prompt[0], str):
        raise InvalidArgument("[prompt] got a list of texts, want one text; generate_many() takes several")
    if not all(isinstance(m, Mapping) for m in prompt):
        return False
    for i, message in enumerate(prompt):
        wanted = ("role",) if message.get("tool_calls") else ("role", "content")
        missing = [key for key in wanted if key not in message]
        if missing:
            raise InvalidArgument(f'[prompt] message {i} has no {missing[0]!r}, want "role" and "content"')
    return True
