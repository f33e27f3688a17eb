"""A text on its way: events as they are committed, the Result at its end. Two ways to get there: a native engine that
steps it among others, or the loop in Python, for policies that live there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from time import perf_counter
from typing import Any, Protocol

from . import errors
from .cost import Round
from .decoding import Parts, decode
from .engine import Ticket
from .errors import Cancelled, InvalidArgument
from .result import Event, Result
from .skip import SkipSet
from .sources import NAMES
from .trace import TracedRound
from .transcript import Transcript


class Source(Protocol):
    """Where a stream's events come from."""

    def more(self) -> list[Event]:
        """Waits for the next ones. None: the text has ended."""

    def result(self) -> Result:
        """Of what came, once it has ended."""

    def cancel(self) -> None:
        """From any thread: the text ends behind what it has by then. No error if it has ended."""

    def drop(self) -> None:
        """Nobody reads on. No error if it has ended."""


class Stream:
    """Events of a text, in order. Any number may be open at once, each read by one thread at a time; one that is
    dropped is cancelled."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._ready: deque[Event] = deque()
        self._result: Result | None = None

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Event:
        while not self._ready:
            if self._result is not None:
                raise StopIteration
            self._read()
        return self._ready.popleft()

    def _read(self) -> None:
        try:
            events = self._source.more()
            if events:
                self._ready.extend(events)
            else:
                self._result = self._source.result()
        except BaseException:
            self._source.drop()
            raise

    def wait(self) -> Result:
        """Reads to the end."""
        for _ in self:
            pass
        return self.result

    def cancel(self) -> None:
        """From any thread. The text ends behind what was committed; finish_reason is "cancelled"."""
        self._source.cancel()

    def close(self) -> None:
        """Cancels the text; its result is what came until then."""
        if self._result is None:
            self._source.drop()
            self._ready.clear()
            self._result = self._source.result()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(AttributeError):  # __init__ did not run to its end
            if self._result is None:
                self._source.drop()

    @property
    def result(self) -> Result:
        """The finished text; an error before the last event was read."""
        if self._result is None:
            raise InvalidArgument("[stream] the text is not finished; read all events first")
        return self._result


class Planned:
    """By an engine, whose planner decides what to draft."""

    def __init__(
        self,
        ticket: Ticket,
        text: Transcript,
        finish: Callable[[], Result],
        spell: Callable[[int], str] | None = None,
    ) -> None:
        """spell: tokens, where rounds are to be explained."""
        self._ticket, self._text, self._finish, self._spell = ticket, text, finish, spell
        self._began = perf_counter()

    def more(self) -> list[Event]:
        text = self._text
        if text.stopper.finish is not None:
            return []
        turn = self._ticket.hear()
        if turn.error is not None:
            name, message = turn.error
            raise getattr(errors, name)(message)
        before, events = len(text.events), []
        for emitted in turn.tokens:
            events.append(text.add(emitted))
            if text.stopper.finish is not None:
                break
        if before == 0 and events:
            self._first(turn)
        elif events:
            self._round(turn, events)
        if text.stopper.finish is None and turn.finish == "cancelled":
            text.stopper.cancel()
        elif text.stopper.finish is not None:
            self._ticket.drop()  # a stop string, of which the engine knows nothing
        return events or self.more()

    def _first(self, turn: Any) -> None:
        recorder = self._text.recorder
        recorder.cached, recorder.generated = turn.cached, 1
        recorder.prefill = recorder.first_token = perf_counter() - self._began

    def _round(self, turn: Any, events: Sequence[Event]) -> None:
        recorder = self._text.recorder
        by = [event.source for event in events if event.source]
        cut = turn.cut or len(events) < len(turn.tokens)
        phases = {
            "draft": turn.draft,
            "verify": turn.verify,
            "commit": 0.0,
            "draft_steps": turn.steps,
            "drafted": turn.drafted,
            "proposed": turn.proposed,
            "reused_rows": 0,
            "reused_share": 0.0,
            "saved_weight_bytes": 0,
        }
        recorder.round(phases, turn.nodes, by, len(events), cut)
        recorder.decode += turn.seconds
        recorder.run += turn.run
        guessed = sum(source != "plan" for source in by)
        tree = Round(turn.seconds, turn.draft, turn.steps, turn.verify, turn.nodes, len(events), len(by), guessed)
        why = explain(turn, self._ticket.engine.explained, self._spell) if self._spell else ""
        recorder.rounds.append(TracedRound(tree, _skip(turn.plan) if turn.plan else None, recorder.decode, why))

    def result(self) -> Result:
        return self._finish()

    def cancel(self) -> None:
        self._ticket.cancel()

    def drop(self) -> None:
        self._ticket.drop()
        self._text.stopper.cancel()


class Directed:
    """By the loop in Python, on a session of its own."""

    def __init__(
        self, session: Any, prompt: Sequence[int], parts: Parts, finish: Callable[[], Result], leave: Callable[[], None]
    ) -> None:
        """finish: makes the result; leave: gives back what the text had to itself."""
        self._session, self._parts, self._finish = session, parts, finish
        self._leave: Callable[[], None] | None = leave
        self._events: Iterator[Event] = decode(session, prompt, parts)

    def more(self) -> list[Event]:
        try:
            return [next(self._events)]
        except StopIteration:
            return []
        except Cancelled:
            self._parts.text.stopper.cancel()
            return []

    def result(self) -> Result:
        result = self._finish()
        self.drop()
        return result

    def cancel(self) -> None:
        if self._leave is not None:
            self._session.cancel()

    def drop(self) -> None:
        self._parts.text.stopper.cancel()
        leave, self._leave = self._leave, None
        if leave is not None:
            self._events.close()  # type: ignore[attr-defined]
            leave()


def explain(turn: Any, round_line: str, spell: Callable[[int], str]) -> str:
    """The round's line, then one for each node that was verified: who proposed it, how likely it was taken to come, the
    path to it, and whether it came."""
    tree = turn.tree
    paths = {0: ""}
    lines = [round_line]
    for node, (token, parent, source, worth, came) in enumerate(tree, 1):
        paths[node] = f"{paths[parent]} {spell(token)}"
        chance = f"{worth:.2f}" if worth >= 0 else "   -"
        lines.append(f"  {'came' if came else '    '} {chance} {NAMES[source]:9}{paths[node]}")
    return "\n".join(lines)


@lru_cache(256)
def _made(attn: tuple[int, ...], mlp: tuple[int, ...], exit_layer: int, weights: tuple[str, ...]) -> SkipSet:
    return SkipSet(attn, mlp, None if exit_layer < 0 else exit_layer, weights or "own")


def _skip(plan: Any) -> SkipSet:
    """Of a native plan."""
    attn, mlp, exit_layer, weights = plan
    return _made(tuple(attn), tuple(mlp), exit_layer, tuple(weights))
