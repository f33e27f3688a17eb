"""Bodies of requests: how they come in, and how much of them is held at a time.

Bodies are read and prepared here, on a thread. Whatever that raises is the request's fault: it becomes an answer of
one line, and its stack is in the log.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Callable, Container
from contextlib import asynccontextmanager
from itertools import accumulate
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from ..errors import SwiftkError
from .refusals import Refused, malformed, refusal_of, status_of, without_paths
from .settings import ServeSettings

_log = logging.getLogger("swiftk.serve")
_AT_A_TIME = 2  # bodies that are parsed and tokenised: each may need a core and 100 MB; others wait
_DEEPEST = 100  # brackets of JSON inside each other
_STRINGS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_DEEPER = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}

Asked = TypeVar("Asked", bound=BaseModel)
Made = TypeVar("Made")


class Intake:
    """Takes bodies in. Their number and their bytes are bounded, also where many come at once."""

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self._bodies = self._bytes = 0  # held now
        self._places = asyncio.Semaphore(_AT_A_TIME)

    @property
    def held(self) -> tuple[int, int]:
        """Bodies, and bytes of them, that are being read."""
        return self._bodies, self._bytes

    async def take(self, request: Request, kind: type[Asked], make: Callable[[Asked], Made]) -> Made:
        """What `make` makes of a request's body, on a thread. Raises Refused or a SwiftkError, and nothing else."""
        _must_be_json(request.headers.get("content-type"))
        async with self.body(request) as body, self._places:
            if await request.is_disconnected():
                raise Refused(499, "[serve] the client left")
            return await asyncio.to_thread(blame, lambda: make(kind.model_validate(parse(body))), kind.model_fields)

    @asynccontextmanager
    async def body(self, request: Request) -> AsyncIterator[bytearray]:
        """Counts what comes: a header that says how much will come is only the first reason to refuse it."""
        if self._bodies >= self._settings.most_texts:
            raise Refused(429, f"[serve] {self._bodies} requests are being read", {"Retry-After": "1"})
        most, said = self._settings.most_bytes, request.headers.get("content-length", "")
        if said.isdigit() and int(said) > most:
            raise Refused(413, f"[serve] the body has {said} bytes, want at most {most}")
        body, seconds = bytearray(), self._settings.most_seconds
        self._bodies += 1
        try:
            await asyncio.wait_for(self._read(request, body), seconds)
            yield body
        except asyncio.TimeoutError:
            raise Refused(408, f"[serve] the body did not come within {seconds:g} s") from None
        except ClientDisconnect:
            raise Refused(499, "[serve] the client left") from None
        finally:
            self._bodies -= 1
            self._bytes -= len(body)

    async def _read(self, request: Request, body: bytearray) -> None:
        most = self._settings.most_bytes
        async for piece in request.stream():
            if len(body) + len(piece) > most:
                raise Refused(413, f"[serve] the body has more than {most} bytes")
            if self._bytes + len(piece) > self._settings.most_held:
                raise Refused(503, "[serve] too many bytes of requests are being read", {"Retry-After": "1"})
            self._bytes += len(piece)
            body += piece


def _must_be_json(given: str | None) -> None:
    kind = (given or "").partition(";")[0].strip().lower()
    if kind != "application/json" and not re.fullmatch(r"application/[\w.-]+\+json", kind):
        found = "missing" if given is None else repr(given)
        raise Refused(415, f"[serve] Content-Type is {found}, want application/json", param="Content-Type")


def blame(make: Callable[[], Made], fields: Container[str] = ()) -> Made:
    """What `make` makes of a request's data. Whatever it raises is a Refused; fields: names of the request's."""
    try:
        return make()
    except Refused:
        raise
    except SwiftkError as error:
        if status_of(error) >= 500:  # of the model's files
            raise
        raise refusal_of(error, fields) from error
    except ValidationError as error:
        raise malformed(error) from None
    except BaseException as error:  # panics of libraries are no Exceptions
        _log.warning("what a request asks for raised %s", type(error).__name__, exc_info=True)
        said = without_paths(f"[serve] what the request asks for raised {type(error).__name__}: {error}")
        raise Refused(400, said) from None


def parse(body: bytes | bytearray) -> Any:
    """JSON of bounded depth."""
    nested = _STRINGS.sub(b"", body).translate(None, _NO_BRACKETS)
    if max(accumulate(map(_DEEPER.__getitem__, nested)), default=0) > _DEEPEST:
        raise Refused(400, f"[serve] the body is JSON of more than {_DEEPEST} levels")
    try:
        return json.loads(body, parse_constant=_no_constant)
    except ValueError as error:
        raise Refused(400, f"[serve] the body is not JSON: {error}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")
