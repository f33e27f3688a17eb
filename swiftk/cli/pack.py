"""swiftk pack: build the kernels of a model for a GPU ahead, for hosts without compilers; or show what a pack holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ..errors import InvalidArgument
from ..files.model_folder import find
from ..gpu import pack
from ..options.generate_options import LoadOptions
from .common import JsonOption, Loading, loads, megabytes, model_folder, out, print_json, work


@loads(only=("dtype",))
def command(
    model: Annotated[
        str | None, typer.Option("--model", help="A Hugging Face folder, or 'demo' for the bundled toy model.")
    ] = None,
    arch: Annotated[
        str | None, typer.Option("--arch", help="GPU architecture: sm_80, sm_90, sm_100, ... Default: this GPU's.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write.")] = None,
    matmuls: Annotated[
        str | None,
        typer.Option(
            "--matmuls", help="Matmul kernels: cuda (16-bit weights only) or triton. Default: cuda if possible."
        ),
    ] = None,
    draft_weights: Annotated[
        str,
        typer.Option(
            "--draft-weights", help="Few-bit copies to support: int4, int3, int8, joined by commas; own: none."
        ),
    ] = "auto",
    drafter: Annotated[
        Path | None,
        typer.Option(
            "--drafter", help="Build for this head or draft model instead. May write several: FILE, FILE-2, ..."
        ),
    ] = None,
    show: Annotated[Path | None, typer.Option("--show", help="Only show what this pack holds.")] = None,
    json: JsonOption = False,
    *,
    loading: Loading,
) -> None:
    """Build GPU kernels ahead of time. It needs no GPU, only compilers: pip install 'swiftk[cuda]'."""
    if show is None:
        if model is None or output is None:
            raise InvalidArgument("[pack] want --model DIR and -o FILE, or --show FILE")
        folder = model_folder(model)
        options = LoadOptions(**loading, draft_weights=draft_weights.split(","))
        shapes, copies = [pack.shape_of(folder, options.dtype)], options.draft_weights
        if drafter:
            drafter = find(drafter, role="drafter")
            shapes = pack.shapes_of_drafter(drafter, folder, options.dtype)
            copies = pack.copies_of_drafter(shapes[0], copies)
        for number, shape in enumerate(shapes, 1):
            path = output.with_stem(f"{output.stem}-{number}") if number > 1 else output
            with work("building kernels") as report:
                pack.build(shape, arch or _this_gpu(), path, report, matmuls, copies)
    _show(show or output, json)


def _this_gpu() -> str:
    from ..gpu.device import architecture

    return architecture("cuda")


def _show(path: Path | None, json: bool) -> None:
    assert path is not None
    header = pack.read_header(path)
    if json:
        print_json(header)
        return
    shape = ", ".join(f"{name} {value}" for name, value in header["shape"].items())
    out.print(f"{path}: {megabytes(path.stat().st_size)} for {header['arch']}, built with {header['built_with']}")
    out.print(f"shape: {shape}")
    table = Table("kernel", "warps", "shared memory", "image", box=None)
    for name, kernel in header["kernels"].items():
        size = kernel["end"] - kernel["begin"]
        table.add_row(name, str(kernel["warps"]), f"{kernel['shared']:,}", f"{size:,}")
    out.print(table)
