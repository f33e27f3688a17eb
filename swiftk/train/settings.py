"""A training run: every option once, with its group, range and help. Source of command line and run.json."""

from __future__ import annotations

import math
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgument

if TYPE_CHECKING:
    from typing_extensions import Self

GROUPS = {
    "data": "the texts",
    "model": "a checkpoint to continue, or the shape of a new model",
    "recipe": "LayerSkip; the names are the paper's (arXiv 2404.16710, section 4.1)",
    "optimization": "AdamW, with warmup and a cosine",
    "run": "the machine, and what is written when",
}
CURRICULA = ("rotational", "gradual", "all")
SCHEDULES = ("constant", "exp")
NEW_MODEL = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "max_positions", "rope_theta", "untied")


def option(default: Any, group: str, help: str, **facts: Any) -> Any:
    """facts: least and most, choices, flag (where it is not the field's name), metavar."""
    return field(default=default, metadata={"group": group, "help": help, **facts})


def precision() -> Any:
    return option(
        None,
        "optimization",
        "dtype of matrix products; weights stay float32. Default: bfloat16 on a GPU, float32 on a CPU; bfloat16 is "
        "faster on a CPU with AMX",
        choices=("float32", "bfloat16"),
    )


class Checked:
    """Fields made by option(), whose ranges hold."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name == "data" or value is None:
                continue
            least, most = f.metadata.get("least", -math.inf), f.metadata.get("most", math.inf)
            if isinstance(value, (int, float)) and not least <= value <= most:
                limits = f"at least {least}" if most == math.inf else f"{least} to {most}"
                raise InvalidArgument(f"[train] {flag(f)} is {value}, want {limits}")
            choices = f.metadata.get("choices")
            if choices and value not in choices:
                raise InvalidArgument(f"[train] {flag(f)} is {value!r}, want one of {', '.join(choices)}")

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "data": list(self.data)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise InvalidArgument(f"[train] {unknown[0]!r} is no setting of a run, want {', '.join(sorted(known))}")
        return cls(**{**values, "data": tuple(values.get("data", ()))})


@dataclass(frozen=True, slots=True)
class Settings(Checked):
    """None: depends on the model; the help says how."""

    data: tuple[str, ...] = option((), "data", "UTF-8 text files, and JSON lines (.jsonl); both also as .gz")
    field: str | None = option(
        None,
        "data",
        "the field of a JSON line that is its text; default: text, messages (a chat), or prompt and completion, of "
        "which answers alone are learned",
    )
    template: str | None = option(
        None, "data", r"the text of a JSON line from several fields: 'Question: {question}\nAnswer: {answer}'"
    )
    held_out: float = option(0.02, "data", "share of each file, from its end, kept for validation", least=0, most=0.5)
    tokenizer: str | None = option(
        None, "data", "folder with a tokenizer.json; default: the model's own, or a byte-level BPE trained on the data"
    )

    model: str | None = option(None, "model", "Hugging Face folder to continue from; without it a new model is made")
    layers: int = option(12, "model", "number of layers", least=2)
    hidden: int = option(192, "model", "hidden size", least=1)
    heads: int = option(6, "model", "attention heads", least=1)
    kv_heads: int | None = option(None, "model", "key-value heads; default: as many as heads", least=1)
    ffn: int | None = option(None, "model", "MLP width; default: 8/3 of the hidden size, in steps of 32", least=1)
    vocab: int = option(4096, "model", "size of the BPE vocabulary; a given tokenizer keeps its own", least=259)
    max_positions: int = option(2048, "model", "longest text that the model will be used for, in tokens", least=2)
    rope_theta: float = option(10000.0, "model", "base of the rotary frequencies", least=1)
    untied: bool = option(False, "model", "a vocabulary head with weights of its own, not the embedding's")
    export_dtype: str | None = option(
        None,
        "model",
        "dtype of the written weights; default: bfloat16 for a new model, else the checkpoint's",
        choices=("float32", "bfloat16", "float16"),
    )

    p_max: float = option(0.1, "recipe", "dropout rate of the last layer when S(t) is 1; 0: none", least=0, most=1)
    e_scale: float = option(0.2, "recipe", "weight of the early exits in the loss; 0: none", least=0, most=1)
    curriculum: str = option(
        "rotational",
        "recipe",
        "exits trained at a step: every R-th in rotation, or from the last down (one more every T/2L steps), or all",
        choices=CURRICULA,
    )
    rotation: int | None = option(
        None, "recipe", "R of the rotation; default: layers - 1 from scratch, 8 for a checkpoint", flag="--R", least=1
    )
    dropout_schedule: str | None = option(
        None, "recipe", "S(t); default: exp from scratch, constant for a checkpoint", choices=SCHEDULES
    )

    steps: int = option(2000, "optimization", "steps of the optimizer, T", least=1, most=1 << 24)
    batch: int = option(16, "optimization", "sequences at a time", least=1)
    accumulate: int = option(1, "optimization", "batches whose gradients are summed for one step", least=1)
    context: int = option(256, "optimization", "tokens per sequence", least=2)
    lr: float | None = option(
        None, "optimization", "peak learning rate; default: 1e-3 from scratch, 3e-5 for a checkpoint", least=0
    )
    warmup: int = option(100, "optimization", "steps of linear warmup", least=0)
    lr_end: float = option(0.1, "optimization", "learning rate at the end, as a share of the peak", least=0, most=1)
    weight_decay: float = option(0.05, "optimization", "weight decay of matrices; norms and biases have none", least=0)
    beta1: float = option(0.9, "optimization", "AdamW's decay of the mean", least=0, most=0.9999)
    beta2: float = option(0.95, "optimization", "AdamW's decay of the square", least=0, most=0.99999)
    clip: float = option(1.0, "optimization", "maximum norm of the gradient; 0: no limit", least=0)
    seed: int = option(0, "optimization", "seed for new weights, the order of texts, and dropped layers", least=0)
    precision: str | None = precision()
    compile: bool = option(
        False,
        "optimization",
        "compile layers with torch.compile: faster after a minute; on a CPU it needs a C++ compiler",
    )

    device: str = option("auto", "run", "cpu, cuda, cuda:N; auto: a GPU if there is one")
    threads: int | None = option(None, "run", "CPU threads; default: torch's choice", least=1)
    recompute: bool = option(False, "run", "run layers and exits again in the backward pass: less memory, more time")
    log_every: int = option(1, "run", "steps between rows of loss.csv", least=1)
    eval_every: int = option(200, "run", "steps between validations", least=1)
    eval_batches: int = option(16, "run", "maximum number of batches per validation", least=1)
    save_every: int = option(200, "run", "steps between checkpoints to resume from", least=1)


def flag(f: Any) -> str:
    """Name of a field on the command line."""
    return f.metadata.get("flag", "--" + f.name.replace("_", "-"))


def default(f: Any) -> Any:
    return None if f.default is MISSING else f.default
