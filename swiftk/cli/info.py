"""swiftk info: what a checkpoint is and what it takes to run here."""

from __future__ import annotations

from rich.table import Table

from .. import __version__
from .common import (
    JsonOption,
    Loading,
    ModelArgument,
    loads,
    megabytes,
    open_model,
    out,
    print_json,
)


@loads()
def command(
    model: ModelArgument,
    json: JsonOption = False,
    *,
    loading: Loading,
) -> None:
    """Show a model's shape, kernels and memory."""
    lm = open_model(model, loading)
    config = lm.config
    element = 4 if lm.model.dtype == "float32" else 2
    per_token = 2 * config["num_layers"] * config["num_kv_heads"] * config["head_dim"] * element
    facts = {
        "swiftk": __version__,
        "model": str(lm.folder),
        "family": config["model_type"],
        "layers": config["num_layers"],
        "hidden_size": config["hidden_size"],
        "heads": config["num_heads"],
        "kv_heads": config["num_kv_heads"],
        "head_dim": config["head_dim"],
        "ffn": config["ffn"],
        "vocab_size": config["vocab_size"],
        "context": lm.context,
        "device": lm.model.device,
        "isa": lm.model.isa,
        "threads": lm.model.threads,
        "dtype": lm.model.dtype,
        "weight_bytes": lm.model.weight_bytes,
        "cache_bytes": per_token * lm.context,
        "workspace_bytes": lm.session.workspace_bytes,
        "draft_weight_bytes": sum(lm.model.copies.values()),
        "drafters": ", ".join(lm.model.drafters) or "none",
        "drafter_weight_bytes": lm.model.drafter_bytes,
        "tokenizer": lm.tokenizer.available,
        "chat_template": lm.tokenizer.available and lm.tokenizer.has_template,
    }
    if json:
        print_json(facts)
        return
    table = Table(show_header=False, box=None)
    for name, value in facts.items():
        name_shown = "cache when full" if name == "cache_bytes" else name.replace("_bytes", "").replace("_", " ")
        table.add_row(name_shown, megabytes(value) if name.endswith("_bytes") else str(value))
    out.print(table)
