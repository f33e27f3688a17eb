"""Parts that commands share: consoles, loading with a progress bar, comparing, JSON."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleDimensions
from rich.table import Table

from .. import demo_model
from ..api import LM, load
from ..files.model_folder import find
from ..gpu.device import place
from ..options.fields import table
from ..options.generate_options import NEW_TOKENS
from ..options.load_options import LoadOptions
from . import line_width
from .options import Given, takes
from .progress import Work


class Lines(Console):
    """Prints text as it is: rich wraps, crops and folds it on terminals alone, and finds no markup in a path."""

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False)

    @property
    def size(self) -> ConsoleDimensions:
        width, height = super().size
        return ConsoleDimensions(line_width(self.file) or width, height)


out = Lines()
err = Lines(stderr=True)

ModelArgument = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="A Hugging Face folder, a GGUF file, or 'demo' for the bundled toy model."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
NewTokensOption = Annotated[
    int | None,
    typer.Option(
        "--max-new-tokens", "-n", help=f"Maximum number of new tokens. Default: the model's, else {NEW_TOKENS}."
    ),
]
Loading = Given  # options of load()

PROMPTS = {
    "arithmetic": "Question: Natalia sold 48 clips in April, and half as many in May. How many clips did she sell "
    "altogether in April and May?\nAnswer:",
    "code": 'def read_lines(path):\n    """Return the lines of a file."""\n',
    "prose": "The history of the town begins in the early nineteenth century, when",
}


def work(what: str, total: int = 0, unit_bytes: bool = False) -> Work:
    """Long work, shown on stderr."""
    return Work(err, what, total, unit_bytes=unit_bytes)


# A decorator: the command takes options of load().
loads = partial(takes, LoadOptions, "loading", only=tuple(table(LoadOptions)))


def model_folder(model: str) -> Path:
    """The folder that a command line names, looked at before anything is built or loaded."""
    return demo_model() if model == "demo" and not Path(model).exists() else find(model)


def open_model(model: str, loading: Loading) -> LM:
    """Loads a model with a progress bar, and builds its kernels first if there are none."""
    folder, o = model_folder(model), LoadOptions(**loading)
    with work("building kernels") as report:
        device, pack = place(folder, o.device, o.dtype, o.pack, report, o.draft_weights)
    copies = "" if o.draft_weights == "own" else " and its few-bit copy"
    with work(f"loading {folder.name}{copies}", unit_bytes=True) as report:
        return load(folder, **{**loading, "device": device, "pack": pack or None}, progress=report)


def why_off(speculation: str, reason: str) -> str:
    """Whether drafting was off, or off in part, and why. The reason brings its own subject: nothing to repeat here."""
    return f"speculation {speculation}: {reason}"


def make_table(*headers: str) -> Table:
    """A table without frames: figures fit a narrow terminal."""
    return Table(*headers, box=SIMPLE_HEAD, pad_edge=False)


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False))


def megabytes(n: int) -> str:
    if n < 1e5:
        return f"{n / 1e3:,.1f} KB"
    return f"{n / 1e6:,.1f} MB" if n < 1e10 else f"{n / 1e9:,.1f} GB"


def first_difference(a: list[int], b: list[int]) -> int | None:
    """Index of the first token that differs, or where one text ends; None if they are the same."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return None if len(a) == len(b) else min(len(a), len(b))
