"""Settings of the sources that cost no draft step (csrc/draft/sources/source_settings.h)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ..errors import InvalidArgument

NODES = 64  # the most a tree has, its root among them
_RANGES = {
    "suffix_length": (1, 64),
    "suffix_matches": (1, 64),
    "suffix_ranks": (1, 8),
    "lookup_ngram": (1, 16),
    "lookup_tokens": (1, NODES - 1),
    "lookahead_ngram": (2, 16),
    "lookahead_window": (2, NODES - 1),
    "lookahead_guesses": (1, 8),
    "parallel_tokens": (1, NODES - 1),
}


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """The defaults are those of the papers, if there is one. Settings change speed, never a token."""

    suffix_length: int = 1  # minimum length of a match, in tokens
    suffix_matches: int = 12  # number of matches, ever shorter, that one list is made from
    suffix_ranks: int = 4  # tokens in one list
    lookup_ngram: int = 2  # maximum number of last tokens that are looked for
    lookup_tokens: int = 10  # maximum number of tokens copied
    # N, W and G of the paper. Window and guesses take (N - 1)(W + G) of a tree's 64 nodes.
    lookahead_ngram: int = 5
    lookahead_window: int = 7
    lookahead_guesses: int = 7
    parallel_tokens: int = 7
    corpus: Path | None = None  # a text file, or a folder of some: what follows the same words there is proposed

    def __post_init__(self) -> None:
        if isinstance(self.corpus, (str, os.PathLike)) and os.fspath(self.corpus):
            object.__setattr__(self, "corpus", Path(self.corpus))
        elif self.corpus is not None:
            raise InvalidArgument(f"[sources] corpus={self.corpus!r}, want the path of a text file or a folder")
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise InvalidArgument(f"[sources] {name}={value!r}, want an integer in {low}..{high}")
        nodes = (self.lookahead_ngram - 1) * (self.lookahead_window + self.lookahead_guesses)
        if nodes > NODES:
            raise InvalidArgument(
                f"[sources] (lookahead_ngram - 1) * (lookahead_window + lookahead_guesses) is {nodes}, want at most "
                f"{NODES}, the nodes of a tree"
            )

    def arguments(self) -> dict[str, int]:
        """As _core.SourceSettings takes them, but for the corpus."""
        return {name: getattr(self, name) for name in _RANGES}
