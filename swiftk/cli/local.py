"""A model in this process, in a chat. Its cache carries over from turn to turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import InvalidArgument
from ..options.fields import TO_THE_END, table
from ..options.generate_options import GenerateOptions
from ..text.tokenizer import Tokenizer
from .common import Loading, megabytes, model_folder, open_model
from .conversation import PROMPTS, ContextFull, Message, Piece
from .run import stats_lines

_RETURNED = {
    "stream",
    "verify",
    "explain",
    "logprobs",
    "prompt_logprobs",
    "features",
}  # with a text, or in place of one
_ROLES = {"user": "User", "assistant": "Assistant", "system": "System"}
_ROOM = 4  # an answer gets at least this part of the context before older turns are kept


class Local:
    """A checkpoint's chat template writes the conversation; without one it is a plain transcript."""

    def __init__(self, model: str, loading: Loading, stats: bool = False) -> None:
        _must_speak(loading.get("tokenizer") or model_folder(model))
        self._lm, self._stats = open_model(model, loading), stats
        lm = self._lm
        self._chats = lm.tokenizer.has_template
        self.name = lm.folder.resolve().name
        size = megabytes(lm.model.weight_bytes)
        self.about = f"{self.name}: {lm.config['model_type']}, {size} in {lm.model.dtype}, context {lm.context} tokens"
        self.note = (
            ""
            if self._chats
            else ("this checkpoint has no chat template: the conversation is written as a plain transcript")
        )

    @property
    def options(self) -> Sequence[str]:
        return [name for name in table(GenerateOptions) if name not in _RETURNED | PROMPTS]

    def greedy(self, options: Mapping[str, Any]) -> bool:
        return GenerateOptions.parse(options).filled(self._lm.defaults, 0).temperature == 0

    def answer(self, messages: Sequence[Message], options: Mapping[str, Any]) -> Iterator[Piece]:
        """To the model's end, or the context's."""
        asked = {"max_new_tokens": TO_THE_END, **options}
        if not self._chats:
            given = asked.get("stop", ())
            asked["stop"] = [*([given] if isinstance(given, str) else given), "\nUser:"]
        prompt = self._prompt(messages, asked["max_new_tokens"])
        with self._lm.generate(prompt, stream=True, **asked) as stream:
            for event in stream:
                if event.text:
                    yield Piece("text", event.text)
        result = stream.result
        if result.finish_reason == "length" and "max_new_tokens" not in options:
            yield Piece("note", f"the context of {self._lm.context} tokens ended the answer")
        if self._stats:
            yield from (Piece("note", line) for line in stats_lines(result))

    def _prompt(self, messages: Sequence[Message], new: int) -> list[int]:
        """Token ids. ContextFull: they leave too little room for an answer, and fewer messages would leave more; or
        none at all."""
        tokenizer, context = self._lm.tokenizer, self._lm.context
        ids = tokenizer.encode_chat(messages) if self._chats else tokenizer.encode(_transcript(messages))
        alone = sum(message["role"] == "user" for message in messages) == 1
        room = context // _ROOM if new == TO_THE_END else min(new, context // _ROOM)
        most = context - (1 if alone else max(room, 1))
        if len(ids) > most:
            raise ContextFull(
                f"[chat] the message has {len(ids)} tokens with what is written around it, and the context {context}; "
                f"want at most {most}"
            )
        return ids


def _must_speak(folder: Path) -> None:
    """Before the model is loaded: a chat is text."""
    tokenizer = Tokenizer(folder)
    if not tokenizer.available:
        raise InvalidArgument(f"[chat] {folder} has no tokenizer.json, and a chat is text; want a folder that has one")
    tokenizer.encode("")  # a file that is no tokenizer is an error here, too


def _transcript(messages: Sequence[Message]) -> str:
    return "\n".join(f"{_ROLES[m['role']]}: {m['content']}" for m in messages) + "\nAssistant:"
