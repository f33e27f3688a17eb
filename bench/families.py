"""What does a family's own arithmetic cost: steps and prompts of each, beside LLaMA's of the same shape.

The checkpoints are random, with as many layers, units, heads and tokens as LLaMA's, so that only norms, activations,
scales, caps and rotary tables differ.
"""

from __future__ import annotations

from pathlib import Path
from statistics import geometric_mean, median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from swiftk import _core
from swiftk.testing import make_tiny

from .harness import Study

NOTES = (
    "Each family's steps take turns with LLaMA's, after 128 tokens, in bf16; the ratio is the median over pairs, and "
    "the mean of two loads, as where a model's pages lie tells as much: each of the two is loaded first once. "
    "A step of 16 rows is a verification. Matrices have the same sizes, except biases where a family has them. "
    "Gemma's norms, two more in each layer and one of each head, and its GELU are the most that a family adds."
)
SHAPE = {"hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 4}
SHAPE |= {
    "head_dim": 64,
    "layers": 8,
    "vocab": 32000,
    "tied": False,
    "tokenizer": False,
    "max_position_embeddings": 1024,
}
SMALL = {"hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4, "num_key_value_heads": 2}
SMALL |= {"head_dim": 32, "layers": 2, "vocab": 400, "tied": False, "tokenizer": False, "max_position_embeddings": 1024}
# By name: the row of swiftk.testing, and what of it would be of another size.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "LLaMA again": ("llama2", {}),
    "Qwen3": ("qwen3", {}),
    "Ministral 3": ("ministral3", {}),
    "SmolLM3": ("smollm3", {}),
    "Granite": ("granite", {}),
    "Gemma 2": ("gemma2", {"sliding_window": 4096}),
    "Gemma 3": ("gemma3", {"sliding_window": 4096}),
    "OLMo 2": ("olmo2", {}),
    "OLMo 3": ("olmo3", {"sliding_window": 4096}),
    "EXAONE 4": ("exaone4", {"sliding_window": 4096}),
    "Hunyuan": ("hunyuan", {}),
    "ERNIE 4.5": ("ernie4.5", {}),
    "Phi-3": ("phi3", {"sliding_window": None, "partial_rotary_factor": 0.75}),
    "Seed-OSS": ("seed-oss", {}),
}
CONTEXT, ROWS, PROMPT, ROUNDS = 128, 16, 512, 25


class Steps:
    """A model after a text."""

    def __init__(self, folder: Path, threads: int | None) -> None:
        self.model = _core.Model(str(folder), threads=threads or 0)
        self.session = _core.Session(self.model, context=CONTEXT + PROMPT)
        self.ids = np.random.default_rng(0).integers(3, self.model.config["vocab_size"], PROMPT).astype(np.int32)
        self.prompt()

    def prompt(self) -> float:
        """Seconds of the longer prompt; the shorter one is the text then."""
        seconds = {}
        for n in (PROMPT, CONTEXT):
            self.session.reuse(self.ids[:1] ^ 1)
            self.session.prefill(self.ids[:n])
            seconds[n] = self.session.last["prefill"]
        return seconds[PROMPT]

    def step(self) -> tuple[float, float]:
        """Seconds of one row, and of several."""
        session = self.session
        session.draft(_core.TreeRule(max_draft=0))
        session.verify()
        one = session.last["verify"]
        session.set_tree(self.ids[: ROWS - 1], np.arange(ROWS - 1, dtype=np.int32))
        session.verify()
        return one, session.last["verify"]


def main() -> None:
    study = Study("families", __doc__)
    shape = SMALL if study.quick else SHAPE
    rounds = 2 if study.quick else ROUNDS
    with TemporaryDirectory() as work:
        usual = make_tiny(Path(work) / "llama", "llama2", **shape)
        for name, (family, fields) in study.parts(FAMILIES, forget=False):
            folder = make_tiny(Path(work) / family, family, **{**fields, **shape})
            pairs, prompts = [], []
            # A model's place in memory changes its speed as much as its arithmetic does. So the pair is loaded twice,
            # and each of the two comes first once.
            for folders in ((folder, usual), (usual, folder)):
                loaded = {one: Steps(one, study.threads) for one in folders}
                its, theirs = loaded[folder], loaded[usual]
                pairs.append([(its.step(), theirs.step()) for _ in study.each(range(rounds))])
                prompts += [its.prompt() / theirs.prompt() for _ in range(1 if study.quick else 3)]
                del loaded, its, theirs
            row = {"part": name, "ms": 1e3 * median(mine[0] for some in pairs for mine, _ in some)}
            for at, kind in enumerate(("one", "several")):
                row[kind] = geometric_mean(median(mine[at] / other[at] for mine, other in some) for some in pairs)
            study.rows.append({**row, "prompt": geometric_mean(prompts)})
            for file in folder.iterdir():
                file.unlink()
    columns = {"family": "part", "a plain step, ms": "ms:.2f", "over LLaMA's": "one:.3f"}
    columns |= {f"{ROWS} rows over LLaMA's": "several:.3f", f"a prompt of {PROMPT} over LLaMA's": "prompt:.3f"}
    study.finish(columns, NOTES)


if __name__ == "__main__":
    main()
