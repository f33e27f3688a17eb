"""Errors as OpenAI's clients read them."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any

from fastapi.responses import JSONResponse
from pydantic import ValidationError

from .. import errors

STATUS = {errors.InvalidArgument: 400, errors.OutOfMemory: 503, errors.Cancelled: 503}  # others: 500
_LONGEST = 2000  # characters of a message, which may quote a request
_PATH = re.compile(r"(?<![\w./:])(?:/[^\s/:'\"]+)+/([^\s/:'\"]+)")
_TYPES = {429: "requests"}
_CODES = {401: "invalid_api_key", 405: "method_not_supported", 429: "rate_limit_exceeded"}
_INVALID = {  # pydantic's kinds of errors, as OpenAI has them
    "missing": "missing_required_parameter",
    "extra_forbidden": "unknown_parameter",
    "too_short": "empty_array",
    "refused": "unsupported_parameter",
}


class Refused(Exception):
    """A request that is answered with an error. param: the field that is wrong; code: what programs look at."""

    def __init__(
        self,
        status: int,
        message: str,
        headers: dict[str, str] | None = None,
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.headers, self.param, self.code = status, headers, param, code

    def response(self) -> JSONResponse:
        return JSONResponse(self.body(), self.status, self.headers)

    def body(self) -> dict[str, Any]:
        return error_body(str(self), self.status, self.param, self.code)


def error_body(message: str, status: int, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """OpenAI's error object, whose message is one line."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    found = {"message": one_line(message), "type": kind, "param": param, "code": code or _CODES.get(status)}
    return {"error": found}


def one_line(message: str) -> str:
    """Also fit to be sent: a request may bring halves of surrogate pairs."""
    line = " ".join(message[: 2 * _LONGEST].split()).encode(errors="backslashreplace").decode()
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "..."


def without_paths(message: str) -> str:
    """With the last part of each absolute path alone: where files of the server lie is nobody's business."""
    return _PATH.sub(r"\1", message)


def status_of(error: BaseException) -> int:
    return next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)


def refusal_of(error: errors.SwiftkError, fields: Container[str] = ()) -> Refused:
    """The answer to an error of the engine. fields: names of the request's fields."""
    named = re.match(r"\[\w+\] (\w+)(?:=| is | has )", str(error))
    param = named[1] if named and named[1] in fields else None
    code = "context_length_exceeded" if isinstance(error, errors.ContextExceeded) else None
    if code:
        param = next((name for name in ("messages", "prompt") if name in fields), None)
    return Refused(status_of(error), without_paths(str(error)), param=param, code=code)


def malformed(error: ValidationError) -> Refused:
    """Names the first field that is wrong."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    raised = (first.get("ctx") or {}).get("error")
    said = str(raised) if isinstance(raised, errors.SwiftkError) else f"[serve] {where or 'body'}: {first['msg']}"
    kind = first["type"]
    typed = "invalid_type" if kind.endswith(("_type", "_parsing")) else "invalid_value"
    return Refused(400, said, param=where or None, code=_INVALID.get(kind, typed))
