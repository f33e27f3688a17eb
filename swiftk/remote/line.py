"""One WebSocket to a server, with a thread that receives."""

from __future__ import annotations

import queue
import threading
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import connect

from ..errors import InvalidArgument, SwiftkError
from .frames import PATH, unpack

_OPS = ("begun", "gone", "tokens", "end", "error")


class Lost(SwiftkError, ConnectionError):
    """The connection to a server broke, or nobody answers there."""


class Line:
    def __init__(self, url: str, api_key: str | None, timeout: float) -> None:
        """url: http://HOST:PORT; timeout: seconds to wait for an answer. Raises Lost."""
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else None
        self.sent = self.received = 0
        self._open = ExitStack()
        self._received: queue.SimpleQueue[bytes | Lost] = queue.SimpleQueue()
        try:
            self._socket = self._open.enter_context(
                connect(
                    address(url),
                    additional_headers=headers,
                    open_timeout=timeout,
                    close_timeout=1,
                    max_size=None,
                    compression=None,
                    ping_interval=max(timeout / 2, 0.5),
                    ping_timeout=timeout,
                )
            )
        except (OSError, TimeoutError, InvalidHandshake) as error:
            raise Lost(f"{url} does not answer: {error}") from None
        self._thread = threading.Thread(target=self._listen, name="swiftk-remote", daemon=True)
        self._thread.start()

    def send(self, frame: bytes) -> None:
        try:
            self._socket.send(frame)
        except (ConnectionClosed, OSError) as error:
            raise Lost(f"the line broke: {error}") from None
        self.sent += len(frame)

    def receive(self, timeout: float | None) -> dict[str, Any] | None:
        """The next frame, or None if none arrives within `timeout` seconds (None: waits for ever)."""
        try:
            found = self._received.get(timeout=timeout) if timeout != 0 else self._received.get_nowait()
        except queue.Empty:
            return None
        if isinstance(found, Lost):
            raise found
        self.received += len(found)
        return unpack(found, *_OPS)

    def close(self) -> None:
        self._open.close()
        self._thread.join()

    def _listen(self) -> None:
        try:
            while True:
                data = self._socket.recv()
                self._received.put(data if isinstance(data, bytes) else data.encode())
        except (ConnectionClosed, OSError) as error:
            self._received.put(Lost(f"the line broke: {error}"))


def address(url: str) -> str:
    parts = urlsplit(url)
    schemes = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
    if parts.scheme not in schemes or not parts.netloc:
        raise InvalidArgument(f"[remote] url is {url!r}, want http://HOST:PORT or https://...")
    return f"{schemes[parts.scheme]}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}{PATH}"
