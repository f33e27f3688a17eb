"""The routes: OpenAI's completions and chat, and what operators ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, WebSocket
from fastapi.responses import HTMLResponse, PlainTextResponse, Response
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from .. import __version__
from ..api import LM
from ..errors import SwiftkError
from ..remote.frames import PATH
from .guard import Guard
from .job import no_model
from .page import page
from .protocol import ChatRequest, CompletionRequest
from .refusals import Refused
from .server import Server
from .settings import ServeSettings
from .tokenize import DetokenizeRequest, TokenizeRequest, detokenized, tokenized


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
        await server.drain(server.settings.grace)
        if loading:
            await loading
        if not server.failed:
            await asyncio.to_thread(server.texts.close)

    app = FastAPI(title="swiftk", version=__version__, lifespan=lifespan, redirect_slashes=False)
    app.state.server = server
    _add_guards(app, server)
    _add_routes(app, server)
    _add_questions(app, server)
    _describe(app)
    return app


def _add_guards(app: FastAPI, server: Server) -> None:
    """Errors as OpenAI has them."""
    app.add_middleware(Guard, settings=server.settings, state=lambda: server.state, metrics=server.metrics)
    if server.settings.cors_origins:  # outside: answers of the guard have its headers, too
        app.add_middleware(
            CORSMiddleware,
            allow_origins=server.settings.cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["X-Request-Id", "Retry-After"],
        )

    @app.exception_handler(Refused)
    @app.exception_handler(SwiftkError)
    async def refused(request: Request, error: Refused | SwiftkError) -> Response:
        return request.scope["note"].refuse(error).response()

    @app.exception_handler(HTTPException)
    async def no_route(request: Request, error: HTTPException) -> Response:
        asked = f"{request.method} {request.url.path}"
        words = {404: f"unknown URL ({asked})", 405: f"{asked} is not possible"}
        said = words.get(error.status_code, str(error.detail))
        headers = dict(error.headers or {})
        if "Allow" in headers:
            said += f", want {headers['Allow']}"
        return await refused(request, Refused(error.status_code, f"[serve] {said}", headers))


def _body_of(kind: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI entry for a body, which Intake reads."""
    schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


class Error(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorResponse(BaseModel):
    error: Error


_BODIES = (CompletionRequest, ChatRequest, TokenizeRequest, DetokenizeRequest, ErrorResponse)


def _describe(app: FastAPI) -> None:
    """The OpenAPI document has the schemas of bodies, and errors as they are."""
    plain = app.openapi
    schema = {"$ref": "#/components/schemas/ErrorResponse"}
    failed = {"description": "An error", "content": {"application/json": {"schema": schema}}}

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = plain()
            kinds: Any = [(kind, "validation") for kind in _BODIES]
            _, schemas = models_json_schema(kinds, ref_template="#/components/schemas/{model}")
            found["components"] = {"schemas": schemas["$defs"]}
            for operation in (one for path in found["paths"].values() for one in path.values()):
                operation["responses"].pop("422", None)  # fastapi's own form, which is not used
                operation["responses"] |= {"4XX": failed, "5XX": failed}
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]


def _add_routes(app: FastAPI, server: Server) -> None:
    """Routes that take a body."""

    @app.post("/v1/completions", openapi_extra=_body_of(CompletionRequest))
    async def completions(request: Request) -> Response:
        return await server.answer(request, CompletionRequest, server.jobs.completion)

    @app.post("/v1/chat/completions", openapi_extra=_body_of(ChatRequest))
    async def chat(request: Request) -> Response:
        return await server.answer(request, ChatRequest, server.jobs.chat)

    @app.post("/tokenize", openapi_extra=_body_of(TokenizeRequest))
    async def tokenize(request: Request) -> Any:
        return await server.intake.take(request, TokenizeRequest, lambda asked: tokenized(server.lm, asked))

    @app.post("/detokenize", openapi_extra=_body_of(DetokenizeRequest))
    async def detokenize(request: Request) -> Any:
        return await server.intake.take(request, DetokenizeRequest, lambda asked: detokenized(server.lm, asked))

    @app.websocket(PATH)
    async def remote(socket: WebSocket) -> None:
        await server.remotes.serve(socket)


def _add_questions(app: FastAPI, server: Server) -> None:
    """Routes that only report."""

    def card(name: str) -> dict[str, Any]:
        one = {"id": name, "object": "model", "created": server.began, "owned_by": "swiftk"}
        return {**one, "max_model_len": server.lm.context, "chat_template": server.lm.tokenizer.has_template}

    @app.get("/v1/models")
    async def models() -> Any:
        return {"object": "list", "data": [card(name) for name in server.names]}

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> Any:
        if name not in server.names:
            raise no_model(name, server.names)
        return card(name)

    @app.get("/")
    async def try_it() -> Response:
        return HTMLResponse(page())

    @app.get("/health")
    async def health() -> Response:
        state = server.state if server.state == "loading" or server.texts.alive else "failed"
        return PlainTextResponse(state, 200 if state == "ok" else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return PlainTextResponse(server.metrics.page())

    @app.get("/version")
    async def version() -> Any:
        return {"version": __version__}
