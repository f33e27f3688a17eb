"""uvicorn, which goes on answering while texts end: it stops listening once they have."""

from __future__ import annotations

import asyncio
import logging
import os
from types import FrameType
from typing import Any

import uvicorn

from .server import Server

_log = logging.getLogger("swiftk.serve")
_FLUSH = 5  # seconds that answers may take to reach their clients after the last text has ended


class Running(uvicorn.Server):
    """The first SIGTERM or Ctrl-C has the server drain; the second one ends the process at once."""

    def __init__(self, app: Any, server: Server, keep_alive: float) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                timeout_keep_alive=keep_alive,  # type: ignore[arg-type]
                timeout_graceful_shutdown=_FLUSH,
            )
        )
        self._server = server
        self._draining: asyncio.Task[None] | None = None

    async def serve(self, sockets: Any = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)
        _log.info("stopped")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._server.state != "ok":  # nothing is under way, or this is the second signal
            _log.warning("stopped by signal %d", sig)
            os._exit(128 + sig)  # the first process of a container ignores a signal that it sends itself
        self._server.state = "draining"
        self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        async def drained() -> None:
            await self._server.drain(self._server.settings.grace)
            self.should_exit = True

        self._draining = asyncio.create_task(drained())
