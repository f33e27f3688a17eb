"""A model that answers requests: it takes bodies in, runs their texts, and gives answers whole or as streams."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from ..api import LM, Prepared
from ..errors import Cancelled
from ..running.result import Event
from .answers import Answer
from .guard import Note
from .intake import Intake
from .job import Job, Jobs
from .metrics import Metrics
from .refusals import Refused
from .remote import Remotes
from .settings import ServeSettings
from .texts import Text, Texts

_log = logging.getLogger("swiftk.serve")


class Streamed(StreamingResponse):
    """Server-Sent Events, which proxies pass on as they come. `ended` is called in any case, also where the client has
    left before the first one."""

    def __init__(self, lines: AsyncIterator[str], ended: Callable[[], None]) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(lines, media_type="text/event-stream", headers=headers)
        self._ended = ended

    async def __call__(self, *connection: Any) -> None:
        try:
            await super().__call__(*connection)
        finally:
            self._ended()


class Server:
    """A model, once it is there, its texts, and what is counted of them."""

    lm: LM
    texts: Texts
    jobs: Jobs

    def __init__(self, settings: ServeSettings) -> None:
        self.settings = settings
        self.names = settings.names  # the first one is named where a request names none
        self.metrics = Metrics(*self.names[:1])
        self.intake = Intake(settings)
        self.began = int(time.time())
        self.state = "loading"  # then "ok", then "draining"
        self.failed: BaseException | None = None  # loading did
        self.give_up: Callable[[], Any] = lambda: None
        self.remotes = Remotes(self)

    def open(self, lm: LM) -> None:
        self.names = self.names or (lm.folder.resolve().name,)
        self.metrics.name = self.names[0]
        self.lm, self.texts = lm, Texts(lm)
        self.jobs = Jobs(lm, self.names, self.settings)
        self.metrics.watch(self.texts)
        if self.state == "loading":
            self.state = "ok"

    async def answer(self, request: Request, kind: type[Any], make: Callable[[Any], Job]) -> Response:
        """The texts that a body of a `kind` asks for; make: a method of `jobs`."""
        self.must_run()
        self.must_have_room(1)
        job = await self.intake.take(request, kind, make)
        texts = await self.begin(job.texts)
        created, number = int(time.time()), secrets.token_hex(12)
        begins = [text.begins for text in texts]
        answer = Answer(self.lm, number, created, job.model, job.chat, job.logprobs, job.tools, begins)
        answer.sources = job.with_sources
        note: Note = request.scope["note"]
        if job.stream:
            return Streamed(self._stream(answer, texts, job, note), lambda: _end(texts, note))
        try:
            results = await _unless_gone(request, asyncio.gather(*(text.wait() for text in texts)))
        finally:
            _end(texts, note)
        # Thousands of tokens with alternatives take seconds to write.
        return await asyncio.to_thread(lambda: JSONResponse(answer.whole(results, job.before)))

    async def begin(self, prepared: Sequence[Prepared]) -> list[Text]:
        """Starts texts. Whoever prepared them has waited since the state and the room were looked at."""
        self.must_run()
        self.must_have_room(len(prepared))
        return await self.texts.start(prepared)

    def must_run(self) -> None:
        if self.state == "draining":
            raise Refused(503, "[serve] the server is stopping", {"Retry-After": "5"})

    def must_have_room(self, more: int) -> None:
        most = self.settings.most_texts
        if len(self.texts) + more > most:
            raise Refused(
                429,
                f"[serve] {len(self.texts)} requests are running or waiting, want at most {most}",
                {"Retry-After": "1"},
            )

    async def _stream(self, answer: Answer, texts: Sequence[Text], job: Job, note: Note) -> AsyncIterator[str]:
        try:
            async for index, events, first in _merged(texts):
                if first and job.before[index]:
                    yield answer.echo(index, job.before[index])
                result = texts[index].result if events is None else None
                yield answer.chunk(index, events or [], result, first)
            yield answer.last([text.result for text in texts], job.with_usage)
        except Exception as error:  # the answer has begun: its status cannot be changed
            yield f"data: {JSONResponse(note.refuse(error).body()).body.decode()}\n\n"

    async def drain(self, grace: float) -> None:
        """New requests are refused from now on. Returns once all texts have ended; those that have not after `grace`
        seconds fail."""
        loaded, self.state = self.state != "loading", "draining"
        if not (loaded and len(self.texts)):
            return
        _log.info("stopping: %d texts may end within %g s, new ones are refused", len(self.texts), grace)
        try:
            await asyncio.wait_for(self._idle(), grace)
        except asyncio.TimeoutError:
            _log.warning("stopping: %d texts did not end within %g s", len(self.texts), grace)
            self.texts.fail(Cancelled("[serve] the server ended before the text did"))
            await self._idle()

    async def _idle(self) -> None:
        while len(self.texts):
            await asyncio.sleep(0.05)


def _end(texts: Sequence[Text], note: Note) -> None:
    for text in texts:
        text.close()
    note.prompt_tokens += sum(text.prompt_tokens for text in texts)
    note.new_tokens += sum(text.new_tokens for text in texts)


async def _merged(texts: Sequence[Text]) -> AsyncIterator[tuple[int, list[Event] | None, bool]]:
    """(index, events or None at its end, whether they are its first) of all texts, as they come."""
    received: asyncio.Queue[Any] = asyncio.Queue()

    async def listen(index: int, text: Text) -> None:
        first = True
        try:
            async for events in text.batches():
                received.put_nowait((index, events, first))
                first = False
            received.put_nowait((index, None, first))
        except BaseException as error:
            received.put_nowait(error)

    listeners = [asyncio.create_task(listen(i, text)) for i, text in enumerate(texts)]
    try:
        left = len(texts)
        while left:
            found = await received.get()
            if isinstance(found, BaseException):
                raise found
            yield found
            left -= found[1] is None
    finally:
        for task in listeners:
            task.cancel()


async def _unless_gone(request: Request, work: Awaitable[Any]) -> Any:
    """The result of the work, unless the client leaves before."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=0.2)
            if not task.done() and await request.is_disconnected():
                raise Refused(499, "[serve] the client left")
        return task.result()
    finally:
        task.cancel()
        with suppress(BaseException):
            await task
