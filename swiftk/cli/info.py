"""swiftk info: what a checkpoint is and what it takes to run here, by its config and the headers of its weights. Where
passes would read weights from disk, it measures how fast that is; no weight is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from .. import __version__, _core
from ..api import native_options
from ..files.converted import streamed_file
from ..files.model_files import open_model_files
from ..files.model_folder import find
from ..gpu.device import architecture, choose
from ..options.generation_config import read_defaults
from ..options.load_options import LoadOptions
from ..search.used_tokens import UsedTokens, draft_tokens
from ..text.tokenizer import Tokenizer
from .common import (
    JsonOption,
    Loading,
    ModelArgument,
    loads,
    megabytes,
    model_folder,
    out,
    print_json,
)
from .plan import NOTHING, disk_speed, forecast, forecast_rows, rows

_WORDS = {  # as a person reads them; other names are their own
    "weight_bytes": "weights",
    "draft_weight_bytes": "few-bit copies and trimmed head",
    "drafter_weight_bytes": "drafters' weights",
    "load_bytes": "memory after loading",
    "free_bytes": "free memory now",
    "kv_bytes_per_token": "K and V of a token",
    "cache_bytes": "K and V of a full context",
}


@loads()
def command(
    model: ModelArgument,
    json: JsonOption = False,
    *,
    loading: Loading,
) -> None:
    """Show a model's shape, the kernels it would use, and its memory. Loads no weights."""
    folder, o = model_folder(model), LoadOptions(**loading)
    device, tokenizer = choose(o.device), Tokenizer(o.tokenizer or folder)
    found = _survey(folder, o, device, tokenizer)
    config = found["config"]
    context = o.context or config["max_position"]
    copies = sum(found["copies"].values()) + found["trimmed_bytes"]
    plan = found["memory"] if device == "cpu" else NOTHING
    facts = {
        "swiftk": __version__,
        "model": str(folder),
        "family": config["model_type"],
        "layers": config["num_layers"],
        "hidden_size": config["hidden_size"],
        "heads": config["num_heads"],
        "kv_heads": config["num_kv_heads"],
        "head_dim": config["head_dim"],
        "ffn": config["ffn"],
        "vocab_size": config["vocab_size"],
        "context": context,
        "device": device,
        "isa": found["isa"] if device == "cpu" else architecture(device),
        "threads": found["threads"],
        "dtype": found["dtype"],
        "draft_weights": ", ".join(found["copies"]) or "none",
        "draft_vocab": found["draft_tokens"] or "all",
        "drafters": ", ".join(found["drafters"]) or "none",
        "tokenizer": tokenizer.available,
        "chat_template": tokenizer.available and tokenizer.has_template,
        "weight_bytes": found["weight_bytes"],
        "draft_weight_bytes": copies,
        "drafter_weight_bytes": found["drafter_bytes"],
        "load_bytes": found["weight_bytes"] - plan["streamed"] + copies + found["drafter_bytes"],
        "free_bytes": found["free_bytes"],
        "kv_bytes_per_token": found["kv_bytes_per_token"],
        "cache_bytes": found["cache_bytes"] if device == "cpu" else found["kv_bytes_per_token"] * context,
    }
    disk = _forecast(folder, o, found) if plan["streamed"] else None
    if json:
        print_json({**facts, "memory": plan, "disk": disk})
        return
    table = Table(show_header=False, box=None)
    for name, value in facts.items():
        words = _WORDS.get(name, name.replace("_", " "))
        table.add_row(words, str(value) if name not in _WORDS else megabytes(value) if value else "none")
    for row in [*rows(plan), *(forecast_rows(disk) if disk else [])]:
        table.add_row(*row)
    out.print(table)


def _forecast(folder: Path, o: LoadOptions, found: dict[str, Any]) -> dict[str, Any]:
    """Of a model that is read from disk for each pass, by what disk and memory give now."""
    speed = disk_speed(streamed_file(open_model_files(folder), o.dtype, found))
    read, _ = _core.probe(isa=found["isa"], threads=found["threads"])
    return forecast(found["memory"]["streamed"], speed, found["copies"], read)


def _survey(folder: Path, o: LoadOptions, device: str, tokenizer: Tokenizer) -> dict[str, Any]:
    files = open_model_files(folder)
    ends = read_defaults(files).eos_token_ids
    trimmed = draft_tokens(o.draft_vocab, device, UsedTokens(files), tokenizer, ends)
    drafters = [find(one, role="drafter") for one in o.drafter]
    if o.memory:
        tokenizer.keep()  # as a load does
    return _core.survey(str(folder), **native_options(o, drafters, trimmed))
