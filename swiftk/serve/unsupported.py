"""Fields of OpenAI's, vLLM's and llama.cpp's requests that this server does not have. A field that cannot change the
text is passed over. Any other one is refused by name, unless its value asks for nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

# fmt: off
PASSED_OVER = frozenset((
    "user", "store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "prediction", "request_id", "priority", "cache_salt", "include_reasoning", "separate_reasoning", "cache_prompt",
    "id_slot", "timings_per_token",
))
_ALWAYS = (
    "suffix", "bad_words", "allowed_token_ids", "logits_processors", "vllm_xargs", "use_beam_search", "early_stopping",
    "functions", "web_search_options", "audio", "documents", "chat_template", "echo",
    "mm_processor_kwargs", "kv_transfer_params", "return_token_ids", "return_tokens_as_token_ids", "return_progress",
    "truncate_prompt_tokens", "xtc_probability", "dry_multiplier", "mirostat", "dynatemp_range", "n_probs", "n_keep",
    "grammar", "json_schema", "samplers",
)
# fmt: on
_OFF: tuple[Any, ...] = (None, False, 0, "", [], {})  # values that ask for nothing
REFUSED: dict[str, tuple[Any, ...]] = {  # and what each may be besides
    **dict.fromkeys(_ALWAYS, ()),
    "best_of": (1,),
    "function_call": ("none", "auto"),
    "length_penalty": (1,),
    "modalities": (["text"],),
    "reasoning_effort": ("none",),
    "spaces_between_special_tokens": (True,),
    "tfs_z": (1,),
    "thinking": ({"type": "disabled"},),
    "top_n_sigma": (-1,),
    "verbosity": ("medium",),
}
INSTEAD = {
    "functions": "tools",
    "function_call": "tool_choice",
    "guided_json": 'structured_outputs={"json": ...}',
    "guided_regex": 'structured_outputs={"regex": ...}',
    "guided_choice": 'structured_outputs={"choice": ...}',
    "guided_grammar": 'structured_outputs={"grammar": ...}',
    "json_schema": "response_format",
    "grammar": 'structured_outputs={"grammar": ...}',
    "n_predict": "max_tokens",
    "repeat_penalty": "repetition_penalty",
    "best_of": "n",
}


def problem_of(name: str, value: Any, known: Iterable[str], given: Mapping[str, Any]) -> str | None:
    """Why a request's field is refused; None: it is passed over. known: fields that this endpoint has. given: the
    whole request."""
    refused = REFUSED.get(name, () if name.startswith("guided_") else None)
    if name in PASSED_OVER or (refused is not None and (value in _OFF or value in refused)):
        return None
    if name == "best_of" and value == given.get("n", 1):
        return None
    if refused is not None:
        instead = f"; use {INSTEAD[name]}" if name in INSTEAD else ""
        return f"{name}={value!r:.80} is not supported{instead}"
    near = INSTEAD.get(name) or next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)), None)
    hint = f"; did you mean {near!r}?" if near else f", want some of {', '.join(sorted(known))}"
    return f"unknown field {name!r}{hint}"
