"""`swiftk serve` on a Ray cluster: replicas of a model behind one address. A text is the same whichever writes it.

    app = swiftk.serve.ray_app("model-dir", replicas=2)        # or replicas=(1, 8): as many as the queue asks for
    ray.serve.run(app)                                         # or `serve run MODULE:app`

A door takes requests in and hands each to a replica: requests that begin alike go to the same one, where their prefix
is cached, unless that one has many more under way than the others.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse
from ray import serve
from ray.exceptions import RayError
from ray.serve.config import AutoscalingConfig, RequestRouterConfig
from ray.serve.request_router import FIFOMixin, RequestRouter

from .. import api
from ..errors import InvalidArgument, SwiftkError
from .app import make_app
from .intake import Intake
from .refusals import Refused
from .settings import ServeSettings

_PREFIX = 256  # characters of a prompt by which requests are alike
_AHEAD = 8  # requests that a replica may have under way beyond the least busy one before others take what it has cached
_SKIPPED = ("host", "content-length", "transfer-encoding", "connection")  # headers of one hop


class PrefixRouter(FIFOMixin, RequestRouter):
    """Rendezvous hashing: a key's replicas in an order of their own, which stays as others come and go."""

    async def choose_replicas(self, candidate_replicas: list[Any], pending_request: Any = None) -> list[list[Any]]:
        key = (pending_request.kwargs.get("key") if pending_request else None) or ""
        order = sorted(candidate_replicas, key=lambda r: _weight(key, r.replica_id.to_full_id_str()))
        busy = {r.replica_id: self.replica_queue_len_cache.get(r.replica_id) or 0 for r in order}
        least = min(busy.values(), default=0)
        order.sort(key=lambda r: busy[r.replica_id] > least + _AHEAD)  # stable
        return [[replica] for replica in order]


def _weight(key: str, replica: str) -> bytes:
    return hashlib.blake2b(f"{key}\0{replica}".encode(), digest_size=8).digest()


class Replica:
    """A model and its routes, called from a door."""

    async def __init__(self, folder: str, settings: ServeSettings, load: Mapping[str, Any]) -> None:
        self._lm = await asyncio.to_thread(partial(api.load, folder, **load))
        self._app = make_app(self._lm, settings)

    async def check_health(self) -> None:
        if not self._app.state.server.texts.alive:
            raise SwiftkError("[serve] the engine's thread has ended")

    async def answer(self, scope: dict[str, Any], body: bytes, key: str = "") -> AsyncIterator[Any]:
        """(status, headers), then the body's pieces. Ray closes it when the client has left."""
        said: asyncio.Queue[Any] = asyncio.Queue()
        gone = asyncio.Event()
        asked = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if asked:
                return asked.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            said.put_nowait(message)

        async def run() -> None:
            try:
                await self._app(scope, receive, send)
            finally:
                said.put_nowait(None)

        running = asyncio.create_task(run())
        try:
            while (message := await said.get()) is not None:
                if message["type"] == "http.response.start":
                    yield message["status"], [(k.decode(), v.decode()) for k, v in message["headers"]]
                elif message.get("body"):
                    yield message["body"]
            await running
        finally:
            gone.set()
            with suppress(BaseException):
                await running


async def _closing(pieces: Any) -> AsyncIterator[bytes]:
    try:
        async for piece in pieces:
            yield piece
    finally:
        pieces.cancel()


def prefix_of(body: bytes) -> str:
    """What a request's text begins with; empty where it has none."""
    try:
        asked = json.loads(body or b"{}")
    except ValueError:
        return ""
    text = asked.get("messages") or asked.get("prompt") if isinstance(asked, dict) else ""
    return "" if text is None else (text if isinstance(text, str) else json.dumps(text))[:_PREFIX]


# Ray copies what the door's routes see when its class is made: all of it is above.
_door = FastAPI()


@serve.ingress(_door)
class Door:
    """Passes requests on, and answers back."""

    def __init__(self, replicas: Any, settings: ServeSettings) -> None:
        self._replicas, self._intake = replicas, Intake(settings)

    @_door.api_route("/{path:path}", methods=["GET", "HEAD", "POST"])
    async def pass_on(self, request: Request) -> Response:
        try:
            async with self._intake.body(request) as body:
                return await self._passed_on(request, bytes(body))
        except Refused as error:
            return error.response()

    async def _passed_on(self, request: Request, body: bytes) -> Response:
        headers = [(k, v) for k, v in request.headers.raw if k.decode() not in _SKIPPED]
        headers.append((b"content-length", str(len(body)).encode()))
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": request.method,
            "path": request.url.path,
            "raw_path": request.url.path.encode(),
            "query_string": request.url.query.encode(),
            "root_path": "",
            "headers": headers,
        }
        handle, key = self._replicas.options(stream=True), prefix_of(body)
        for _ in range(3):  # a replica that dies before it answers has said nothing: another one may
            pieces = handle.answer.remote(scope, body, key=key)
            try:
                status, reported = await pieces.__anext__()
                break
            except RayError:
                continue
        else:
            raise Refused(503, "[serve] no replica answers", {"Retry-After": "5"})
        kept = {k: v for k, v in reported if k.lower() not in _SKIPPED}
        return StreamingResponse(_closing(pieces), status, kept)


def ray_app(
    model_dir: str | Path,
    *,
    replicas: int | tuple[int, int] = 1,
    doors: int = 1,
    settings: ServeSettings | None = None,
    resources: Mapping[str, Any] | None = None,
    **load: Any,
) -> Any:
    """A Ray Serve application that answers as `swiftk serve` does.

    model_dir: a folder that every node has. replicas: how many, or (fewest, most), between which Ray chooses by how
    many requests each has under way. doors: replicas of what takes requests in; they hold no model. resources: what
    Ray reserves for a replica, as for its actors: {"num_cpus": 8}, {"num_gpus": 1}. load: options of swiftk.load().
    """
    low, high = replicas if isinstance(replicas, tuple) else (replicas, replicas)
    if not 1 <= low <= high:
        raise InvalidArgument(f"[ray_app] replicas is {replicas!r}, want a number of at least 1, or (fewest, most)")
    settings = settings or ServeSettings(names=(Path(model_dir).resolve().name,))
    together = load.get("max_sequences", 16)  # texts that step at a time: more wait
    scaling = AutoscalingConfig(min_replicas=low, max_replicas=high, target_ongoing_requests=together)
    replica = serve.deployment(Replica).options(
        name="Replica",
        max_ongoing_requests=settings.most_texts,
        ray_actor_options=dict(resources or {}),
        request_router_config=RequestRouterConfig(request_router_class=PrefixRouter),
        health_check_period_s=5,
        graceful_shutdown_timeout_s=60,
        **({"num_replicas": low} if low == high else {"autoscaling_config": scaling}),
    )
    door = serve.deployment(Door).options(
        name="Door", num_replicas=doors, max_ongoing_requests=1 << 14, ray_actor_options={"num_cpus": 0}
    )
    return door.bind(replica.bind(str(model_dir), settings, dict(load)), settings)
