"""Many texts under way at a time, on one native engine. Whoever waits for a text steps the engine, for all of them."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import InvalidArgument


class Engine:
    """Submits texts and receives what comes of them; from any thread, and anew in a forked process."""

    def __init__(self, make: Callable[[], Any]) -> None:
        """make: a _core.Engine, once one is needed."""
        self._make = make
        self._native: Any = None
        self._boxes: dict[int, deque[Any]] = {}  # what each text under way received, and nobody has read
        self._process = os.getpid()

    @property
    def native(self) -> Any:
        if self._process != os.getpid():
            if self._native is not None:
                self._native.leave_behind()
            self._native, self._boxes, self._process = None, {}, os.getpid()
        if self._native is None:
            self._native = self._make()
        return self._native

    @property
    def started(self) -> bool:
        return self._native is not None and self._process == os.getpid()

    def submit(self, request: Any) -> Ticket:
        """request: a _core.Request."""
        native = self.native
        boxes = self._boxes
        return Ticket(native, boxes, native.submit(boxes, request))

    def step(self) -> None:
        """One round of all texts, for a caller who receives tokens of many; it waits for a round of another thread."""
        if self.started and self._boxes:
            self._native.step(self._boxes)

    def cancel(self) -> None:
        """All texts that are under way."""
        if self.started:
            for number in list(self._boxes):
                self._native.cancel(number)

    def close(self) -> None:
        """Ends all texts, and frees the memory that they lived in, once nobody is in a step."""
        self.cancel()
        self._native, self._boxes = None, {}


class Ticket:
    """A text under way."""

    def __init__(self, native: Any, boxes: dict[int, deque[Any]], number: int) -> None:
        self._native, self._boxes, self._number, self._box = native, boxes, number, boxes[number]
        self._process = os.getpid()

    @property
    def engine(self) -> Any:
        """The _core.Engine that it is under way on."""
        return self._native

    @property
    def number(self) -> int:
        return self._number

    @property
    def received(self) -> bool:
        """Whether receive() would not wait."""
        return bool(self._box)

    def receive(self) -> Any:
        """The next _core.Turn of the text: waits, and steps the engine where no other thread does."""
        self._same_process()
        while not self._box:
            self._native.step(self._boxes)
        turn = self._box.popleft()
        if turn.finish:
            self._boxes.pop(self._number, None)
        return turn

    def cancel(self) -> None:
        """It ends with the next round; no error if it has ended."""
        if self._process == os.getpid():
            self._native.cancel(self._number)

    def propose(self, at: int, tokens: Sequence[int], parents: Sequence[int] = ()) -> None:
        """What source "host" proposes from position `at` on, in place of what it was given before."""
        if self._process == os.getpid():
            self._native.propose(self._number, at, list(tokens), list(parents))

    def drop(self) -> None:
        """Frees the text: nobody will receive its tokens any more."""
        if self._boxes.pop(self._number, None) is not None:
            self.cancel()

    def _same_process(self) -> None:
        if self._process != os.getpid():
            raise InvalidArgument(
                f"[stream] this text is under way in process {self._process}, from which process {os.getpid()} was "
                "forked; submit it here"
            )
