"""Trains a model as the bundled one was: LayerSkip's recipe, from scratch; --control trains a twin without the recipe.

Then measures the exits of each, as layerskip/exits.py does. `python bench/train_demo.py DATA... --out DIR [--steps N]`
downloads nothing.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parent / "layerskip"))

import exits
import swiftk
from swiftk.cli import guarded
from swiftk.train.loop import begin, train
from swiftk.train.prepare import reopen
from swiftk.train.settings import Settings

# GSM8K's questions and answers, prose and code went into it; the numbers are in swiftk/models/lm13m/README.md.
DEMO = Settings(
    template="Question: {question}\nAnswer: {answer}",
    layers=16,
    hidden=256,
    heads=8,
    kv_heads=4,
    ffn=704,
    vocab=4096,
    p_max=0.1,
    e_scale=0.2,
    curriculum="rotational",
    dropout_schedule="constant",
    lr=1.5e-3,
    batch=16,
    context=256,
)
TEXTS, NEW_TOKENS = 2, 64  # of each kind, on which exits are measured


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+", help="text files, and JSON lines with fields as in --template")
    parser.add_argument("--out", type=Path, required=True, help="folder for both models; a second run goes on there")
    parser.add_argument("--template", default=DEMO.template, help="text of a JSON line (default: GSM8K's fields)")
    parser.add_argument("--control", action="store_true", help="train the twin without dropout and early exits too")
    for name in ("layers", "hidden", "heads", "kv_heads", "ffn", "steps", "threads"):
        value = getattr(DEMO, name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value, help=f"default: {value}")
    given = vars(parser.parse_args())
    out, control = given.pop("out"), given.pop("control")
    layerskip = replace(DEMO, **{**given, "data": tuple(given["data"])})
    runs = {"layerskip": layerskip, **({"plain": replace(layerskip, p_max=0.0, e_scale=0.0)} if control else {})}
    for name, settings in runs.items():
        if not _trained(out / name, settings):
            return 130
    for name in runs:
        print(f"\n{name}\n\n{exits.table(exits.measure(swiftk.load(out / name), TEXTS, NEW_TOKENS)).markdown()}")
    return 0


def _trained(folder: Path, settings: Settings) -> bool:
    there = (folder / "training" / "run.json").is_file()
    return train(reopen(folder, {}) if there else begin(folder, settings))


if __name__ == "__main__":
    sys.exit(guarded(main, "train_demo"))
