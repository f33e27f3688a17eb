"""A text from a server, drafted here. Drafts are sent while answers are under way, a broken connection is dialled
again, and without the server the client's own model continues."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from .. import errors
from ..errors import InvalidArgument
from . import frames
from .alone import Speaker, speak, stopper
from .line import Line, Lost, address
from .private import PrivateText
from .proposer import Grower, Proposer, Reader, proposer
from .result import RemotePiece, RemotePieces, RemoteResult
from .tree import MOST, Tree, chain

_log = logging.getLogger("swiftk")
_BLOCK = 4  # tokens in one draft: a short one in time gains more than a long one that is late
_AHEAD = 16  # draft tokens that are not answered yet


def connect(
    url: str,
    drafter: Any = "suffix",
    *,
    api_key: str | None = None,
    patience: float = 5.0,
    ahead: int = _AHEAD,
) -> Remote:
    """A connection to `swiftk serve`.

    url: http://HOST:PORT, as for OpenAI's clients. drafter: a model's folder or an LM with the server's vocabulary;
    "suffix", which finds repetitions at no cost; a Head; or a Proposer. A folder is loaded, and closed with the
    connection. patience: seconds until a server that does not answer counts as gone. ahead: maximum number of draft
    tokens that wait for an answer.
    """
    address(url)
    if not patience > 0:
        raise InvalidArgument(f"[remote] patience is {patience!r}, want seconds above 0")
    if ahead < 1:
        raise InvalidArgument(f"[remote] ahead is {ahead!r}, want at least 1")
    return Remote(lambda: Line(url, api_key, patience), proposer(drafter), patience, ahead)


class Remote:
    """Generates texts one after another, from one thread at a time."""

    def __init__(self, dial: Callable[[], Line], proposals: Proposer, patience: float, ahead: int) -> None:
        """dial: opens a connection."""
        self._dial, self._proposer, self._patience, self._ahead = dial, proposals, patience, ahead
        self._reader = proposals if isinstance(proposals, Reader) else None
        self._tokenizer = proposals.tokenizer if self._reader else proposals.model and proposals.model.tokenizer

    def generate(self, prompt: Any, *, private: str | Sequence[int] | None = None, **options: Any) -> RemoteResult:
        """A whole text. prompt: text, token ids or chat messages. options: those of generate() that decide the text,
        such as max_new_tokens, temperature, seed and stop. A refusal of the server is raised as the same error as here.
        `Lost`: it never answered.

        private: text or token ids after the prompt that the server must not see. The server then reads the prompt
        alone. A head here, a Mixture of Attentions, reads both and writes all of the text, which nobody verifies.
        Neither `private`, nor the text, nor the options are sent."""
        text = self.stream(prompt, private=private, **options)
        for _ in text:
            pass
        return text.result

    def stream(
        self, prompt: Any, *, private: str | Sequence[int] | None = None, **options: Any
    ) -> RemoteText | PrivateText:
        """The same in pieces as they arrive. Its `result` is complete when all pieces were read."""
        if private is None:
            return RemoteText(self, prompt, options)
        return PrivateText(self._dial, self._proposer, self._patience, prompt, private, options)

    def close(self) -> None:
        self._proposer.close()

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RemoteText(RemotePieces):
    """A text of the server's."""

    def __init__(self, remote: Remote, prompt: Any, options: dict[str, Any]) -> None:
        frames.options_of(options)
        self._remote, self._asked = remote, {"prompt": prompt, "options": options}
        self._tokens: list[int] = []
        self._proposed: list[bool] = []
        self._reported = ""
        self._proposal = Tree()  # draft tokens after self._tokens, sent and not answered
        self._lost = self._rounds = self._sent = self._received = 0
        self._alone_from: int | None = None
        self._alone_by: str | None = None
        self._begun: dict[str, Any] = {}
        self._pieces = self._run()

    def _run(self) -> Generator[RemotePiece, None, None]:
        reason = None
        while reason is None:
            line: Line | None = None
            try:
                line = self._open()
                reason = yield from self._listen(line)
            except Lost as error:
                self._lost += 1
                if not self._begun:
                    raise
                _log.warning("%s", error)
                if line is None:
                    reason = yield from self._alone()
            except GeneratorExit:
                if line is not None:
                    with suppress(Lost):
                        line.send(frames.pack("cancel"))
                raise
            finally:
                if line is not None:
                    self._sent, self._received = self._sent + line.sent, self._received + line.received
                    line.close()
        self.result = RemoteResult(
            self._reported,
            self._tokens,
            reason,
            self._begun["sampling"]["seed"],
            self._begun["prompt"],
            self._proposed,
            self._alone_from,
            self._alone_by,
            self._lost,
            self._sent,
            self._received,
            self._rounds,
        )

    def _open(self) -> Line:
        """A connection on which the text is running. Tries again until patience ends."""
        until = time.monotonic() + self._remote._patience
        while True:
            try:
                line = self._remote._dial()
                break
            except Lost:
                if not self._begun or time.monotonic() > until:
                    raise
                time.sleep(0.05)
        try:
            self._take_up(line)
        except BaseException:
            line.close()
            raise
        return line

    def _take_up(self, line: Line) -> None:
        known = self._tokens
        self._proposal = Tree()
        if self._begun:
            at = {"at": len(known), "digest": frames.digest(known), **self._known()}
            line.send(frames.pack("resume", version=frames.VERSION, id=self._begun["id"], **at))
            frame = self._answer(line)
            if frame["op"] == "begun":
                return
            options = {**self._asked["options"], "seed": self._begun["sampling"]["seed"]}
            asked = {"prompt": self._begun["prompt"], "options": options, **self._features(**self._known())}
            line.send(frames.pack("begin", version=frames.VERSION, **asked))
            line.send(frames.pack("propose", at=0, tokens=known))
            self._begun = self._answer(line)
            return
        line.send(frames.pack("begin", version=frames.VERSION, **self._asked, **self._features()))
        self._begun = self._answer(line)
        frames.must_equal(self._remote._tokenizer, self._begun["vocabulary"])
        self._remote._proposer.begin(self._begun["prompt"], self._begun["sampling"])

    def _features(self, known: int = 0) -> dict[str, Any]:
        """The features that `begin` asks for. known: number of leading tokens whose features are here."""
        reader = self._remote._reader
        return {"features": asdict(replace(reader.features, known=known))} if reader else {}

    def _known(self) -> dict[str, int]:
        return {"known": self._remote._reader.known} if self._remote._reader else {}

    def _answer(self, line: Line) -> dict[str, Any]:
        frame = line.receive(self._remote._patience)
        if frame is None:
            raise Lost(f"the server did not answer within {self._remote._patience:g} s")
        return frames.checked(frame)

    def _listen(self, line: Line) -> Any:
        """Yields pieces of the text, and returns the finish reason."""
        wanted = True  # whether the proposer may have more to propose
        while True:
            room = wanted and self._has_room()
            frame = line.receive(0 if room else None)
            if frame is None:
                more = self._propose()
                wanted = more is not None
                with suppress(Lost):  # what was received before comes first: the text's end, perhaps
                    if more:
                        line.send(more)
                continue
            frame = frames.checked(frame)
            if frame["op"] == "end":
                return frame["reason"]
            piece = self._take(frame)
            wanted |= piece is not None or "features" in frame
            if piece:
                yield piece

    def _has_room(self) -> bool:
        """Whether more may be proposed before the next answer."""
        full = isinstance(self._remote._proposer, Grower) and len(self._proposal) >= MOST
        return not full and len(self._proposal.spine()) < self._remote._ahead

    def _propose(self) -> bytes | None:
        """A frame of what may follow the proposal's spine; None: the proposer has nothing to say."""
        known, ahead = len(self._tokens), self._proposal.spine()
        text, proposer = [*self._tokens, *ahead], self._remote._proposer
        if isinstance(proposer, Grower):
            more = proposer.grow(text)
            self._proposal.graft(more, MOST)
            said = {"at": known, "tokens": self._proposal.tokens, "parents": self._proposal.parents}
        else:
            more = chain(proposer.propose(text, _BLOCK))
            self._proposal.graft(more)
            said = {"at": known + len(ahead), "tokens": more.tokens}
        return frames.pack("propose", **said) if more else None

    def _take(self, frame: dict[str, Any]) -> RemotePiece | None:
        """What of a frame is new. A text that was begun anew says again what is here."""
        again = len(self._tokens) - frame["at"]
        if again < 0 or frame["tokens"][:again] != self._tokens[frame["at"] :][: len(frame["tokens"])]:
            raise errors.InternalError(f"[remote] the server continues from token {frame['at']} with another text")
        if self._remote._reader and "features" in frame:
            self._remote._reader.know(frame.get("first", 0), self._remote._reader.features.unpacked(frame["features"]))
        tokens, proposed = frame["tokens"][again:], [bool(g) for g in frame["proposed"][again:]]
        if not tokens:
            return None
        text = "".join(frame["texts"][again:])
        self._proposal = self._proposal.after(tokens)
        self._tokens += tokens
        self._proposed += proposed
        self._reported += text
        self._rounds += 1
        return RemotePiece(text, tokens, proposed)

    def _alone(self) -> Any:
        """Continues with the client's own model, or the head, and returns the finish reason."""
        model = self._remote._proposer.model
        if model is None:
            return (yield from self._by_head())
        _log.warning("the server is gone: %s continues from token %d", model.folder, len(self._tokens))
        self._alone_from, self._alone_by = len(self._tokens), "model"
        options = {**self._asked["options"], **self._begun["sampling"], "continued_tokens": len(self._tokens)}
        with model.submit([*self._begun["prompt"], *self._tokens], **options) as stream:
            for event in stream:
                self._tokens.append(event.token)
                self._proposed.append(False)
                self._reported += event.text
                yield RemotePiece(event.text, [event.token], [False], True)
            return stream.result.finish_reason

    def _by_head(self) -> Any:
        """A grammar is the server's: a text of one is lost."""
        head, o = self._remote._proposer, frames.options_of(self._asked["options"])
        if not (isinstance(head, Speaker) and head.alone) or o.response_format is not None:
            _log.warning("the server is gone, and there is nobody here to continue with")
            return "lost"
        _log.warning("the server is gone: the head continues from token %d, unverified", len(self._tokens))
        self._alone_from, self._alone_by = len(self._tokens), "head"
        ends = stopper(head, self._begun["prompt"], o, self._begun["ends"], self._begun["most"])
        for token in self._tokens:
            ends.push(token)
        for text in speak(head, self._tokens, ends):
            self._proposed.append(False)
            self._reported += text
            yield RemotePiece(text, self._tokens[-1:], [False], True)
        return ends.finish or "length"
