"""Kinds of option values: what a value may be, and what it is read as.

Every error is `[function] name=value, want what is supported`: InvalidOption for a wrong type, InvalidArgument for a
value out of range.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeVar

from ..draft.draft_spec import FORMS
from ..errors import InvalidArgument, InvalidOption

T = TypeVar("T")
_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?) ?(?P<unit>([KMGT]i?)?)B?", re.IGNORECASE)
LEAST, MOST = 1e-37, 3e38  # of a float32, which is what the runtime computes in


class Kind(Protocol):
    """A kind of value."""

    @property
    def hint(self) -> Any:
        """Its type, as JSON has it: what HTTP's models and the command line declare."""

    def read(self, where: str, value: Any) -> Any:
        """The value as the engine takes it. where: `[function] name`."""


@dataclass(frozen=True, slots=True)
class Integer:
    low: int
    high: int
    also: tuple[Any, ...] = (None,)  # values that it may be besides

    @property
    def hint(self) -> Any:
        return int

    def read(self, where: str, value: Any) -> Any:
        if any(value is other or (isinstance(value, str) and value == other) for other in self.also):
            return value
        besides = "".join(f"{other!r} or " for other in self.also if other is not None)
        problem = f"{where}={value!r}, want {besides}an integer in {self.low}..{self.high}"
        found = _index(value)
        if found is None:
            raise InvalidOption(problem)
        if not self.low <= found <= self.high:
            raise InvalidArgument(problem)
        return found


@dataclass(frozen=True, slots=True)
class Seed(Integer):
    """Any int64, as peers take it, or any uint64. -1 is None: drawn at random."""

    def read(self, where: str, value: Any) -> Any:
        found = Integer.read(self, where, value)
        return None if found is None or found == -1 else found % 2**64


@dataclass(frozen=True, slots=True)
class Number:
    low: float
    high: float
    least: float = 0.0  # a number nearer to 0 is ...
    tiny: float = 0.0  # ... this one

    @property
    def hint(self) -> Any:
        return float

    @property
    def wanted(self) -> str:
        return f"a number in {self.low:g}..{self.high:g}"

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def read(self, where: str, value: Any) -> Any:
        if value is None:
            return None
        problem = f"{where}={value!r}, want {self.wanted}"
        found = _float(value, problem)
        if not self.holds(found):
            raise InvalidArgument(problem)
        return self.tiny if abs(found) < self.least else found


@dataclass(frozen=True, slots=True)
class Flag:
    optional: bool = False

    @property
    def hint(self) -> Any:
        return bool

    def read(self, where: str, value: Any) -> Any:
        if not (isinstance(value, bool) or (self.optional and value is None)):
            raise InvalidOption(f"{where}={value!r}, want True or False")
        return value


@dataclass(frozen=True, slots=True)
class Strings:
    """One or several."""

    @property
    def hint(self) -> Any:
        return str | list[str]

    def read(self, where: str, value: Any) -> tuple[str, ...]:
        found = _items(value)
        if not all(isinstance(s, str) for s in found):
            raise InvalidOption(f"{where}={value!r}, want a string or a list of strings")
        if "" in found:
            raise InvalidArgument(f"{where}={value!r} has an empty string, want strings that are not")
        return found


