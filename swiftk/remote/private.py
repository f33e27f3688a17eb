"""A text with a part that never leaves the client (Mixture of Attentions, arXiv 2410.03804, A.6).

The server reads the prompt and sends the states of its model. The head at the client reads these, the private tokens
after them, and writes the text: the server could only verify what it sees.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, replace
from typing import Any

from ..errors import InvalidArgument
from ..options.fields import SAMPLER
from . import frames
from .alone import Speaker, speak, stopper
from .line import Line, Lost
from .proposer import Proposer, Reader
from .result import RemotePiece, RemotePieces, RemoteResult


class PrivateText(RemotePieces):
    """Each piece is a token of the head's."""

    def __init__(
        self,
        dial: Callable[[], Line],
        head: Proposer,
        patience: float,
        prompt: Any,
        private: str | Sequence[int],
        options: dict[str, Any],
    ) -> None:
        if not (isinstance(head, Speaker) and isinstance(head, Reader)):
            raise InvalidArgument(f"[remote] drafter is {head!r}, want a Head to keep a part of the text private")
        self._options = frames.options_of(options)
        if self._options.response_format is not None:
            raise InvalidArgument("[remote] response_format needs the server, want none beside private")
        self._private = head.tokenizer.encode(private, False) if isinstance(private, str) else list(private)
        if not self._private:
            raise InvalidArgument("[remote] private has no token, want one at least")
        self._dial, self._head, self._patience, self._prompt, self._given = dial, head, patience, prompt, options
        self._pieces = self._run()

    def _run(self) -> Generator[RemotePiece, None, None]:
        line = self._dial()
        try:
            begun = self._read(line)
        finally:
            line.close()
        o, head = self._options, self._head
        if not head.alone:
            raise InvalidArgument("[remote] the head cannot write by itself, want a Mixture of Attentions")
        prompt, tokens = [*begun["prompt"], *self._private], list[int]()
        ends = {*o.stop_token_ids, *(() if o.ignore_eos else begun["ends"])}
        stops, text = stopper(head, prompt, o, sorted(ends), o.max_new_tokens), ""
        for piece in speak(head, tokens, stops):
            text += piece
            yield RemotePiece(piece, tokens[-1:], [False], True)
        seed, reason = self._sampling["seed"], stops.finish or "length"
        unproposed = [False] * len(tokens)
        self.result = RemoteResult(
            text, tokens, reason, seed, prompt, unproposed, 0, "head", 0, line.sent, line.received, 0
        )

    def _read(self, line: Line) -> dict[str, Any]:
        """What the server says of the prompt. Its states go to the head."""
        head = self._head
        features = asdict(replace(head.features, known=0))
        asked = {"prompt": self._prompt, "options": {"max_new_tokens": 1}, "features": features, "states": 1}
        line.send(frames.pack("begin", version=frames.VERSION, **asked))
        begun = self._receive(line)
        frames.must_equal(head.tokenizer, begun["vocabulary"])
        self._sampling = begun["sampling"] | self._sampler()
        head.begin([*begun["prompt"], *self._private], self._sampling)
        while head.known < len(begun["prompt"]):
            frame = self._receive(line)
            if frame["op"] == "end":
                raise Lost("the server ended before it had sent the prompt's states")
            if "features" in frame:
                head.know(frame["first"], head.features.unpacked(frame["features"]))
        return begun

    def _receive(self, line: Line) -> dict[str, Any]:
        frame = line.receive(self._patience)
        if frame is None:
            raise Lost(f"the server did not answer within {self._patience:g} s")
        return frames.checked(frame)

    def _sampler(self) -> dict[str, Any]:
        """Fields of the sampler that this text's options give, in place of the server's."""
        given = {name: getattr(self._options, name) for name in SAMPLER if name in self._given}
        return {"seed": secrets.randbits(48), **{name: value for name, value in given.items() if value is not None}}
