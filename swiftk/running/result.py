"""The values that a generation returns: one Result, or Events as they come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .stats import Stats
from .trace import Trace


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural log-probability of a token under the model's own softmax, before penalties and warpers."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # the likeliest tokens, best first
    piece: str = ""  # the text that it settles, before a stop string cuts it; of a prompt's tokens none


@dataclass(frozen=True, slots=True)
class Event:
    """One committed token. Text may be empty: half a character, or a possible start of a stop string, is held back."""

    text: str
    token: int
    drafted: bool
    source: str | None = None  # of a drafted token: "plan", "suffix", "recycle", ...; None: the model itself
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    piece: str = ""  # with logprobs: the text that becomes certain with this token, shown or held back
    # [n, floats] with the option `features`: states of the token before; the first event has those of the prompt.
    features: Any = field(default=None, repr=False, compare=False)

    @property
    def reported(self) -> TokenLogprobs:
        """With logprobs."""
        assert self.logprob is not None
        return TokenLogprobs(self.token, self.logprob, self.top, self.piece)


@dataclass(frozen=True, slots=True)
class Result:
    """A finished text. str() of it is the text."""

    text: str  # without EOS and without the stop string
    tokens: list[int]  # the token that ended the text included
    finish_reason: str  # "stop", "length", or "cancelled"
    logprobs: list[TokenLogprobs] | None
    stats: Stats
    seed: int
    prompt_tokens: list[int]
    drafted: list[bool]  # for each token: whether it was accepted from a draft
    trace: Trace | None = field(default=None, repr=False, compare=False)  # for a report; to_dict() leaves it out
    sources: list[str | None] = field(default_factory=list)  # for each token: what proposed it; None: the model
    prompt_logprobs: list[TokenLogprobs] | None = None  # of the prompt's tokens from the second on

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "text": self.text,
            "tokens": self.tokens,
            "finish_reason": self.finish_reason,
            "logprobs": _plain(self.logprobs),
            "prompt_logprobs": _plain(self.prompt_logprobs),
            "seed": self.seed,
            "prompt_tokens": self.prompt_tokens,
            "drafted": self.drafted,
            "sources": self.sources,
            "stats": self.stats.to_dict(),
        }


def _plain(reported: list[TokenLogprobs] | None) -> list[dict[str, Any]] | None:
    if reported is None:
        return None
    return [{"token": t.token, "logprob": t.logprob, "top": [list(pair) for pair in t.top]} for t in reported]
