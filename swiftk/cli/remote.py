"""A server's model in a chat: OpenAI's protocol, as `swiftk serve` and others speak it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from itertools import chain
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from ..errors import InvalidArgument
from ..options.fields import TO_THE_END, table
from ..options.generate_options import GenerateOptions
from . import sse
from .conversation import PROMPTS, ContextFull, Message, Piece
from .terminal import plain

_CONNECT, _SILENCE = 30, 600  # seconds without an answer: to begin with, and later
# Options and their names in the protocol.
_SENT = {name: name for name, one in table(GenerateOptions).items() if "chat" in one.http and name not in PROMPTS}
_SENT |= {"max_new_tokens": "max_completion_tokens", "response_format": "response_format"}
_MOST = 300  # characters of an error
_CHUNK = 1 << 16


class Remote:
    """One model of a server. url: as OpenAI's clients take it; /v1 may be left out. model: its name there; None: the
    first one that the server lists."""

    def __init__(self, url: str, model: str | None = None, key: str | None = None) -> None:
        if not re.match(r"https?://[^/]", url):
            raise InvalidArgument(f"[chat] --url is {url!r}, want http://HOST:PORT or https://...")
        base = url.rstrip("/").removesuffix("/chat/completions")
        self._base = base if re.search(r"[^/]/v\d", base) else f"{base}/v1"
        self._key = key
        listed = [] if model else self._listed()
        self.name: str = model or listed[0]["id"]
        context = listed[0].get("max_model_len") if listed else None
        self.about = f"{self.name} at {self._base}" + (f", context {context} tokens" if context else "")
        others = ", ".join(one["id"] for one in listed[1:])
        self.note = f"the server has other models, too, which --model names: {others}" if others else ""

    @property
    def options(self) -> Sequence[str]:
        return tuple(_SENT)

    def greedy(self, options: Mapping[str, Any]) -> bool:
        return GenerateOptions.parse(options).temperature == 0

    def answer(self, messages: Sequence[Message], options: Mapping[str, Any]) -> Iterator[Piece]:
        """Pieces of the answer, as they come. Closing it ends the answer there."""
        asked = {"model": self.name, "messages": list(messages), "stream": True}
        asked |= {_SENT[name]: value for name, value in options.items()}
        if options.get("max_new_tokens") == TO_THE_END:  # where the protocol says nothing
            del asked[_SENT["max_new_tokens"]]
        ended = None
        with self._open("chat/completions", asked, _SILENCE) as response:
            for reported in _objects(response):
                self._check(reported)
                for choice in _mappings(reported.get("choices")):
                    said = choice.get("delta") or choice.get("message")
                    yield from _pieces(said if isinstance(said, Mapping) else choice)
                    ended = choice.get("finish_reason") or ended
        if ended in ("length", "content_filter"):
            yield Piece("note", f"the server ended the answer early: {ended}")

    def _listed(self) -> list[Mapping[str, Any]]:
        try:
            with self._open("models", None, _CONNECT) as answer:
                found = _parsed(answer.read().decode(errors="replace"), [])
        except Refusal as error:
            if error.status not in (404, 405, 501):
                raise
            found = []
        listed = found.get("data") if isinstance(found, Mapping) else found
        named = [one for one in _mappings(listed) if isinstance(one.get("id"), str)]
        if not named:
            raise InvalidArgument(f"[chat] {self._base} lists no models: --model NAME says which one to ask for")
        return named

    def _check(self, reported: Any) -> None:
        """An error in place of an answer, or in the middle of it."""
        if not isinstance(reported, Mapping):
            raise InvalidArgument(f"[chat] {self._base} sends {json.dumps(reported)[:_MOST]}, want an object")
        if reported.get("error") or reported.get("object") == "error":
            raise _refusal(f"[chat] {self._base} ended the answer: {message(reported)}", json.dumps(reported))

    @contextmanager
    def _open(self, path: str, asked: Mapping[str, Any] | None, patience: int) -> Iterator[Any]:
        data = None if asked is None else json.dumps(asked).encode()
        request = Request(f"{self._base}/{path}", data, {"Content-Type": "application/json"})
        if self._key:
            request.add_unredirected_header("Authorization", f"Bearer {self._key}")
        failed = "does not answer"
        try:
            with urlopen(request, timeout=patience) as answer:
                failed = "broke off"
                yield answer
        except HTTPError as error:
            with error:
                body = _body(error)
            why = "" if body.lstrip().startswith("<") else message(_parsed(body, body))  # a page is for browsers
            raise _refusal(
                f"[chat] {self._base} answers {error.code}: {why or error.reason}", body, error.code
            ) from None
        except (URLError, HTTPException, OSError) as error:
            why = getattr(error, "reason", error) or type(error).__name__
            raise InvalidArgument(f"[chat] {self._base} {failed}: {why}") from None


class Refusal(InvalidArgument):
    """A server's error, with its HTTP status."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


def message(reported: Any) -> str:
    """The message of an error, in whichever form: OpenAI's object, a text, FastAPI's `detail`, ..."""
    while isinstance(reported, Mapping):
        inner = next((reported[name] for name in ("error", "message", "detail") if reported.get(name)), None)
        if inner is None:
            break
        reported = inner
    return plain(" ".join((reported if isinstance(reported, str) else json.dumps(reported)).split()))[:_MOST]


def _refusal(text: str, reported: str, status: int = 400) -> InvalidArgument:
    """The error of what a server reported. Servers agree on no code for a full context, and all name it."""
    full = status in (400, 413, 422) and "context" in reported.lower()
    return ContextFull(text) if full else Refusal(text, status)


def _body(error: HTTPError) -> str:
    try:
        return error.read().decode(errors="replace")
    except (HTTPException, OSError):
        return ""


def _objects(response: Any) -> Iterator[Any]:
    """JSON of each event, up to the end that the protocol marks; or of the one answer of a server that does not
    stream."""
    first = response.read1(_CHUNK)
    start = first.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start in (b"{", b"["):
        yield _parsed((first + response.read()).decode("utf-8-sig", "replace"))
        return
    if start == b"<":
        raise InvalidArgument(f"[chat] {response.url} is a page for browsers, want a server of OpenAI's protocol")
    for kind, data in sse.events(chain([first], iter(lambda: response.read1(_CHUNK), b""))):
        if data.strip() == "[DONE]":
            return
        if kind == "error":
            yield {"error": _parsed(data, data)}
        else:  # events of other names are other people's: what is no JSON there is passed over
            yield _parsed(data, None if kind == "message" else {})


def _parsed(data: str, or_else: Any = None) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        if or_else is None:
            raise InvalidArgument(f"[chat] the server sends what is no JSON: {message(data)}") from None
        return or_else


def _mappings(found: Any) -> list[Mapping[str, Any]]:
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _pieces(said: Mapping[str, Any]) -> Iterator[Piece]:
    """Text of a delta, a message, or a completion's choice."""
    for kind, names in (("thought", ("reasoning_content", "reasoning")), ("text", ("content", "refusal", "text"))):
        for name in names:
            if text := _text(said.get(name)):
                yield Piece(kind, text)
                break


def _text(content: Any) -> str:
    """Text of a content: text, parts of type text, or nothing."""
    if isinstance(content, list):
        return "".join(_text(part.get("text")) for part in _mappings(content))
    return content if isinstance(content, str) else ""
