"""The engine of a server: one thread steps it for all texts, and brings each text's events to its request on the event
loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence

from ..api import LM, Prepared
from ..errors import InternalError, OutOfMemory, SwiftkError
from ..running.result import Event, Result
from ..running.stream import Stream


class Text:
    """A text under way, as its request sees it. Dropped with close(), which frees its rows within a round."""

    def __init__(self, stream: Stream, prompt_tokens: int, loop: asyncio.AbstractEventLoop) -> None:
        self._stream, self.prompt_tokens, self._loop = stream, prompt_tokens, loop
        self.new_tokens = 0  # so far
        self.failure: SwiftkError | None = None
        self._received: asyncio.Queue[list[Event] | BaseException | None] = asyncio.Queue()

    async def batches(self) -> AsyncIterator[list[Event]]:
        """Tokens as rounds commit them."""
        while (received := await self._received.get()) is not None:
            if isinstance(received, BaseException):
                raise received
            yield received

    async def wait(self) -> Result:
        async for _ in self.batches():
            pass
        return self.result

    @property
    def begins(self) -> bool:
        return self._stream.begins

    @property
    def result(self) -> Result:
        return self._stream.result

    def propose(self, tokens: Sequence[int], at: int, parents: Sequence[int] = ()) -> None:
        self._stream.propose(tokens, at, parents)

    def close(self) -> None:
        self._stream.cancel()

    def read(self, ended: Callable[[Result], None]) -> bool:
        """On the engine's thread: passes on what is there; whether the text has ended. `ended` is called with its
        result. The request knows once end() is called."""
        try:
            events, over = self._stream.poll()
            if over:
                ended(self.result)
        except BaseException as error:
            self.failure = typed(error)
            return True
        if events:
            self.new_tokens += len(events)
            self.report(events)
        return over

    def end(self) -> None:
        self.report(self.failure)

    def report(self, received: list[Event] | BaseException | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._received.put_nowait, received)
        except RuntimeError:  # the loop is closed: nobody listens
            self._stream.cancel()


def typed(error: BaseException) -> SwiftkError:
    """As requests answer it; what it was is its cause."""
    if isinstance(error, SwiftkError):
        return error
    kind = OutOfMemory if isinstance(error, MemoryError) else InternalError
    found = kind(f"[serve] a round failed: {type(error).__name__}: {error}")
    found.__cause__ = error
    return found


class Texts:
    """All that are under way, or about to be. After `idle` seconds without any, cached prefixes return their memory."""

    def __init__(self, lm: LM, idle: float = 60.0) -> None:
        self.lm, self._idle = lm, idle
        self._active: dict[Text, None] = {}
        self._starting = 0  # texts that are handed to the engine just now
        self.waiting = 0  # of those under way, for room, as of the last round
        # On the engine's thread: called with how many texts of a round were preempted, and with each text's result.
        self.preempted: Callable[[float], None] = lambda texts: None
        self.ended: Callable[[Result], None] = lambda result: None
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="swiftk-engine", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._active) + self._starting

    async def start(self, prepared: Sequence[Prepared]) -> list[Text]:
        """Texts of LM.prepare(), which have their places from the call on. Raises what LM.start() does, with nothing
        under way."""
        loop = asyncio.get_running_loop()
        self._starting += len(prepared)
        try:
            streams = await asyncio.to_thread(self.lm.start, prepared)
            texts = [Text(stream, len(one[0]), loop) for stream, one in zip(streams, prepared, strict=True)]
            with self._changed:
                self._active.update(dict.fromkeys(texts))
                self._changed.notify()
        finally:
            self._starting -= len(prepared)
        return texts

    def fail(self, error: SwiftkError) -> None:
        """Ends all texts under way: their requests are answered with the error."""
        with self._changed:
            texts = list(self._active)
        for text in texts:
            text.report(error)
            text.close()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """Ends all texts, and the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self.lm.cancel()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._active or self._closed, self._idle):
                    self.lm.give_back()
                    self._changed.wait_for(lambda: self._active or self._closed)
                texts = list(self._active)
                if not texts:
                    return
            try:
                self.lm.step()
            except BaseException as error:
                for text in texts:
                    text.failure = typed(error)
                ended = texts
            else:
                ended = [text for text in texts if text.read(self.ended)]
                last = self.lm.last_round
                self.waiting = last["waiting"]
                self.preempted(last["preempted"])
            with self._changed:
                for text in ended:
                    del self._active[text]
                self.waiting = min(self.waiting, len(self._active))
            for text in ended:  # whose places are free by now
                text.end()
