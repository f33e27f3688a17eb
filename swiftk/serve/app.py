"""The routes: OpenAI's completions and chat, and what operators ask."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI, Request, WebSocket
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.datastructures import Headers

from .. import __version__
from ..api import LM
from ..errors import InvalidArgument, SwiftkError
from ..remote.frames import PATH
from ..result import Event, Result
from .answers import Answer
from .metrics import Metrics
from .page import page
from .protocol import ChatRequest, CompletionRequest, Refused, error_body, status_of
from .protocol import Request as Asked
from .remote import Remotes
from .settings import ServeSettings
from .texts import Text, Texts
from .tools import Tools

_log = logging.getLogger("swiftk")
_OPEN = ("/", "/health", "/metrics", "/version")  # paths that need no key


class Server:
    """A model, once it is there, its texts, and what is counted of them."""

    lm: LM
    texts: Texts
    name: str

    def __init__(self, settings: ServeSettings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.began = int(time.time())
        self.state = "loading"  # then "ok", then "draining"
        self.failed: BaseException | None = None  # loading did
        self.give_up: Callable[[], Any] = lambda: None
        self._numbers = itertools.count(1)
        self.remotes = Remotes(self)

    def open(self, lm: LM) -> None:
        self.lm, self.texts = lm, Texts(lm)
        self.name = self.settings.name or lm.folder.name
        self.metrics.watch(self.texts)
        self.state = "ok"

    async def complete(self, request: Request, asked: CompletionRequest) -> Response:
        prompts = asked.prompts()
        if asked.stream and len(prompts) > 1:
            raise InvalidArgument(f"[serve] stream with {len(prompts)} prompts is not supported, want one prompt")
        if asked.stream and asked.echo and asked.logprobs is not None:
            raise InvalidArgument("[serve] stream with echo and logprobs is not supported, want one of them less")
        echoes = [(p if isinstance(p, str) else self.lm.decode(p)) if asked.echo else "" for p in prompts]
        return await self._answer(request, asked, prompts, echoes, asked.logprobs, False)

    async def chat(self, request: Request, asked: ChatRequest) -> Response:
        logprobs = (asked.top_logprobs or 0) if asked.logprobs else None
        messages: Any = asked.plain_messages()
        tools = Tools.of(asked.tools, asked.tool_choice, self.lm.tokenizer.template(True))
        if tools:
            messages = await asyncio.to_thread(self.lm.tokenizer.encode_chat, messages, tools.offered)
            if tools.wanted and asked.response_format is None:
                asked = asked.model_copy(update={"response_format": tools.spelling.grammar(tools.wanted)})
        return await self._answer(request, asked, [messages], [""], logprobs, True, tools)

    async def _answer(
        self,
        request: Request,
        asked: Asked,
        prompts: Sequence[Any],
        echoes: Sequence[str],
        logprobs: int | None,
        chat: bool,
        tools: Tools | None = None,
    ) -> Response:
        if asked.model not in (None, self.name):
            raise Refused(404, f"[serve] model is {asked.model!r}, want {self.name!r}")
        options = asked.options(self.settings.most_tokens, logprobs)
        self.admit(len(prompts) * len(options))
        texts: list[Text] = []
        try:
            for prompt in prompts:
                texts += await self.texts.submit(prompt, options)
        except BaseException:
            _close(texts)
            raise
        answer = Answer(self.lm, str(next(self._numbers)), int(time.time()), self.name, chat, logprobs, tools)
        answer.sources = asked.streamed.include_sources
        before = [echo for echo in echoes for _ in options]
        if asked.stream:
            lines = self._stream(answer, texts, before, asked.streamed.include_usage)
            return StreamingResponse(lines, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        try:
            results = await _unless_gone(request, asyncio.gather(*(text.wait() for text in texts)))
        finally:
            _close(texts)
        self.count(results)
        return JSONResponse(answer.whole(results, before))

    def admit(self, more: int) -> None:
        if self.state == "draining":
            raise Refused(503, "[serve] the server is about to end", {"Retry-After": "5"})
        most = self.settings.most_texts
        if len(self.texts) + more > most:
            raise Refused(429, f"[serve] {len(self.texts)} texts are under way, at most {most}", {"Retry-After": "1"})

    async def _stream(
        self, answer: Answer, texts: Sequence[Text], before: Sequence[str], with_usage: bool
    ) -> AsyncIterator[str]:
        try:
            async for index, events, first in _merged(texts):
                if first and before[index]:
                    yield answer.chunk(index, [Event(before[index], 0, False)])
                result = texts[index].result if events is None else None
                yield answer.chunk(index, events or [], result, first)
            results = [text.result for text in texts]
            self.count(results)
            yield answer.last(results, with_usage)
        except SwiftkError as error:  # the answer has begun: its status cannot be changed
            yield f"data: {JSONResponse(error_body(str(error), status_of(error))).body.decode()}\n\n"
        finally:
            _close(texts)

    def count(self, results: Sequence[Result]) -> None:
        for result in results:
            self.metrics.ended(result)

    async def drain(self) -> None:
        """New requests are refused; ends once all texts have."""
        loaded, self.state = self.state != "loading", "draining"
        while loaded and len(self.texts):
            await asyncio.sleep(0.05)


def _close(texts: Sequence[Text]) -> None:
    for text in texts:
        text.close()


async def _merged(texts: Sequence[Text]) -> AsyncIterator[tuple[int, list[Event] | None, bool]]:
    """(index, events or None at its end, whether they are its first) of all texts, as they come."""
    heard: asyncio.Queue[Any] = asyncio.Queue()

    async def listen(index: int, text: Text) -> None:
        first = True
        try:
            async for events in text.batches():
                heard.put_nowait((index, events, first))
                first = False
            heard.put_nowait((index, None, first))
        except BaseException as error:
            heard.put_nowait(error)

    listeners = [asyncio.create_task(listen(i, text)) for i, text in enumerate(texts)]
    try:
        left = len(texts)
        while left:
            found = await heard.get()
            if isinstance(found, BaseException):
                raise found
            yield found
            left -= found[1] is None
    finally:
        for task in listeners:
            task.cancel()


async def _unless_gone(request: Request, work: Awaitable[Any]) -> Any:
    """What the work gives, unless the client leaves before."""
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


def make_app(model: LM | Callable[[], LM], settings: ServeSettings | None = None) -> FastAPI:
    """An ASGI app around a model, which stays the caller's; or around what loads one once the app runs: until then
    /health and all others answer 503. `app.state.server` drains before it ends; what loading raises is its `failed`,
    and then it calls its `give_up`, which is the caller's."""
    server = Server(settings or ServeSettings())
    if isinstance(model, LM):
        server.open(model)

    async def loaded() -> None:
        try:
            server.open(await asyncio.to_thread(model))
        except BaseException as error:
            server.failed = error
            server.give_up()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        loading = asyncio.create_task(loaded()) if server.state == "loading" else None
        yield
        await server.drain()
        if loading:
            await loading
        if not server.failed:
            await asyncio.to_thread(server.texts.close)

    app = FastAPI(title="swiftk", version=__version__, lifespan=lifespan)
    app.state.server = server
    _add_guards(app, server)
    _add_routes(app, server)
    return app


