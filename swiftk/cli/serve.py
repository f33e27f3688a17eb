"""swiftk serve: a model over HTTP, as OpenAI's clients speak to one."""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from typing import Annotated, Any

import typer

from ..api import LM
from ..errors import InvalidArgument
from .common import Loading, ModelArgument, loads, megabytes, open_model, out

_LEVELS = ("debug", "info", "warning", "error")


def _option(help: str, **how: Any) -> Any:
    return typer.Option(help=help, **how)


Host = Annotated[str, _option("Address to listen at. 0.0.0.0: all of this machine's addresses.")]
Port = Annotated[int, _option("Port to listen at. 0: any free port.", min=0, max=65535)]
Names = Annotated[list[str] | None, _option("Model name in the API. May be repeated. Default: the folder's name.")]
Key = Annotated[str | None, _option("Key that clients must send. Default: none is needed.", envvar="SWIFTK_API_KEY")]
MostTexts = Annotated[int, _option("Maximum number of requests, running or waiting; more are refused (429).", min=1)]
MostTokens = Annotated[int | None, _option("Maximum number of tokens in one answer. Default: the context's.", min=1)]
Origins = Annotated[
    list[str] | None,
    _option("Web page that browsers may call the API from, *: all. May be repeated.", metavar="ORIGIN"),
]
RootPath = Annotated[str, _option("Path under which a proxy serves the API.", metavar="PATH")]
KeepAlive = Annotated[int, _option("Seconds that an idle connection stays open.", min=1)]
Grace = Annotated[
    float,
    _option(
        "Seconds that running requests may take to end after SIGTERM or Ctrl-C. New requests are refused (503) "
        "meanwhile. A second signal stops the server at once.",
        min=0,
    ),
]
Level = Annotated[
    str, _option(f"{', '.join(_LEVELS[:-1])} or {_LEVELS[-1]}. info: a line per request, on stderr.", metavar="LEVEL")
]


@loads()
def command(
    model: ModelArgument,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    name: Names = None,
    api_key: Key = None,
    most_texts: MostTexts = 256,
    most_tokens: MostTokens = None,
    cors_origins: Origins = None,
    root_path: RootPath = "",
    keep_alive: KeepAlive = 75,
    grace: Grace = 25,
    log_level: Level = "info",
    *,
    loading: Loading,
) -> None:
    """Serve a model over HTTP, with OpenAI's API."""
    try:
        import uvicorn  # noqa: F401

        from ..serve.app import make_app
        from ..serve.running import Running
        from ..serve.settings import ServeSettings
    except ModuleNotFoundError as error:
        raise InvalidArgument(f"[serve] {error.name} is not installed, want: pip install 'swiftk[serve]'") from None
    _log_from(log_level)
    listening = _listen(host, port)
    address, bound = listening.getsockname()[:2]
    names = tuple(name or [Path(model).resolve().name])
    url = f"http://{f'[{address}]' if ':' in address else address}:{bound}{root_path}/v1"

    def load() -> LM:
        lm = open_model(model, loading)
        out.print(f"{', '.join(names)}: {needs(lm)}\n{url} (Ctrl-C ends it once all texts are done)", highlight=False)
        return lm

    settings = ServeSettings(
        names=names,
        api_key=api_key,
        most_texts=most_texts,
        most_tokens=most_tokens,
        grace=grace,
        cors_origins=tuple(cors_origins or ()),
        root_path=root_path,
    )
    with listening:
        app = make_app(load, settings)
        server = app.state.server
        http = Running(app, server, keep_alive)
        server.give_up = lambda: setattr(http, "should_exit", True)
        http.run(sockets=[listening])
    if server.failed:
        raise server.failed
    server.lm.close()


def needs(lm: LM) -> str:
    """The memory and threads that a model takes, in a line."""
    model, copies = lm.model, lm.model.copies
    memory = [f"{megabytes(model.weight_bytes)} of {model.dtype} weights"]
    memory += [f"{megabytes(sum(copies.values()))} of copies ({', '.join(copies)})"] if copies else []
    memory += [f"{megabytes(model.trimmed_bytes)} of a trimmed head"] if model.draft_tokens else []
    memory += [f"{megabytes(model.drafter_bytes)} of drafters ({', '.join(model.drafters)})"] if model.drafters else []
    memory += [f"at most {megabytes(lm.kv['bytes'])} of K and V"]
    where = f"{model.threads} threads" if model.device == "cpu" else model.device
    return f"{' + '.join(memory)}; {where}, {model.isa} kernels, context {lm.context}"


def _log_from(level: str) -> None:
    """Lines with the time, on stderr."""
    if level not in _LEVELS:
        raise InvalidArgument(f"[serve] --log-level is {level!r}, want {', '.join(_LEVELS[:-1])} or {_LEVELS[-1]}")
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", force=True)
    logging.getLogger("swiftk").setLevel(level.upper())


def _listen(host: str, port: int) -> socket.socket:
    """Before the model is loaded: a port that is taken shows at once."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(1024)
    except OSError as error:
        raise InvalidArgument(f"[serve] cannot listen at {host}:{port}: {error.strerror or error}") from None
    return listening
