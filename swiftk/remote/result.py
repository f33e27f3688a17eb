"""Texts from a server, in pieces and whole."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RemotePiece:
    """The tokens of one frame, or of one pass of the client's own model."""

    text: str  # may be empty: half a character is held back
    tokens: list[int]
    proposed: list[bool]  # for each token: whether the client proposed it and the server accepted it
    alone: bool = False  # from the client's own model, because the server was gone


@dataclass(frozen=True, slots=True)
class RemoteResult:
    """A finished text. str() of it is the text."""

    text: str
    tokens: list[int]
    finish_reason: str  # "stop", "length"; "lost": the server was gone, and no model here could continue
    seed: int
    prompt_tokens: list[int]
    proposed: list[bool]  # as in RemotePiece
    alone_from: int | None  # index of the first token of the client's own model; None: all are the server's
    lost: int  # number of broken connections
    sent: int  # bytes sent to the server
    received: int  # bytes received
    rounds: int  # frames with tokens

    def __str__(self) -> str:
        return self.text
