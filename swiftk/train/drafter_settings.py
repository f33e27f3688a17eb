"""Training of a head: every option once, as settings.py has a model's."""

from __future__ import annotations

from dataclasses import dataclass

from .settings import Checked, option, precision

GROUPS = {
    "data": "the texts",
    "drafter": "what is trained, and for which model",
    "optimization": "AdamW, with warmup and a cosine",
    "run": "the machine, and what is written when",
}
KINDS = {
    "block": "a block of tokens in one pass: DFlash, DSpark",
    "eagle3": "one token per pass",
    "eagle2": "predicts the model's last states: EAGLE-1 and 2",
    "moa": "Mixture of Attentions: reads K and V of all layers",
    "model": "a small model of its own, which learns the model's distributions",
}


@dataclass(frozen=True, slots=True)
class DrafterSettings(Checked):
    """None: depends on the model; the help says how."""

    data: tuple[str, ...] = option((), "data", "UTF-8 text files, and JSON lines (.jsonl); both also as .gz")
    field: str | None = option(
        None,
        "data",
        "the field of a JSON line that is its text; default: text, messages (a chat), or prompt and completion, of "
        "which answers alone are learned",
    )
    template: str | None = option(
        None, "data", r"the text of a JSON line from several fields: 'Question: {question}\nAnswer:'"
    )
    held_out: float = option(0.02, "data", "share of each file, from its end, kept for validation", least=0, most=0.5)

    kind: str = option("block", "drafter", ", ".join(f"{k} ({about})" for k, about in KINDS.items()), choices=(*KINDS,))
    target: str | None = option(None, "drafter", "Hugging Face folder of the model to draft for")
    layers: int | None = option(
        None, "drafter", "block, model: number of layers; default: 2 and 4 (other kinds have one)", least=1
    )
    hidden: int | None = option(
        None,
        "drafter",
        "model: hidden size, a multiple of the model's head size; default: half of the model's",
        least=1,
    )
    block: int = option(8, "drafter", "block: tokens per block", least=2, most=64)
    taps: int = option(3, "drafter", "block, eagle3: number of model layers whose outputs the head reads", least=1)
    rank: int = option(64, "drafter", "block: rank of the bias that depends on the token before; 0: no bias", least=0)
    mask: int = option(
        0, "drafter", "block: id of a token that marks positions not known yet; texts should not have it", least=0
    )
    steps_ahead: int = option(
        5, "drafter", "eagle3: steps unrolled in training; eagle2, model: steps in validation", least=1, most=16
    )
    draft_vocab: int | None = option(
        None, "drafter", "block, eagle3: draft at most this many tokens, the most frequent ones; default: all", least=1
    )
    target_layers: int = option(
        0, "drafter", "moa: number of the model's last layers that run after the head (TLI)", least=0
    )
    ahead: int = option(7, "drafter", "moa: number of tokens ahead that validation reports", least=1, most=63)

    steps: int = option(2000, "optimization", "steps of the optimizer, T", least=1, most=1 << 24)
    batch: int = option(4, "optimization", "sequences at a time", least=1)
    context: int = option(256, "optimization", "tokens per sequence", least=32)
    anchors: int = option(40, "optimization", "block: positions per sequence that one step drafts from", least=1)
    decay: float | None = option(
        None,
        "optimization",
        "weight of each draft position over the one before; default: 0.85, eagle3 0.8",
        least=0,
        most=1,
    )
    tv: float = option(
        0.5, "optimization", "block: share of total variation in the loss; the rest is cross-entropy", least=0, most=1
    )
    kl: float = option(
        0.1, "optimization", "moa: weight of the KL divergence in the loss, beside the error of states", least=0
    )
    lr: float = option(1.5e-3, "optimization", "peak learning rate", least=0)
    warmup: int = option(50, "optimization", "steps of linear warmup", least=0)
    lr_end: float = option(0.05, "optimization", "learning rate at the end, as a share of the peak", least=0, most=1)
    weight_decay: float = option(0.01, "optimization", "weight decay of matrices; norms have none", least=0)
    beta1: float = option(0.9, "optimization", "AdamW's decay of the mean", least=0, most=0.9999)
    beta2: float = option(0.95, "optimization", "AdamW's decay of the square", least=0, most=0.99999)
    clip: float = option(1.0, "optimization", "maximum norm of the gradient; 0: no limit", least=0)
    seed: int = option(0, "optimization", "seed for new weights and for the positions that a step uses", least=0)
    precision: str | None = precision()

    device: str = option("auto", "run", "cpu, cuda, cuda:N; auto: a GPU if there is one")
    threads: int | None = option(None, "run", "CPU threads; default: torch's choice", least=1)
    log_every: int = option(10, "run", "steps between rows of loss.csv", least=1)
    eval_every: int = option(250, "run", "steps between validations", least=1)
    eval_batches: int = option(8, "run", "maximum number of batches per validation", least=1)
    save_every: int = option(250, "run", "steps between checkpoints to resume from", least=1)
