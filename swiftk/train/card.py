"""The model card of a head: README.md beside its weights, with the header that Hugging Face reads."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from .drafter_settings import DrafterSettings
from .settings import flag

NAMES = {
    "block": "a block head, like DFlash's and DSpark's",
    "eagle2": "an EAGLE-2 head",
    "eagle3": "an EAGLE-3 head",
    "moa": "a Mixture of Attentions",
    "model": "a small model",
}


def card(s: DrafterSettings, values: int, tokens: int, valid: Sequence[str] | None) -> str:
    """Markdown. values: numbers of its weights; tokens: of the texts that it learned from; valid: the last row of
    valid.csv, None if nothing was held out."""
    target = Path(s.target or "").name.removesuffix(".gguf")
    told = {flag(f): getattr(s, f.name) for f in fields(s) if f.metadata["group"] not in ("data", "run")}
    usual = {flag(f): f.default for f in fields(s)}
    given = shlex.join(str(w) for k, v in told.items() if v is not None and v != usual[k] for w in (k, v))
    data = shlex.join(Path(name).name for name in s.data)
    lines = [
        f"---\nbase_model: {target}\nlibrary_name: swiftk\ntags: [speculative-decoding, {s.kind}]\n---",
        f"# A drafter for {target}\n",
        f"This is {NAMES[s.kind]} of {values / 1e6:.2f} M parameters. It drafts for {target}, which checks each token "
        "that it proposes. So it changes the speed of that model, and none of its text.\n",
        f"    swiftk run {target} --drafter FOLDER\n",
        f"It learned from {tokens:,} tokens, in {s.steps} steps of {s.batch} texts of up to {s.context} tokens:\n",
        f"    python -m swiftk.train drafter {data} {given} --out FOLDER\n".replace(str(s.target), target),
    ]
    if valid is not None:
        step, length, *places = valid
        numbers = "".join(f" {i} |" for i in range(1, len(places) + 1))
        lines += [
            f"On held-out text after {step} steps, its best token was the model's own best this often, by place in a "
            "draft, given that all tokens before were the model's own:\n",
            f"|{numbers} tokens a pass |",
            f"|{'---|' * len(places)}---|",
            "|" + "".join(f" {float(p):.2f} |" for p in places) + f" {float(length):.2f} |",
        ]
    return "\n".join(lines).rstrip() + "\n"
