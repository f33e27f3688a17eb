"""A server's model in the terminal: OpenAI's chat protocol, as `swiftk serve` and others speak it."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Mapping, Sequence
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from ..errors import InvalidArgument

_CONNECT = 30  # seconds without an answer


class Remote:
    """url: up to /v1, which may be left out."""

    def __init__(self, url: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidArgument(f"[chat] --url is {url!r}, want http://HOST:PORT or https://...")
        self._base = url.rstrip("/").removesuffix("/v1") + "/v1"
        with self._open("models") as answer:
            listed = json.loads(answer.read()).get("data") or []
        if not listed:
            raise InvalidArgument(f"[chat] {self._base} serves no model")
        self.model = listed[0]["id"]

    def chat(self, messages: Sequence[Mapping[str, str]], options: Mapping[str, Any]) -> Generator[str, None, None]:
        """Pieces of the answer, as they come. options: OpenAI's. Closing it ends the text there."""
        asked = {"model": self.model, "messages": list(messages), "stream": True, **options}
        with self._open("chat/completions", asked) as answer:
            for line in answer:
                data = line.decode().strip().removeprefix("data: ")
                if not data or data == "[DONE]":
                    continue
                told = json.loads(data)
                if "error" in told:
                    raise InvalidArgument(f"[chat] {self._base}: {told['error'].get('message')}")
                for choice in told["choices"]:
                    yield choice["delta"].get("content") or ""

    def _open(self, path: str, asked: Mapping[str, Any] | None = None) -> Any:
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get("SWIFTK_API_KEY"):
            headers["Authorization"] = f"Bearer {key}"
        data = None if asked is None else json.dumps(asked).encode()
        try:
            return urlopen(Request(f"{self._base}/{path}", data, headers), timeout=_CONNECT)
        except HTTPError as error:
            raise InvalidArgument(f"[chat] {self._base} answers {error.code}: {_message(error.read())}") from None
        except (URLError, OSError) as error:
            raise InvalidArgument(f"[chat] {self._base} does not answer: {getattr(error, 'reason', error)}") from None


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")[:200]
