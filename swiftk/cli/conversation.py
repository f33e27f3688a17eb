"""A conversation: turns, what the model sees of them, and what happens to them where a turn fails. Messages to the
user about it go to stderr."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ..errors import InvalidArgument, InvalidOption, SwiftkError
from ..options.fields import table
from ..options.generate_options import GenerateOptions
from .common import err
from .terminal import Screen, one_interrupt, plain

Message = dict[str, str]
# Options of how a prompt becomes tokens, which a chat's template decides.
PROMPTS = {"parse_special", "add_special_tokens", "add_generation_prompt", "continue_final_message", "continued_tokens"}
_SEEDS = 1 << 64


class Piece(NamedTuple):
    """A piece of an answer. kind: "text", "thought" (which is no part of the answer), or "note" (for the user, when it
    has ended)."""

    kind: str
    text: str


class ContextFull(InvalidArgument):
    """The messages are too long for the model's context."""


class Model(Protocol):
    """A model that answers, here or at a server."""

    name: str
    about: str  # a line for the user
    note: str  # what a user should know beforehand, or ""

    @property
    def options(self) -> Sequence[str]:
        """Names of GenerateOptions that it takes."""

    def greedy(self, options: Mapping[str, Any]) -> bool:
        """Whether the same messages get the same answer."""

    def answer(self, messages: Sequence[Message], options: Mapping[str, Any]) -> Iterator[Piece]:
        """Closing it ends the answer. ContextFull: fewer messages would do, if there are several."""


@dataclass
class Turn:
    """A message of the user's and its answer."""

    said: str
    answer: str


class Conversation:
    """Turns with a model. A turn whose answer is empty, or that fails, is none: its message can be retried."""

    def __init__(self, model: Model, system: str | None = None) -> None:
        self.model, self.system = model, system
        self.turns: list[Turn] = []
        self.options: dict[str, Any] = {}
        self._dropped = 0  # turns, from the first on, that the model does not see any more
        self._said: str | None = None  # the last message
        self._answered = False  # whether the last turn is its answer
        self._tries = 0  # further ones, of its answer

    def set(self, name: str, value: Any) -> str:
        """Sets an option of the answers to come; None: its default. Returns its canonical name. InvalidArgument names
        what is supported."""
        known = {own: own for own in self.model.options}
        known |= {alias: own for own in known for alias in table(GenerateOptions)[own].aliases}
        given = name.replace("-", "_")
        if given not in known:
            (near,) = difflib.get_close_matches(given, known, n=1, cutoff=0)
            raise InvalidOption(f"[chat] {name} is no option of answers of {self.model.name}; did you mean {near}?")
        options = {**self.options, known[given]: value}
        options = {key: kept for key, kept in options.items() if kept is not None}
        GenerateOptions.parse(options)
        self.options = options
        return known[given]

    def clear(self) -> None:
        """Forgets all turns; the system message and the options stay."""
        self.turns, self._dropped, self._said = [], 0, None

    def messages(self) -> list[Message]:
        """All of them, those that the model does not see any more included."""
        return self._messages(self.turns)

    def ask(self, said: str) -> None:
        """A turn. An error is a line on stderr."""
        self._said, self._answered, self._tries = said, False, 0
        self._turn(said, self.turns)

    def retry(self) -> None:
        """Asks for another answer to the last message. If there is none, the last one stays."""
        if self._said is None:
            raise InvalidArgument("[chat] there is no message to answer again")
        self._tries += 1
        if self.model.greedy(self.options):
            err.print("the answers are greedy, so this one is the same again; /set temperature 0.7 samples")
        self._turn(self._said, self.turns[:-1] if self._answered else self.turns)

    def _turn(self, said: str, before: list[Turn]) -> None:
        dropped = self._dropped
        try:
            answer = self._answer(said, before)
        except BrokenPipeError:  # nobody reads
            raise
        except Exception as error:  # whatever it is, it costs this turn alone
            self._dropped = dropped
            text = str(error) if isinstance(error, SwiftkError) else f"{type(error).__name__}: {error}"
            err.print(f"{plain(' '.join(text.split()))}\nthis turn is left out; /retry asks again")
            return
        if answer:
            self.turns, self._answered = [*before, Turn(said, answer)], True
        else:
            err.print("the answer is empty, so this turn is left out; /retry asks again")

    def _answer(self, said: str, before: list[Turn]) -> str:
        """Shown as it comes. If the context is full, the oldest turns are dropped until it is not."""
        seen = self._dropped
        while True:
            note = f"the context is full: {_counted(self._dropped - seen)} dropped" if self._dropped > seen else ""
            try:
                asked = [*self._messages(before[self._dropped :]), {"role": "user", "content": said}]
                return self._shown(asked, note)
            except ContextFull:
                if self._dropped >= len(before):
                    raise
                self._dropped += 1

    def _shown(self, asked: list[Message], note: str) -> str:
        """note: for the user, once an answer begins."""
        options, text, notes, screen = dict(self.options), [], [], Screen()
        if options.get("seed", -1) >= 0:  # others are random
            options["seed"] = (options["seed"] + self._tries) % _SEEDS
        pieces, begun = self.model.answer(asked, options), False
        try:
            with one_interrupt():
                for kind, piece in pieces:
                    if note and not begun:
                        err.print(note)
                    begun = True
                    if kind == "text":
                        screen.write(piece)
                        text.append(piece)
                    elif kind == "thought":
                        screen.think(piece)
                    else:
                        notes.append(piece)
        except KeyboardInterrupt:
            pieces.close()
        except ContextFull as error:
            raise (InvalidArgument(str(error)) if begun else error) from None
        finally:
            if begun:
                screen.end()
        for one in notes:
            err.print(plain(one))
        return "".join(text).strip()

    def _messages(self, turns: Sequence[Turn]) -> list[Message]:
        reported = [] if self.system is None else [{"role": "system", "content": self.system}]
        for turn in turns:
            reported += [{"role": "user", "content": turn.said}, {"role": "assistant", "content": turn.answer}]
        return reported


def _counted(turns: int) -> str:
    return "the oldest turn is" if turns == 1 else f"the {turns} oldest turns are"
