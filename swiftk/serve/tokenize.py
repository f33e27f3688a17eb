"""Text or messages to token ids as the completions and chat endpoints read them, and back."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from ..api import LM
from ..errors import InvalidArgument
from ..text.prompt import known_ids
from .protocol import Body, plain
from .tools import Tools


class TokenizeRequest(Body):
    model: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = Field(None, min_length=1)
    tools: list[dict[str, Any]] | None = None
    add_special_tokens: bool | None = Field(None, description="Add BOS; unless given, to a prompt and not to messages.")
    parse_special: bool = Field(True, description="Read special tokens that a prompt spells as such.")
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool = False

    @model_validator(mode="after")
    def _one_of_both(self) -> TokenizeRequest:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError('want either "prompt" or "messages"')
        return self


class DetokenizeRequest(Body):
    model: str | None = None
    tokens: list[int]
    skip_special_tokens: bool = True


def tokenized(lm: LM, asked: TokenizeRequest) -> dict[str, Any]:
    tokenizer, context = lm.tokenizer, lm.context
    if asked.messages is None:
        bos = asked.add_special_tokens is not False
        ids = tokenizer.encode(asked.prompt or "", bos, asked.parse_special, context=context)
    else:
        tools = Tools.of(asked.tools, None, tokenizer)
        ids = tokenizer.encode_chat(
            plain(asked.messages),
            tools and tools.offered,
            add_generation_prompt=asked.add_generation_prompt,
            continue_final_message=asked.continue_final_message,
            add_special_tokens=bool(asked.add_special_tokens),
            chat_template_kwargs=asked.chat_template_kwargs,
            context=context,
        )
    strings = {"token_strs": [tokenizer.decode([id], False) for id in ids]} if asked.return_token_strs else {}
    return {"tokens": ids, "count": len(ids), "max_model_len": context, **strings}


def detokenized(lm: LM, asked: DetokenizeRequest) -> dict[str, Any]:
    if not lm.tokenizer.available:
        raise InvalidArgument(f"[detokenize] {lm.folder.name} has no tokenizer.json")
    ids = known_ids(asked.tokens, lm.config["vocab_size"], "detokenize").tolist()
    return {"prompt": lm.tokenizer.decode(ids, asked.skip_special_tokens)}
