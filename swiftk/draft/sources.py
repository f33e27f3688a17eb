"""Sources of draft tokens, by the names that callers and statistics have for them."""

from __future__ import annotations

from dataclasses import dataclass

from .. import _core

NAMES: tuple[str, ...] = _core.sources.names  # csrc/draft/sources/registry.h; the model and its draft plans first


@dataclass(frozen=True, slots=True)
class Drafter:
    """A choice of sources and plans, as callers name it."""

    plan: bool  # a draft plan does
    sources: tuple[str, ...]
    beside: bool = False  # the plan is that of a drafter of this kind, which was loaded beside the model

    @property
    def numbers(self) -> list[int]:
        """Numbers of its sources, as the runtime has them."""
        return [NAMES.index(name) for name in self.sources]


def numbers(drafter: str, **there: bool) -> list[int]:
    """Of what it asks about a text. there: sources that "auto" asks, too, where there is something to ask."""
    also = [NAMES.index(name) for name, is_there in there.items() if is_there and drafter == "auto"]
    return DRAFTERS[drafter].numbers + also


DRAFTERS = {
    "auto": Drafter(True, ("suffix", "recycle")),
    "plan": Drafter(True, ()),
    **{name: Drafter(False, (name,)) for name in NAMES[2:] if name != "grammar"},
    **{kind: Drafter(True, (), beside=True) for kind in ("model", "block", "eagle", "moa")},
}
