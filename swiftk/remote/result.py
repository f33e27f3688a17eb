"""What a text from a server is to its client."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RemotePiece:
    """What one frame brought, or one pass of the client's own model."""

    text: str  # may be empty: half a character is held back
    tokens: list[int]
    guessed: list[bool]  # for each token: whether the client had guessed it, and the server's pass took it
    alone: bool = False  # the client's own model said it: the server was gone


@dataclass(frozen=True, slots=True)
class RemoteResult:
    """A finished text. str() of it is the text."""

    text: str
    tokens: list[int]
    finish_reason: str  # "stop", "length"; "lost": the server was gone, and no model here could go on
    seed: int
    prompt_tokens: list[int]
    guessed: list[bool]  # as in RemotePiece
    alone_from: int | None  # tokens that the server said before it was gone; None: it said all
    lost: int  # times that the line broke
    sent: int  # bytes of frames to the server
    received: int  # and from it
    rounds: int  # frames with tokens

    def __str__(self) -> str:
        return self.text
