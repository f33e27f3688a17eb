"""What a server is told: names, and limits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServeSettings:
    name: str | None = None  # of the model, as clients ask for it; None: its folder's
    api_key: str | None = None  # that requests must bring ("Authorization: Bearer KEY"); None: any
    most_texts: int = 256  # under way or waiting; one more is refused (429)
    most_tokens: int | None = None  # new ones of a text; None: what the context has room for
    most_bytes: int = 4 << 20  # of a request's body; more is refused (413)
    kept: float = 30.0  # seconds that a text waits for its remote drafter to dial again
