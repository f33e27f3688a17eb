"""A head writes on without the server, and nobody verifies it (Mixture of Attentions, arXiv 2410.03804, Table 4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

from ..options.fields import TO_THE_END
from ..options.generate_options import GenerateOptions
from ..text.detokenizer import Detokenizer
from ..text.stops import Stopper
from ..text.tokenizer import Tokenizer


@runtime_checkable
class Speaker(Protocol):
    """A proposer that may write a text's rest by itself."""

    tokenizer: Tokenizer
    context: int  # most tokens of a text

    @property
    def alone(self) -> bool:
        """Whether it can, with what it knows of the text."""

    def next(self, text: Sequence[int]) -> int:
        """The token after `text`, the new tokens so far, which count as they are."""


def stopper(
    speaker: Speaker, prompt: Sequence[int], o: GenerateOptions, ends: Sequence[int], most: int | None
) -> Stopper:
    """Where a text ends that a speaker writes. ends: token ids; most: new tokens."""
    tokenizer, room = speaker.tokenizer, max(speaker.context - len(prompt), 0)
    decode = partial(tokenizer.decode, skip_special_tokens=o.skip_special_tokens)
    kept = o.keep_special_tokens
    return Stopper(
        room if most in (None, TO_THE_END) else min(most, room),
        ends,
        o.stop,
        Detokenizer(decode, prompt) if tokenizer.available else None,
        include_stop=o.include_stop_str_in_output,
        hidden=tokenizer.added(special=True) if o.skip_special_tokens and (o.stop or kept) else {},
        kept=kept,
        min_tokens=o.min_tokens or 0,
    )


def speak(speaker: Speaker, text: list[int], ends: Stopper) -> Iterator[str]:
    """Adds tokens to `text`, the new ones so far, and yields what each makes visible."""
    while ends.finish is None and ends.remaining > 0:
        token = speaker.next(text)
        text.append(token)
        yield ends.push(token)
