"""Server-Sent Events, as the WHATWG's HTML standard reads them (section 9.2.6).

They are parsed here, so that `swiftk chat --url` needs no more than the base install. httpx-sse needs httpx, keeps a
byte order mark, and refuses streams whose content type is another one.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator

_END = re.compile(r"\r\n|\n|\r")


def lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Lines that have ended, of bytes as they come: UTF-8, which chunks may cut anywhere."""
    decode, rest, returned = codecs.getincrementaldecoder("utf-8-sig")("replace").decode, "", False
    for text in filter(None, map(decode, chunks)):
        rest += text.removeprefix("\n") if returned else text  # a chunk's last carriage return has ended its line
        returned = text.endswith("\r")
        *ended, rest = _END.split(rest)
        yield from ended


def events(chunks: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """(type, data) of each event. An event that the stream's end cuts off is none."""
    kind, data = "", []
    for line in lines(chunks):
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                yield kind or "message", "\n".join(data)
            kind, data = "", []
        elif name == "event":
            kind = value
        elif name == "data":
            data.append(value)
