"""Names and limits of a server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServeSettings:
    names: tuple[str, ...] = ()  # of the model, as clients ask for it; none: its folder's
    api_key: str | None = None  # that requests must bring ("Authorization: Bearer KEY"); None: any
    most_texts: int = 256  # under way or waiting; one more is refused (429)
    most_tokens: int | None = None  # new ones of a text; None: what the context has room for
    most_bytes: int = 4 << 20  # of a request's body; more is refused (413)
    most_held: int = 64 << 20  # bytes of all bodies that are being read at a time; more are refused (503)
    most_seconds: float = 60.0  # in which a body must come (408)
    kept: float = 30.0  # seconds that a text waits for its remote drafter to dial again
    grace: float = 25.0  # seconds that texts may take to end once the server is asked to stop
    cors_origins: tuple[str, ...] = ()  # of pages whose scripts may ask, "*": all
    root_path: str = ""  # under which a proxy shows the server
