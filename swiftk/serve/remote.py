"""Texts that a client drafts for: one WebSocket each. swiftk/remote is the client; its frames.py: what is spoken."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from fastapi import WebSocket, WebSocketDisconnect

from ..api import LM, Prepared
from ..draft.draft_spec import DRAFTER_NAMES
from ..errors import InvalidArgument, SwiftkError
from ..options.fields import TextOptions, fewer, table
from ..options.generate_options import GenerateOptions
from ..remote import frames
from ..remote.features import Features, read_by
from ..running.result import Event, Result
from .guard import Note
from .intake import blame
from .settings import ServeSettings
from .texts import Text, Texts

_FEATURES = 32 << 10  # bytes of a frame: what is said next waits for so many, at most


class Server(Protocol):
    """Parts of the app that are needed here."""

    lm: LM
    texts: Texts
    settings: ServeSettings

    def must_run(self) -> None: ...
    async def begin(self, prepared: Sequence[Prepared]) -> list[Text]: ...


class Held:
    """A text, all that it said so far, and what is proposed for it; it outlives its line."""

    def __init__(
        self, text: Text, begun: Mapping[str, Any], features: Features | None = None, states: bool = False
    ) -> None:
        """begun: what its client is told of it first. features: that it asks for; states: all of the prompt's."""
        self.text, self.begun, self.features, self._states = text, begun, features, states
        self.events: list[Event] = []
        self.rows: list[bytes] = []  # features of the text's tokens
        self.result: Result | None = None
        self.failed: BaseException | None = None
        self.line: object = None  # that receives it, the last one
        self._at, self._proposal, self._is_tree = 0, list[int](), False
        self._grew = asyncio.Condition()
        self._receiving = asyncio.create_task(self._receive())

    async def _receive(self) -> None:
        try:
            async for events in self.text.batches():
                for event in events:
                    if self.features and event.features is not None:
                        self.rows += self.features.packed(event.features)
                    self.events.append(replace(event, features=None))
                await self.wake()
            self.result = self.text.result
        except BaseException as error:
            self.failed = error
        await self.wake()

    async def wake(self) -> None:
        async with self._grew:
            self._grew.notify_all()

    async def grown(self, said: int, known: int, line: object) -> None:
        """Until there is something to say after `said` tokens and `known` features, or another line is given."""

        def more() -> bool:
            return len(self.events) > said or len(self.rows) > known or self.line is not line

        async with self._grew:
            await self._grew.wait_for(lambda: more() or self.result or self.failed)

    def propose(self, at: int, tokens: list[int], parents: list[int] | None = None) -> None:
        self._is_tree, was_tree = parents is not None, self._is_tree
        if parents is not None:
            return self.text.propose(tokens, at, parents)
        kept = at - self._at
        if was_tree or not 0 <= kept <= len(self._proposal):
            self._at, self._proposal, kept = at, [], 0
        self._proposal[kept:] = tokens
        past = max(min(len(self.events) - self._at, len(self._proposal)), 0)
        self._at, self._proposal = self._at + past, self._proposal[past:]
        self.text.propose(self._proposal, self._at)

    def said_all(self, said: int, known: int) -> bool:
        """Whether a client that has so many tokens and features lacks nothing that it asked for."""
        whole = len(self.begun["prompt"]) if self._states else 0
        return len(self.events) == said and known >= min(whole, len(self.rows))

    def reported(self, said: int, known: int) -> dict[str, Any]:
        """Tokens after `said` and features after `known`, as a frame has them. Tokens do not wait for many
        features, as a long prompt has them."""
        new, rows = self.events[said:], self.rows[known:]
        proposed = [int(e.source == "host") for e in new]
        frame = {"at": said, "tokens": [e.token for e in new], "proposed": proposed, "texts": [e.text for e in new]}
        if rows:
            most = max(_FEATURES // len(rows[0]), 1)
            rows = [] if new and len(rows) > most else rows[:most]
        return {**frame, "first": known, "features": b"".join(rows)} if rows else frame

    def close(self) -> None:
        self.text.close()


def _sampling(o: GenerateOptions) -> dict[str, Any]:
    """The sampler that draws the text, for a client that proposes its draws. Fields that are off are left out, but for
    those of which the client's model may have other defaults."""
    reported = {name: (getattr(o, name), one.checkpoint) for name, one in table(TextOptions).items() if one.sampler}
    return {"seed": o.seed, **{name: value for name, (value, always) in reported.items() if value or always}}


class Remotes:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._held: dict[str, Held] = {}
        self._vocabulary: str | None = None
        self._reads: list[Features] | None = None

    async def serve(self, socket: WebSocket) -> None:
        """A line, from its first frame to where it ends or breaks."""
        await socket.accept()
        note: Note = socket.scope["note"]
        try:
            name, held, said, known = await self._first(socket)
            await held.wake()
            receiving = asyncio.create_task(self._receive(socket, held))
            try:
                if await self._report(socket, held, said, known):
                    self._drop(name)
            except SwiftkError:
                self._drop(name)
                raise
            finally:
                receiving.cancel()
                note.prompt_tokens, note.new_tokens = held.text.prompt_tokens, held.text.new_tokens
        except Exception as error:
            closed = isinstance(error, (WebSocketDisconnect, RuntimeError)) and not isinstance(error, SwiftkError)
            if not closed:  # RuntimeError is starlette's word for it
                refused = note.refuse(error)
                with suppress(WebSocketDisconnect, RuntimeError):
                    await socket.send_bytes(frames.pack("error", message=str(refused), status=refused.status))
        finally:
            for name in [name for name, held in self._held.items() if held.line is socket]:
                asyncio.get_running_loop().call_later(self._server.settings.kept, self._drop_if, name, socket)
        with suppress(WebSocketDisconnect, RuntimeError):
            await socket.close()

    async def _first(self, socket: WebSocket) -> tuple[str, Held, int, int]:
        """The text, how many new tokens of it the client has, and of how many of all of them their features."""
        while True:
            frame = await self._read(socket, "begin", "resume")
            if frame["version"] not in frames.VERSIONS:
                known = " or ".join(map(str, frames.VERSIONS))
                raise InvalidArgument(f"[remote] version is {frame['version']}, want {known}")
            if frame["op"] == "begin":
                name, said = await self._begin(frame), 0
                known = frame.get("features", {}).get("known", 0)
                break
            name, said, known = frame["id"], frame["at"], frame.get("known", 0)
            held = self._held.get(name)
            came = [e.token for e in held.events[:said]] if held else []
            if held and 0 <= said == len(came) and frames.digest(came) == frame["digest"]:
                break
            await socket.send_bytes(frames.pack("gone"))
        held = self._held[name]
        held.line = socket  # from here on nobody drops it for the line before
        if self._vocabulary is None:
            self._vocabulary = await asyncio.to_thread(frames.vocabulary, self._server.lm.tokenizer)
        await socket.send_bytes(frames.pack("begun", id=name, **held.begun, vocabulary=self._vocabulary))
        return name, held, said, known

    async def _begin(self, frame: Mapping[str, Any]) -> str:
        self._server.must_run()
        o, prepared, features = await asyncio.to_thread(blame, lambda: self._prepared(frame))
        (text,) = await self._server.begin(prepared)
        name, lm, prompt = secrets.token_hex(8), self._server.lm, prepared[0][0].tolist()
        ends = sorted({*o.stop_token_ids, *(() if o.ignore_eos else lm.defaults.eos_token_ids)})
        most = fewer(fewer(o.max_new_tokens, self._server.settings.most_tokens), lm.context - len(prompt))
        begun = {"prompt": prompt, "sampling": _sampling(o), "ends": ends, "most": most}
        self._held[name] = Held(text, begun, features, bool(frame.get("states")))
        return name

    def _prepared(self, frame: Mapping[str, Any]) -> tuple[GenerateOptions, list[Prepared], Features | None]:
        """On a thread: what a frame asks for."""
        lm, options = self._server.lm, dict(frame["options"])
        if options.get("seed") is None:
            options["seed"] = secrets.randbits(48)
        o = frames.options_of(options).filled(lm.defaults, 0)
        if self._server.settings.most_tokens is not None:
            options["max_new_tokens"] = fewer(o.max_new_tokens, self._server.settings.most_tokens)
        features, reported = None, dict[str, Any]()
        if "features" in frame:
            features = Features.parse(frame["features"])
            reported = {"features": DRAFTER_NAMES[features.among(self._heads())]}
        if frame.get("states"):
            reported |= {"max_new_tokens": 2, "ignore_eos": True}  # the fewest after which states are reported
        return o, lm.prepare([frame["prompt"]], [{**options, "drafter": "host", **reported}]), features

    def _heads(self) -> list[Features]:
        """Features that the loaded heads read."""
        if self._reads is None:
            lm = self._server.lm
            each = zip(lm.model.drafters, lm.model.reads, lm.drafters, strict=True)
            self._reads = [read_by(kind, *reads, folder) for kind, reads, folder in each]
        return self._reads

    async def _receive(self, socket: WebSocket, held: Held) -> None:
        try:
            while (frame := await self._read(socket, "propose", "cancel"))["op"] == "propose":
                held.propose(frame["at"], frame["tokens"], frame.get("parents"))
            held.close()
        except SwiftkError as error:
            held.failed = error
            await held.wake()
        except (WebSocketDisconnect, RuntimeError):
            pass

    async def _report(self, socket: WebSocket, held: Held, said: int, known: int) -> bool:
        """Tokens as rounds bring them. Whether all is said."""
        while True:
            await held.grown(said, known, socket)
            if held.line is not socket:
                return False
            if held.said_all(said, known):
                if held.failed:
                    raise held.failed
                if held.result:
                    await socket.send_bytes(frames.pack("end", reason=held.result.finish_reason))
                    return True
            reported = held.reported(said, known)
            await socket.send_bytes(frames.pack("tokens", **reported))
            said += len(reported["tokens"])
            known += len(reported.get("features", b"")) // (held.features.bytes if held.features else 1)

    async def _read(self, socket: WebSocket, *ops: str) -> dict[str, Any]:
        data, most = await socket.receive_bytes(), self._server.settings.most_bytes
        if len(data) > most:
            raise InvalidArgument(f"[remote] a frame has {len(data)} bytes, want at most {most}")
        return frames.unpack(data, *ops)

    def _drop_if(self, name: str, line: object) -> None:
        if name in self._held and self._held[name].line is line:
            self._drop(name)

    def _drop(self, name: str) -> None:
        if held := self._held.pop(name, None):
            held.close()