@dataclass(frozen=True, slots=True)
class Ids:
    """One token id or several."""

    @property
    def hint(self) -> Any:
        return int | list[int]

    def read(self, where: str, value: Any) -> tuple[int, ...]:
        found = [_index(v) for v in _items(value)]
        problem = f"{where}={value!r}, want a token id or a list of them"
        if None in found:
            raise InvalidOption(problem)
        if min(found, default=0) < 0:
            raise InvalidArgument(problem)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Biases:
    """{token id: number}, as a tuple of pairs in the order of the ids. Keys of JSON are digits."""

    low: float
    high: float

    @property
    def hint(self) -> Any:
        return dict[str, float]

    def read(self, where: str, value: Any) -> tuple[tuple[int, float], ...]:
        pairs = value.items() if isinstance(value, Mapping) else _items(value)
        problem = f"{where}={value!r}, want {{token id: a number in {self.low:g}..{self.high:g}}}"
        found: dict[int, float] = {}
        for pair in pairs:
            if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
                raise InvalidOption(problem)
            token = int(pair[0]) if isinstance(pair[0], str) and pair[0].isdecimal() else _index(pair[0])
            if token is None:
                raise InvalidOption(problem)
            found[token] = _float(pair[1], problem)
        if min(found, default=0) < 0 or not all(self.low <= bias <= self.high for bias in found.values()):
            raise InvalidArgument(problem)
        return tuple(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class Names:
    """{name: any value}."""

    @property
    def hint(self) -> Any:
        return dict[str, Any]

    def read(self, where: str, value: Any) -> Any:
        if value is None:
            return None
        if not (isinstance(value, Mapping) and all(isinstance(name, str) for name in value)):
            raise InvalidOption(f"{where}={value!r}, want a mapping of names")
        return dict(value)


@dataclass(frozen=True, slots=True)
class Choice:
    values: tuple[Any, ...]

    @property
    def hint(self) -> Any:
        return bool | str if any(isinstance(value, bool) for value in self.values) else str

    def read(self, where: str, value: Any) -> Any:
        if not any(type(value) is type(one) and value == one for one in self.values):
            raise InvalidArgument(f"{where}={value!r}, want one of {', '.join(map(repr, self.values))}")
        return value


@dataclass(frozen=True, slots=True)
class Size:
    """A number of bytes, or a size such as "6GB" (10^9 bytes each) or "512MiB" (2^20)."""

    @property
    def hint(self) -> Any:
        return str

    def read(self, where: str, value: Any) -> Any:
        if value is None:
            return None
        found = _index(value)
        if isinstance(value, str) and (size := _SIZE.fullmatch(value.strip())):
            unit = size["unit"].upper()
            base = 1024 if unit.endswith("I") else 1000
            found = int(float(size["number"]) * base ** " KMGT".index(unit[:1] or " "))
        problem = f"{where}={value!r}, want an integer in 1..{1 << 62} or a size such as '6GB' or '512MiB'"
        if found is None:
            raise InvalidOption(problem)
        if not 1 <= found <= 1 << 62:
            raise InvalidArgument(problem)
        return found


def as_it_is(where: str, value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class By:
    """A value that a function reads: (where, value) -> value."""

    hint: Any
    function: Callable[[str, Any], Any] = as_it_is
    json: bool = False  # on a command line it may be JSON, where HTTP takes `hint` alone

    def read(self, where: str, value: Any) -> Any:
        return self.function(where, value)


def settings(cls: type[T], value: Any, name: str) -> T:
    """An object of the class, from one or from a mapping of some of its fields; None: its defaults. InvalidArgument
    names what is unknown."""
    if value is None or isinstance(value, cls):
        return value or cls()
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"[{name}] got {value!r}, want {cls.__name__} or a mapping of its fields")
    known = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    unknown = sorted(map(str, set(value) - set(known)))
    if unknown:
        raise InvalidArgument(f"[{name}] unknown setting {unknown[0]!r}, want some of {', '.join(known)}")
    return cls(**value)


def forms(where: str, value: Any) -> str:
    """The option draft_weights as the native loader takes it: names joined by commas."""
    given = value.split(",") if isinstance(value, str) else value
    names = Strings().read(where, given) or ("own",)
    if names in (("auto",), ("own",)):
        return names[0]
    for name in names:
        if name not in FORMS or name == "own" or names.count(name) > 1:
            raise InvalidArgument(
                f"{where}={value!r}, want 'auto', 'own', or each at most once of {', '.join(FORMS[1:])}"
            )
    return ",".join(names)


def _index(value: Any) -> int | None:
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def _float(value: Any, problem: str) -> float:
    try:
        if isinstance(value, (bool, str)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise InvalidOption(problem) from None


def _items(value: Any) -> tuple[Any, ...]:
    """Those of a list or its like; else the one value, or none."""
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, bytearray, Mapping)):
        return tuple(value)
    return () if value is None else (value,)
