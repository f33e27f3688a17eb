"""The engine of a server: one thread steps it for all texts, and brings each text's events to its request on the event
loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from ..api import LM
from ..errors import InternalError, OutOfMemory, SwiftkError
from ..result import Event, Result
from ..stream import Stream


class Text:
    """A text under way, as its request sees it. Dropped with close(), which frees its rows within a round."""

    def __init__(self, stream: Stream, loop: asyncio.AbstractEventLoop) -> None:
        self._stream, self._loop = stream, loop
        self._heard: asyncio.Queue[list[Event] | BaseException | None] = asyncio.Queue()

    async def batches(self) -> AsyncIterator[list[Event]]:
        """Tokens as rounds commit them."""
        while (heard := await self._heard.get()) is not None:
            if isinstance(heard, BaseException):
                raise heard
            yield heard

    async def wait(self) -> Result:
        async for _ in self.batches():
            pass
        return self.result

    @property
    def result(self) -> Result:
        return self._stream.result

    def guess(self, tokens: Sequence[int], at: int) -> None:
        self._stream.guess(tokens, at)

    def close(self) -> None:
        self._stream.cancel()

    def read(self) -> bool:
        """On the engine's thread: passes on what is there; whether the text has ended."""
        try:
            events, ended = self._stream.poll()
        except BaseException as error:
            self.tell(error)
            return True
        if events:
            self.tell(events)
        if ended:
            self.tell(None)
        return ended

    def tell(self, heard: list[Event] | BaseException | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._heard.put_nowait, heard)
        except RuntimeError:  # the loop is closed: nobody listens
            self._stream.cancel()


def _typed(error: BaseException) -> SwiftkError:
    """As requests answer it."""
    if isinstance(error, SwiftkError):
        return error
    kind = OutOfMemory if isinstance(error, MemoryError) else InternalError
    return kind(f"[serve] a round failed: {type(error).__name__}: {error}")


class Texts:
    """All that are under way."""

    def __init__(self, lm: LM) -> None:
        self.lm = lm
        self._active: dict[Text, None] = {}
        self.waiting = 0  # of them, for room, as of the last round
        self.preempted: Callable[[float], None] = lambda texts: None  # is told how many of a round were
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="swiftk-engine", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._active)

    async def submit(self, prompt: Any, each: Sequence[Mapping[str, Any]]) -> list[Text]:
        """A text for each mapping of options, all of one prompt. Raises what LM.submit() does, with nothing under
        way."""
        loop = asyncio.get_running_loop()
        streams = await asyncio.to_thread(self.lm.submit_many, [prompt] * len(each), each)
        texts = [Text(stream, loop) for stream in streams]
        with self._changed:
            self._active.update(dict.fromkeys(texts))
            self._changed.notify()
        return texts

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
                while not self._active and not self._closed:
                    self._changed.wait()
                texts = list(self._active)
                if not texts:
                    return
            try:
                self.lm.step()
            except BaseException as error:
                for text in texts:
                    text.tell(_typed(error))
                ended = texts
            else:
                ended = [text for text in texts if text.read()]
                last = self.lm.last_round
                self.waiting = last["waiting"]
                self.preempted(last["preempted"])
            with self._changed:
                for text in ended:
                    del self._active[text]
                self.waiting = min(self.waiting, len(self._active))
