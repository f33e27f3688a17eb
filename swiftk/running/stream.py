"""A text on its way, on an engine that steps it among others: events as they are committed, the Result at its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from time import perf_counter
from typing import Any

import numpy as np

from .. import errors
from ..draft.cost import Round
from ..draft.draft_spec import DraftSpec
from ..draft.sources import NAMES
from ..errors import InvalidArgument
from .director import Director
from .engine import Ticket
from .result import Event, Result, TokenLogprobs
from .trace import TracedRound
from .transcript import Transcript

_STACK = "\n\nAt:\n"  # where pybind11 begins the stack of an error in Python


class Stream:
    """Iterates over the Events of a text. Any number of streams may be open, each read by one thread at a time. A
    stream that is garbage-collected cancels its text."""

    def __init__(
        self,
        ticket: Ticket,
        text: Transcript,
        finish: Callable[[], Result],
        director: Director,
        spell: Callable[[int], str] | None = None,
    ) -> None:
        """finish: makes the result; spell: tokens, where rounds are to be explained."""
        self._ticket, self._text, self._finish = ticket, text, finish
        self._director, self._spell = director, spell
        self._began = perf_counter()
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
            if self._text.stopper.finish is None:
                self._receive(self._ticket.receive())
            if not self._ready and self._text.stopper.finish is not None:
                self._result = self._finish()
        except BaseException:
            self._drop()
            raise

    def poll(self) -> tuple[list[Event], bool]:
        """(events so far, whether the text has ended). Never waits. For programs that call LM.step()."""
        events = list(self._ready)
        self._ready.clear()
        while self._result is None and (self._ticket.received or self._text.stopper.finish is not None):
            self._read()
            events += self._ready
            self._ready.clear()
        return events, self._result is not None

    def wait(self) -> Result:
        """Reads to the end, and returns the Result."""
        for _ in self:
            pass
        return self.result

    def cancel(self) -> None:
        """From any thread. The text ends and keeps its tokens; finish_reason is "cancelled"."""
        self._ticket.cancel()

    def propose(self, tokens: Sequence[int], at: int | None = None, parents: Sequence[int] = ()) -> None:
        """Proposes the next tokens of the text, for drafter="host". Replaces the proposal before. From any thread.

        tokens: token ids. at: index among the text's new tokens of the first one; default: the token after those that
        were read. parents: of a tree of at most 63 tokens, which of them each token follows: 0 is the text before all,
        i + 1 is tokens[i], an earlier one; default: each follows the one before it. A proposal that begins ahead of the
        text waits for it. Tokens that the text has reached are dropped; after a wrong one nothing more is proposed. No
        error if the text has ended.
        """
        behind = len(self._text.events) if at is None else at
        self._ticket.propose(self._text.recorder.prompt_tokens + behind, tokens, parents)

    def close(self) -> None:
        """Cancels the text; its result has the tokens so far."""
        if self._result is None:
            self._drop()
            self._ready.clear()
            self._result = self._finish()

    def _drop(self) -> None:
        self._ticket.drop()
        self._text.stopper.cancel()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(AttributeError):  # __init__ did not run to its end
            if self._result is None:
                self._drop()

    @property
    def begins(self) -> bool:
        """Whether no words come before the text, so that a first word has no space before it."""
        return self._text.stopper.begins

    @property
    def result(self) -> Result:
        """The finished text. InvalidArgument: events are left to read."""
        if self._result is None:
            raise InvalidArgument("[stream] the text is not finished; read all events first")
        return self._result

    def _receive(self, turn: Any) -> None:
        text = self._text
        if turn.error is not None:
            name, message = turn.error
            raise getattr(errors, name)(message.partition(_STACK)[0])
        first, events = not text.events, []
        if turn.tokens and text.stopper.remaining == 0:
            text.stopper.finish = "length"  # the prompt's logprobs alone were asked for
        said = () if text.stopper.finish else zip(turn.tokens, _shares(turn), strict=True)
        for emitted, features in said:
            event = text.add(emitted)
            events.append(event if features is None else replace(event, features=features))
            if text.stopper.finish is not None:
                break
        self._ready.extend(events)
        text.why_off = turn.why_off or text.why_off
        if first and turn.tokens:
            self._prompt_is_over(turn, len(events))
        elif events:
            self._round(turn, events)
        if text.stopper.finish is None and turn.finish == "cancelled":
            text.stopper.cancel()
        elif text.stopper.finish is not None:
            self._ticket.drop()  # a stop string, of which the engine knows nothing

    def _prompt_is_over(self, turn: Any, tokens: int) -> None:
        recorder = self._text.recorder
        self._text.prompt += [TokenLogprobs(e.token, e.logprob, tuple(e.top)) for e in turn.prompt]
        recorder.cached, recorder.generated = turn.cached, tokens
        recorder.read(turn)
        recorder.prefill = recorder.first_token = perf_counter() - self._began
        if self._text.stopper.finish is None:
            self._director.begin(self._ticket)

    def _round(self, turn: Any, events: Sequence[Event]) -> None:
        recorder = self._text.recorder
        by = [event.source for event in events if event.source]
        cut = turn.cut or len(events) < len(turn.tokens)
        recorder.round(turn, by, len(events), cut)
        recorder.decode += turn.seconds
        recorder.run += turn.run
        proposed = sum(source != "plan" for source in by)
        clocked = turn.seconds, turn.draft, turn.steps, turn.verify, turn.nodes
        counted = len(events), len(by), proposed, turn.drafted, cut
        tree = Round(*clocked, *counted, turn.disk, turn.disk_bytes)
        why = explain(turn, self._ticket.engine.explained, self._spell) if self._spell else ""
        recorder.rounds.append(TracedRound(tree, _skip(turn.plan) if turn.plan else None, recorder.decode, why))
        if self._text.stopper.finish is None:  # a cut block says nothing about what pays
            self._director.receive(turn, tree, recorder)


def _shares(turn: Any) -> list[Any]:
    """Features to each token of a turn: of the place before it, to the first one all that come before."""
    reported, n = turn.features, len(turn.tokens)
    if len(reported) == 0:
        return [None] * n
    return np.split(reported, range(len(reported) - n + 1, len(reported)))


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
def _made(
    attn: tuple[int, ...],
    mlp: tuple[int, ...],
    exit_layer: int,
    weights: tuple[str, ...],
    trimmed: bool,
    view: tuple[int, int],
) -> DraftSpec:
    return DraftSpec(
        attn, mlp, None if exit_layer < 0 else exit_layer, weights or "own", trimmed, view[0] or None, view[1]
    )


def _skip(plan: Any) -> DraftSpec:
    """The set of a native plan."""
    return _made(
        tuple(plan.attn), tuple(plan.mlp), plan.exit_layer, tuple(plan.weights), plan.trimmed, (plan.window, plan.heavy)
    )
