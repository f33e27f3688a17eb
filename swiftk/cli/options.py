"""Options of a command that are declared in a table: those of load() and of a text."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable
from typing import Annotated, Any, get_origin

import typer

from ..options.fields import Option, table
from ..options.values import By, Choice, Integer, Kind, Strings

Given = dict[str, Any]  # options that a command line gives, by name

_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None, "default": None}


def takes(
    cls: type, into: str, only: Iterable[str] | None = None, without: Iterable[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds options of `cls` to a command, but those that it declares itself. only: some of them; None: all that are for
    the command line. The command's argument `into` has those that were given."""
    names = [name for name, one in table(cls).items() if one.command] if only is None else list(only)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = dict(inspect.signature(command, eval_str=True).parameters)
        del own[into]
        added = {name: _parameter(name, table(cls)[name]) for name in names if name not in (*without, *own)}

        def run(**given: Any) -> None:
            chosen = {name: given.pop(name, None) for name in added}
            said = {name: value for name, value in chosen.items() if value not in (None, [])}
            command(**given, **{into: {n: v[0] if isinstance(v, tuple) else v for n, v in said.items()}})

        run.__doc__, run.__module__ = command.__doc__, command.__module__
        run.__signature__ = inspect.Signature([*own.values(), *added.values()])  # type: ignore[attr-defined]
        run.__annotations__ = {}
        return run

    return decorate


def value(text: str) -> Any:
    """The value of an option: JSON, or else the text itself."""
    if text in _WORDS:
        return _WORDS[text]
    try:
        return json.loads(text)
    except ValueError:
        return text


def flags(names: Iterable[str]) -> str:
    """Options as a command line spells them."""
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)


def _parameter(name: str, one: Option) -> inspect.Parameter:
    """An option as typer reads it. None: it is not given."""
    kind, parser = list[str] if isinstance(one.kind, Strings) else one.kind.hint, None
    if not _of_one_type(one.kind):  # what value() says, in a tuple, since None may be meant
        kind, parser = Any, lambda text: (value(text),)
    several = " May be repeated." if get_origin(kind) is list else ""
    spelled = flags([name])  # a flag has no --no-flag
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            kind | None,
            typer.Option(spelled, metavar=one.metavar or (parser and "VALUE"), help=one.help + several, parser=parser),
        ],
    )


def _of_one_type(kind: Kind) -> bool:
    if isinstance(kind, Integer):
        return all(isinstance(other, int | None) for other in kind.also)
    if isinstance(kind, Choice):
        return all(isinstance(one, str) for one in kind.values)
    return kind.hint is not Any and not (isinstance(kind, By) and kind.json)
