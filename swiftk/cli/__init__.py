"""The swiftk command: one module per subcommand, imported when it is called, so that --help stays quick."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, TextIO

from ..errors import SwiftkError

LONGEST_LINE = 1 << 20  # columns
COMMANDS = ("demo", "run", "chat", "serve", "info", "check", "doctor", "bench", "tune", "convert", "pack")


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    logging.basicConfig(format="swiftk: %(message)s")  # warnings, on stderr
    arguments = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    return guarded(lambda: int(_app(arguments)(arguments, standalone_mode=False, prog_name="swiftk") or 0))


def guarded(run: Callable[[], int], program: str = "swiftk") -> int:
    """The exit status of a program; a user's mistake is one line on stderr and status 2."""
    try:
        import typer
    except ModuleNotFoundError as error:
        print(f"{program}: the command line needs {error.name}: pip install typer rich", file=sys.stderr)
        return 2
    try:
        return run()
    except (typer.Abort, KeyboardInterrupt):
        return _fail(program, "interrupted", 130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away; python would complain once more at exit
        return 0
    except (SwiftkError, ValueError, TypeError, OSError, ArithmeticError, MemoryError) as error:
        return _fail(program, str(error) or type(error).__name__, 2)
    except Exception as error:  # a usage error of click, whichever copy of it typer brings
        if not hasattr(error, "format_message"):
            raise
        return _fail(program, error.format_message(), 2)


def line_width(stream: TextIO) -> int | None:
    """Columns of a line: None, as many as the terminal has; what is no terminal takes all lines whole."""
    return None if stream.isatty() else LONGEST_LINE


def _fail(program: str, message: str, status: int) -> int:
    print(f"{program}: " + " ".join(message.split()), file=sys.stderr)
    return status


def _app(arguments: list[str]) -> Any:
    import typer

    from .. import __version__

    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"terminal_width": line_width(sys.stdout)},
        help="Generate with LLaMA-family models faster, without changing a token.",
    )

    def show_version(value: bool) -> None:
        if value:
            print(f"swiftk {__version__}")
            raise typer.Exit

    @app.callback()
    def top(
        version: bool = typer.Option(
            False, "--version", callback=show_version, is_eager=True, help="Print the version."
        ),
    ) -> None:
        """Holds the options that stand before a command."""

    called = next((a for a in arguments if not a.startswith("-")), None)
    for name in COMMANDS if called not in COMMANDS else (called,):
        app.command(name)(import_module(f".{name}", __name__).command)
    return app
