"""SWIFTK_DEBUG: words for developers, joined by commas, as in "isa=avx2,stepwise". csrc/base/debug.h reads it too."""

from __future__ import annotations

import os

from ..errors import InvalidArgument

# All words, also those that only the library reads: each side refuses what neither knows.
_WORDS = ("isa=avx2", "stepwise", "overlap=0", "driver=PATH", "arch=sm_90", "matmuls=triton")
_WORDS += ("clock=row:.03", "memory=1e9")
_NAMES = frozenset(word.partition("=")[0] for word in _WORDS)


def value(word: str) -> str:
    """What stands after "word="; "1" for the word alone, "" where the list lacks it. The last one counts."""
    found = ""
    for one in filter(None, os.environ.get("SWIFTK_DEBUG", "").split(",")):
        name, equals, said = one.partition("=")
        if name not in _NAMES:
            wanted = ", ".join(_WORDS)
            raise InvalidArgument(f"[debug] SWIFTK_DEBUG has '{one}', want some of {wanted}, joined by commas")
        if name == word:
            found = said if equals else "1"
    return found
