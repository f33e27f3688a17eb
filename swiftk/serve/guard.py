"""The frame of every exchange: keys, headers of answers, and a line of the log."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect

from ..errors import SwiftkError
from .metrics import Metrics
from .refusals import Refused, one_line, refusal_of, status_of
from .settings import ServeSettings

_log = logging.getLogger("swiftk.serve")
OPEN = ("/", "/health", "/metrics", "/version")  # paths that need no key, and are logged as details
_METHODS = ("GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH", "WEBSOCKET")
_STATUS = {"websocket.accept": 101, "websocket.close": 403}  # of the first message
_LINGER = 2.0  # seconds in which a refused body may still come, so that its sender reads the answer
_SHORT = 1 << 16  # bytes of a body that are read in any case
_ID = re.compile(r"[\w.-]{1,64}")


@dataclass(slots=True)
class Note:
    """Entries of the log about an exchange besides its status."""

    id: str
    began: float = field(default_factory=perf_counter)
    prompt_tokens: int = 0
    new_tokens: int = 0
    error: str = ""

    def refuse(self, error: BaseException) -> Refused:
        """The answer to an error. After a fault of the server the stack is in the log, and the answer has the
        id to look for."""
        if isinstance(error, Refused):
            found = error
        elif isinstance(error, SwiftkError) and status_of(error) != 500:
            found = refusal_of(error)
        else:
            _log.error("request %s failed", self.id, exc_info=error)
            found = Refused(500, f"[serve] internal error; the server's log has more of request {self.id}")
        self.error = str(found)
        return found


class Exchange:
    """A request and its answer. HEAD is GET without a body. If an answer is given before a body was read, the rest
    of the body is thrown away for a moment, since its sender would else not see the answer. After a long one the
    connection ends."""

    def __init__(self, scope: Any, receive: Any, send: Any, note: Note) -> None:
        headers = Headers(scope=scope)
        self._receive, self._send, self._note = receive, send, note
        self._head = scope["type"] == "http" and scope["method"] == "HEAD"
        said = headers.get("content-length", "0")
        self._unread = said != "0" or "transfer-encoding" in headers
        self._long = "transfer-encoding" in headers or not said.isdigit() or int(said) > _SHORT
        self.status = 0  # none yet

    async def receive(self) -> Any:
        message = await self._receive()
        self._unread &= message["type"] == "http.request" and message.get("more_body", False)
        return message

    async def send(self, message: Any) -> None:
        self.status = self.status or _STATUS.get(message["type"], 0)
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(raw=list(message["headers"]))
            headers["X-Request-Id"] = self._note.id
            if self._unread and self._long:
                headers["Connection"] = "close"
            if "GET" in (allowed := headers.get("allow", "")).split(", "):
                headers["Allow"] = f"{allowed}, HEAD"
            message = {**message, "headers": headers.raw}
        elif message["type"] == "http.response.body":
            if self._head:
                message = {**message, "body": b""}
            if self._unread and not message.get("more_body"):
                await self._send({**message, "more_body": True})
                await self._linger()
                message = {"type": "http.response.body", "body": b""}
        await self._send(message)

    async def _linger(self) -> None:
        async def rest() -> None:
            while self._unread:
                await self.receive()

        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(rest(), _LINGER)


class Guard:
    """Keys, and whether there is a model, before a body is read. Plain ASGI: what wraps requests hides that a client
    has left."""

    def __init__(self, app: Any, settings: ServeSettings, state: Callable[[], str], metrics: Metrics) -> None:
        self._app, self._settings, self._state, self._metrics = app, settings, state, metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        asked = Headers(scope=scope).get("x-request-id", "")
        note = Note(asked if _ID.fullmatch(asked) else secrets.token_hex(8))
        exchange = Exchange(scope, receive, send, note)
        method = scope.get("method", "WEBSOCKET")
        root = self._settings.root_path or scope.get("root_path", "")
        scope = {**scope, "note": note, "root_path": root, **({"method": "GET"} if method == "HEAD" else {})}
        try:
            await self._answer(scope, exchange)
        except ClientDisconnect:
            note.error = "the client left"
        except Exception as error:
            refused = note.refuse(error)
            if not exchange.status:  # else the client sees that its answer breaks off
                await refused.response()(scope, exchange.receive, exchange.send)
        finally:
            self._report(scope, method, exchange.status, note)

    async def _answer(self, scope: Any, exchange: Exchange) -> None:
        refused = self._refusal(scope)
        if refused is None:
            await self._app(scope, exchange.receive, exchange.send)
            return
        scope["note"].error = str(refused)
        if scope["type"] == "websocket":
            await exchange.send({"type": "websocket.close", "code": 1008, "reason": "refused"})  # HTTP's 403
        else:
            await refused.response()(scope, exchange.receive, exchange.send)

    def _refusal(self, scope: Any) -> Refused | None:
        path, key = _path(scope), self._settings.api_key
        if key and path not in OPEN:
            scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
            same = hmac.compare_digest(given.strip().encode("latin-1"), key.encode())
            if scheme.lower() != "bearer" or not same:
                said = "[serve] the API key is missing or wrong (Authorization: Bearer KEY)"
                return Refused(401, said, {"WWW-Authenticate": "Bearer"})
        if self._state() == "loading" and path not in OPEN:
            return Refused(503, "[serve] the model is being loaded", {"Retry-After": "5"})
        return None

    def _report(self, scope: Any, method: str, status: int, note: Note) -> None:
        seconds = perf_counter() - note.began
        route = getattr(scope.get("route"), "path", "none")
        self._metrics.answered(method if method in _METHODS else "other", route, status, seconds)
        level = logging.ERROR if status == 500 else logging.DEBUG if _path(scope) in OPEN else logging.INFO
        tokens = f", {note.prompt_tokens}+{note.new_tokens} tokens" if note.prompt_tokens else ""
        error = f": {one_line(note.error)}" if note.error else ""
        client = (scope.get("client") or ("-",))[0]
        where = quote(_path(scope))
        _log.log(level, "%s %s %s %s %d, %.3f s%s%s", note.id, client, method, where, status, seconds, tokens, error)


def _path(scope: Any) -> str:
    """Below the root path, as routes have it: some proxies take that away, and some do not."""
    path, root = scope["path"], scope["root_path"]
    return path.removeprefix(root) if path.startswith(f"{root}/") else path
