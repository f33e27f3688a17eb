"""A line between a client and a server of this machine, as slow as one through the air: delay, jitter, width, loss."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

_AGAIN = 0.2  # seconds until TCP sends a lone lost segment again: Linux's least (RFC 6298 has a whole second)
_SEGMENT = 1460  # bytes


@dataclass(frozen=True)
class Air:
    """Of each direction."""

    delay: float  # seconds, and
    jitter: float  # the deviation of it
    width: float  # bits a second
    loss: float  # share of segments


class SlowLine:
    """Listens at `url`, and passes on to a port of this machine until it is cut."""

    def __init__(self, port: int, air: Air, seed: int = 0) -> None:
        self._port, self._air, self._draw = port, air, Random(seed)
        self._ready, self._loop = threading.Event(), asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait()

    def cut(self) -> None:
        """Whoever listens hears that it is broken; nobody answers at `url` any more."""

        async def stop() -> None:
            self._server.close()
            for task in self._tasks:
                task.cancel()

        asyncio.run_coroutine_threadsafe(stop(), self._loop).result()

    def close(self) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        self._server = self._loop.run_until_complete(asyncio.start_server(self._meet, "127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._ready.set()
        self._loop.run_forever()

    async def _meet(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        far, there = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            await asyncio.gather(self._carry(near, there), self._carry(far, back))
        except (asyncio.CancelledError, OSError):
            pass
        finally:
            self._tasks.discard(task)
            for end in there, back:
                with suppress(OSError):
                    end.transport.abort()

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        delivering = asyncio.create_task(self._deliver(queue, sink))
        free = last = 0.0  # when the line is, and when what was sent before arrives
        try:
            while data := await source.read(_SEGMENT):
                free = max(free, self._loop.time()) + 8 * len(data) / self._air.width
                late = _AGAIN if self._draw.random() < self._air.loss else 0.0
                last = max(last, free + max(0.0, self._draw.gauss(self._air.delay, self._air.jitter)) + late)
                queue.put_nowait((last, data))
            queue.put_nowait((last, b""))
            await delivering
        finally:
            delivering.cancel()

    async def _deliver(self, queue: asyncio.Queue[tuple[float, bytes]], sink: asyncio.StreamWriter) -> None:
        while True:
            due, data = await queue.get()
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            if not data:
                with suppress(OSError):
                    sink.write_eof()
                return
            sink.write(data)
