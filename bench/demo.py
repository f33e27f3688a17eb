"""The bundled model at a real size: grown k times, kept in the cache folder; and prompts in its tokens."""
from __future__ import annotations

import json
import os
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from tokenizers import Tokenizer

from swiftk import demo_model
from swiftk.folders import cache_folder
from swiftk.testing import grow

_PROMPTS = Path(__file__).with_name("prompts.jsonl")


def grown(k: int) -> Path:
    """Directory of the demo model k times as wide (k * k times the layer weights); made once."""
    if k == 1:
        return demo_model()
    folder = cache_folder() / f"lm13m-x{k}"
    if (folder / "config.json").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f"{folder.name}.{os.getpid()}")
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"growing to {folder}", total=None)
        grow(demo_model(), partial, k, progress=lambda done, total: progress.update(task, completed=done, total=total))
    partial.rename(folder)  # whole or not at all
    return folder


def prompts(model_dir: Path, count: int | None = None) -> list[list[int]]:
    """Token ids of the first prompts: word problems, code and prose in turn."""
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    lines = _PROMPTS.read_text(encoding="utf-8").splitlines()
    return [tokenizer.encode(json.loads(line)["text"]).ids for line in lines[:count]]


def long_prompt(model_dir: Path, tokens: int) -> list[int]:
    """All prompts one after another, over and over, cut at `tokens`."""
    ids = [token for prompt in prompts(model_dir) for token in prompt]
    return (ids * (tokens // len(ids) + 1))[:tokens]
