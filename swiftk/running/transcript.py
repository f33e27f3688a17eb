"""A text as it is written, however it is decoded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..draft.sources import NAMES
from ..text.stops import Stopper
from .result import Event, TokenLogprobs
from .stats import Recorder


@dataclass(slots=True)
class Transcript:
    """Its events, where it ends, and its figures."""

    stopper: Stopper
    logprobs: bool = False  # whether events report them
    recorder: Recorder = field(default_factory=Recorder)
    events: list[Event] = field(default_factory=list)
    prompt: list[TokenLogprobs] = field(default_factory=list)  # what the model says of its tokens from the second on
    why_off: str = ""  # drafting rests, at its end

    def add(self, emitted: Any) -> Event:
        """A token of it. emitted: a _core.Emitted."""
        token = int(emitted.token)
        text = self.stopper.push(token)
        source = NAMES[emitted.source] if emitted.drafted else None
        if self.logprobs:
            event = Event(text, token, emitted.drafted, source, emitted.logprob, tuple(emitted.top), self.stopper.piece)
        else:
            event = Event(text, token, emitted.drafted, source)
        self.events.append(event)
        return event
