"""swiftk convert: write a model as it lies in memory, so that later loads map it instead of packing it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import _core
from ..api import convert
from ..options.load_options import LoadOptions
from .common import JsonOption, Loading, ModelArgument, loads, megabytes, model_folder, out, print_json, work


@loads(only=("dtype", "draft_weights", "draft_memory", "threads"))
def command(
    model: ModelArgument,
    output: Annotated[
        Path, typer.Argument(metavar="OUT", help="A file to write if MODEL is a GGUF file, else a folder.")
    ],
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False,
    json: JsonOption = False,
    *,
    loading: Loading,
) -> None:
    """Write a model with its weights as they lie in memory, few-bit copies included, so that loading packs nothing."""
    folder = model_folder(model)
    LoadOptions(**loading)
    with work(f"converting {folder.name}", unit_bytes=True) as report:
        written = convert(folder, output, force=force, progress=report, **loading)
    found = _core.survey(str(written), draft_weights="auto")
    size = sum(file.stat().st_size for file in ([written] if written.is_file() else written.iterdir()))
    facts = {"path": str(written), "bytes": size, "dtype": found["dtype"], "draft_weights": list(found["copies"])}
    if json:
        print_json(facts)
        return
    copies = f", with a copy in {' and '.join(found['copies'])}" if found["copies"] else ""
    out.print(f"{written}: {megabytes(size)}, {found['dtype']} weights{copies}")
