"""Single values of options: checked, and put into the frozen classes as what they stand for. Every error is
`[function] name=value, want what is supported`."""

from __future__ import annotations

import operator
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from .errors import InvalidArgument, InvalidOption
from .skip import FORMS

T = TypeVar("T")
_LEAST, _MOST = 1e-37, 3e38  # of a float32, which is what the runtime computes in
_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?) ?(?P<unit>([KMGT]i?)?)B?", re.IGNORECASE)
# The least and the most of numbers that sample, each as it is written; 0 is besides a temperature, and means greedy.
NUMBERS = {
    "temperature": (1e-5, _MOST),
    "top_p": (_LEAST, 1),
    "min_p": (0, 1),
    "repetition_penalty": (_LEAST, _MOST),
}


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


def put(o: object, name: str, value: Any) -> None:
    object.__setattr__(o, name, value)  # the class is frozen for callers; __post_init__ normalises


def integer(o: Any, name: str, low: int, high: int, or_else: Collection[Any] = (None,)) -> None:
    """or_else: what it may be besides."""
    value = getattr(o, name)
    if any(value is other or (isinstance(value, str) and value == other) for other in or_else):
        return
    besides = "".join(f"{other!r} or " for other in or_else if other is not None)
    problem = f"[{o.function}] {name}={value!r}, want {besides}an integer in {low}..{high}"
    found = _index(value)
    if found is None:
        raise InvalidOption(problem)
    if not low <= found <= high:
        raise InvalidArgument(problem)
    put(o, name, found)


def number_of_bytes(o: Any, name: str) -> None:
    """From an integer, or from a size such as "6GB" (10^9 bytes each) or "512MiB" (2^20); None stays."""
    value = getattr(o, name)
    if value is None:
        return
    found = _index(value)
    if isinstance(value, str) and (size := _SIZE.fullmatch(value.strip())):
        unit = size["unit"].upper()
        base = 1024 if unit.endswith("I") else 1000
        found = int(float(size["number"]) * base ** " KMGT".index(unit[:1] or " "))
    problem = f"[{o.function}] {name}={value!r}, want an integer in 1..{1 << 62} or a size such as '6GB' or '512MiB'"
    if found is None:
        raise InvalidOption(problem)
    if not 1 <= found <= 1 << 62:
        raise InvalidArgument(problem)
    put(o, name, found)


def number(o: Any, name: str) -> None:
    """One of NUMBERS, or None."""
    value = getattr(o, name)
    if value is None:
        return
    problem = f"[{o.function}] {name}={value!r}, want {wanted(name)}"
    try:
        if isinstance(value, (bool, str)):
            raise TypeError
        found = float(value)
    except (TypeError, ValueError):
        raise InvalidOption(problem) from None
    if not in_range(name, found):
        raise InvalidArgument(problem)
    put(o, name, found)


def in_range(name: str, value: float) -> bool:
    low, high = NUMBERS[name]
    return low <= value <= high or (name == "temperature" and value == 0)


def wanted(name: str) -> str:
    """What in_range() takes, in words."""
    low, high = NUMBERS[name]
    return f"{'0 (greedy) or ' if name == 'temperature' else ''}a number in {low:g}..{high:g}"


def flag(o: Any, name: str, optional: bool = False) -> None:
    value = getattr(o, name)
    if not (isinstance(value, bool) or (optional and value is None)):
        raise InvalidOption(f"[{o.function}] {name}={value!r}, want True or False")


def strings(function: str, name: str, value: Any) -> tuple[str, ...]:
    """From one or several of them."""
    found = _items(value)
    if not all(isinstance(s, str) for s in found):
        raise InvalidOption(f"[{function}] {name}={value!r}, want a string or a list of strings")
    if "" in found:
        raise InvalidArgument(f"[{function}] {name}={value!r} has an empty string, want strings that are not")
    return found


def forms(value: Any) -> str:
    """The option draft_weights as the native loader takes it: names joined by commas."""
    names = strings("load", "draft_weights", value) or ("own",)
    if names in (("auto",), ("own",)):
        return names[0]
    for name in names:
        if name not in FORMS or name == "own" or names.count(name) > 1:
            raise InvalidArgument(
                f"[load] draft_weights={value!r}, want 'auto', 'own', or each at most once of {', '.join(FORMS[1:])}"
            )
    return ",".join(names)


def ids(function: str, name: str, value: Any) -> tuple[int, ...]:
    """From one or several token ids."""
    found = [_index(v) for v in _items(value)]
    problem = f"[{function}] {name}={value!r}, want a token id or a list of them"
    if None in found:
        raise InvalidOption(problem)
    if min(found, default=0) < 0:
        raise InvalidArgument(problem)
    return tuple(found)


def _index(value: Any) -> int | None:
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def _items(value: Any) -> tuple[Any, ...]:
    """Those of a list or its like; else the one value, or none."""
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, bytearray, Mapping)):
        return tuple(value)
    return () if value is None else (value,)
