"""What one text's sums (stats.py) do not tell: its rounds one by one, each token's text, what the optimizer tried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .cost import Round
    from .optimizers.base import Candidate
    from .skip import SkipSet


class TracedRound(NamedTuple):
    """One round, cheap to note down."""

    round: Round  # what was committed, where the block was cut
    skip: SkipSet | None  # what the draft left out; None: nothing was drafted
    clock: float  # seconds of decoding at its end, since the first token
    why: str = ""  # with explain=True: what was weighed, what was taken, and what came of it


@dataclass(frozen=True, slots=True)
class Trace:
    """The first token is the prompt's pass; every other one belongs to a round, in order."""

    model: str  # name of its folder
    layers: int
    texts: tuple[str, ...]  # [tokens], together the text; may be empty
    rounds: tuple[TracedRound, ...]
    candidates: tuple[Candidate, ...] = ()  # over the optimizer's life, the latest of texts before
    earlier: int = 0  # candidates that were tried in texts before
