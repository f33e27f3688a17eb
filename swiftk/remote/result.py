"""Texts from a server, in pieces and whole."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, slots=True)
class RemotePiece:
    """The tokens of one frame, or of one pass of who continues at the client."""

    text: str  # may be empty: half a character is held back
    tokens: list[int]
    proposed: list[bool]  # for each token: whether the client proposed it and the server accepted it
    alone: bool = False  # made at the client, because the server was gone or must not see the text: nobody verified it


@dataclass(frozen=True, slots=True)
class RemoteResult:
    """A finished text. str() of it is the text."""

    text: str
    tokens: list[int]
    finish_reason: str  # "stop", "length"; "lost": the server was gone, and nobody here could continue
    seed: int
    prompt_tokens: list[int]
    proposed: list[bool]  # as in RemotePiece
    alone_from: int | None  # index of the first token that the server did not verify; None: it verified all
    alone_by: str | None  # who wrote these: "model", the client's own, or "head", which reads the server's states
    lost: int  # number of broken connections
    sent: int  # bytes sent to the server
    received: int  # bytes received
    rounds: int  # frames with tokens

    def __str__(self) -> str:
        return self.text


class RemotePieces:
    """An iterator of the pieces of a text. `result` is there when all of them were read."""

    result: RemoteResult
    _pieces: Generator[RemotePiece, None, None]

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> RemotePiece:
        return next(self._pieces)

    def close(self) -> None:
        """Ends the text, also at the server."""
        self._pieces.close()