class Guard:
    """Keys, sizes and whether there is a model, before a body is read. Plain ASGI: what wraps requests hides that a
    client has left."""

    def __init__(self, app: Any, server: Server) -> None:
        self._app, self._server = app, server

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        refusal = self._refusal(scope) if scope["type"] in ("http", "websocket") else None
        if refusal and scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "refused"})  # before it opens: HTTP 403
            return
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Any) -> Response | None:
        headers = Headers(scope=scope)
        key, most = self._server.settings.api_key, self._server.settings.most_bytes
        given = headers.get("authorization", "").removeprefix("Bearer ")
        if key and scope["path"] not in _OPEN and not hmac.compare_digest(given.encode(), key.encode()):
            return _refusal(401, "[serve] the API key is missing or wrong (Authorization: Bearer KEY)")
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > most:
            return _refusal(413, f"[serve] the body has {length} bytes, want at most {most}")
        if self._server.state == "loading" and scope["path"] not in _OPEN:
            return _refusal(503, "[serve] the model is being loaded", {"Retry-After": "5"})
        return None


def _add_guards(app: FastAPI, server: Server) -> None:
    """Errors as OpenAI has them."""

    app.add_middleware(Guard, server=server)

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> Response:
        return _refusal(error.status, str(error), error.headers)

    @app.exception_handler(SwiftkError)
    async def typed(_: Request, error: SwiftkError) -> Response:
        if status_of(error) >= 500:
            _log.error("a request failed: %s", error)
        return _refusal(status_of(error), str(error))

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "body"
        body = error_body(f"[serve] {where}: {first['msg']}", 400, where)
        return JSONResponse(body, 400)


def _refusal(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse(error_body(message, status), status, headers)


def _add_routes(app: FastAPI, server: Server) -> None:
    @app.post("/v1/completions")
    async def completions(request: Request, asked: CompletionRequest) -> Response:
        return await server.complete(request, asked)

    @app.post("/v1/chat/completions")
    async def chat(request: Request, asked: ChatRequest) -> Response:
        return await server.chat(request, asked)

    @app.websocket(PATH)
    async def remote(socket: WebSocket) -> None:
        await server.remotes.serve(socket)

    @app.get("/v1/models")
    async def models() -> Any:
        lm = server.lm
        one = {"id": server.name, "object": "model", "created": server.began, "owned_by": "swiftk"}
        return {"object": "list", "data": [{**one, "max_model_len": lm.context}]}

    @app.get("/")
    async def try_it() -> Response:
        return HTMLResponse(page())

    @app.get("/health")
    async def health() -> Response:
        return PlainTextResponse(server.state, 200 if server.state == "ok" else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return PlainTextResponse(server.metrics.page())

    @app.get("/version")
    async def version() -> Any:
        return {"version": __version__}

    @app.post("/tokenize")
    async def tokenize(asked: dict[str, Any]) -> Any:
        text = asked.get("prompt")
        if not isinstance(text, str):
            raise InvalidArgument('[serve] "prompt" is missing or no text')
        ids = server.lm.encode(text)
        return {"tokens": ids, "count": len(ids), "max_model_len": server.lm.context}

    @app.post("/detokenize")
    async def detokenize(asked: dict[str, Any]) -> Any:
        return {"prompt": server.lm.decode(asked.get("tokens", []))}
