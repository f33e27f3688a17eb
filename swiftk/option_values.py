"""Single values of options: checked, and put into the frozen classes as what they stand for."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from .errors import InvalidArgument
from .skip import WEIGHTS

T = TypeVar("T")


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


def integer(o: object, name: str, low: int, high: int, optional: bool) -> None:
    value = getattr(o, name)
    if value is None and optional:
        return
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"option {name!r} is an integer, got {value!r}") from None
    if not low <= number <= high:
        raise InvalidArgument(f"[options] {name}={number}, want {low}..{high}")
    put(o, name, number)


def number(o: object, name: str, low: float, high: float, open_low: bool) -> None:
    value = getattr(o, name)
    if value is None:
        return
    try:
        if isinstance(value, (bool, str)):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"option {name!r} is a number, got {value!r}") from None
    if not math.isfinite(number) or not low <= number <= high or (open_low and number == low):
        raise InvalidArgument(f"[options] {name}={number}, want a number in {'(' if open_low else '['}{low}, {high}]")
    put(o, name, number)


def strings(value: Any) -> tuple[str, ...]:
    strings = (value,) if isinstance(value, str) else tuple(value or ())
    for s in strings:
        if not isinstance(s, str):
            raise TypeError(f"option 'stop' is a string or a list of strings, got {s!r} in it")
        if not s:
            raise InvalidArgument("[options] stop='' would stop at once; want strings that are not empty")
    return strings


def forms(value: Any) -> str:
    """The option draft_weights as the native loader takes it: names joined by commas."""
    names = [value] if isinstance(value, str) else list(value or ["own"])
    if names in (["auto"], ["own"]):
        return str(names[0])
    for name in names:
        if name not in WEIGHTS or name == "own" or names.count(name) > 1:
            raise InvalidArgument(
                f"[load] draft_weights={value!r}, want 'auto', 'own', or each at most once of {', '.join(WEIGHTS[1:])}"
            )
    return ",".join(names)


def ids(value: Any) -> tuple[int, ...]:
    try:
        values = (operator.index(value),)
    except TypeError:
        try:
            values = tuple(operator.index(v) for v in (() if value is None else value))
        except TypeError:
            raise TypeError(f"option 'stop_token_ids' is a list of token ids, got {value!r}") from None
    if any(v < 0 for v in values):
        raise InvalidArgument(f"[options] stop_token_ids={list(values)}, want ids >= 0")
    return values
