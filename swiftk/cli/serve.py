"""swiftk serve: a model over HTTP, as OpenAI's clients speak to one."""

from __future__ import annotations

import socket
from typing import Annotated

import typer

from ..api import LM
from ..errors import InvalidArgument
from .common import Loading, ModelArgument, loads, open_model, out


@loads()
def command(
    model: ModelArgument,
    host: Annotated[
        str, typer.Option(help="Address to listen at. 0.0.0.0: all of this machine's addresses.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at. 0: any free port.")] = 8000,
    name: Annotated[str | None, typer.Option(help="Model name in the API. Default: the folder's name.")] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="SWIFTK_API_KEY", help="Key that clients must send. Default: none is needed.")
    ] = None,
    most_texts: Annotated[
        int, typer.Option(min=1, help="Maximum number of requests, running or waiting; more are refused (429).")
    ] = 256,
    most_tokens: Annotated[int | None, typer.Option(min=1, help="Maximum number of tokens in one answer.")] = None,
    *,
    loading: Loading,
) -> None:
    """Serve a model over HTTP, with OpenAI's API."""
    try:
        import uvicorn

        from ..serve.app import make_app
        from ..serve.settings import ServeSettings
    except ModuleNotFoundError as error:
        raise InvalidArgument(f"[serve] {error.name} is not installed, want: pip install 'swiftk[serve]'") from None
    listening = _listen(host, port)
    address, bound = listening.getsockname()[:2]

    def load() -> LM:
        lm = open_model(model, loading)
        out.print(
            f"{name or lm.folder.name}: {lm.model.weight_bytes / 1e6:.0f} MB of {lm.model.dtype} weights, "
            f"{lm.model.isa} kernels, {lm.model.threads} threads, context {lm.context}\n"
            f"http://{address}:{bound}/v1 (Ctrl-C ends it once all texts are done)",
            highlight=False,
        )
        return lm

    with listening:
        app = make_app(load, ServeSettings(name, api_key, most_texts, most_tokens))
        server, http = app.state.server, uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        server.give_up = lambda: setattr(http, "should_exit", True)
        http.run(sockets=[listening])
    if server.failed:
        raise server.failed
    server.lm.close()


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
