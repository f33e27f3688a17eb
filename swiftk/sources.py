"""Who proposes tokens, by the names that callers and statistics have for them."""

from __future__ import annotations

from dataclasses import dataclass

# In the order of csrc/drafters/registry.h.
NAMES = ("target", "plan", "suffix", "recycle", "lookup", "lookahead", "parallel", "template", "grammar", "host")


@dataclass(frozen=True, slots=True)
class Drafter:
    """What proposes tokens, as callers name it."""

    plan: bool  # a draft plan does
    sources: tuple[str, ...]
    beside: bool = False  # the plan is that of a drafter of this kind, which was loaded beside the model

    @property
    def numbers(self) -> list[int]:
        """Numbers of its sources, as the runtime has them."""
        return [NAMES.index(name) for name in self.sources]


def numbers(drafter: str, grammar: bool) -> list[int]:
    """Of what it asks about a text; grammar: which has one, that "auto" asks, too."""
    also = [NAMES.index("grammar")] if grammar and drafter == "auto" else []
    return DRAFTERS[drafter].numbers + also


DRAFTERS = {
    "auto": Drafter(True, ("suffix", "recycle")),
    "plan": Drafter(True, ()),
    "suffix": Drafter(False, ("suffix",)),
    "recycle": Drafter(False, ("recycle",)),
    "lookup": Drafter(False, ("lookup",)),
    "lookahead": Drafter(False, ("lookahead",)),
    "parallel": Drafter(False, ("parallel",)),
    "template": Drafter(False, ("template",)),
    "host": Drafter(False, ("host",)),
    "model": Drafter(True, (), beside=True),
    "block": Drafter(True, (), beside=True),
    "eagle": Drafter(True, (), beside=True),
    "moa": Drafter(True, (), beside=True),
}
