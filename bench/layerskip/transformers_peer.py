"""Early exits beside transformers' `assistant_early_exit`: the same weights, exit layer and draft length, greedy.

Every run is a process of its own; runs take turns. Needs torch and transformers (pip install torch transformers),
perhaps of another interpreter: --python PATH.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from statistics import median
from typing import Any

import harness
from compare import Way, run_job, same_start
from demo import grown, prompts
from machine import Machine
from plots import COLOURS, available, picture
from swiftk import _core
from tables import Table

WAYS = (
    ("swiftk", "plain"),
    ("swiftk", "early exit"),
    ("swiftk", "early exit, by time"),
    ("transformers", "plain"),
    ("transformers", "early exit"),
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="seconds: the bundled model, few and short texts")
    parser.add_argument("--model", type=Path, help="checkpoint directory; default: the demo model grown --grow times")
    parser.add_argument("--grow", type=int, default=8)
    parser.add_argument("--exit-layer", type=int, help="default: a quarter of the layers")
    parser.add_argument("--draft", type=int, default=4, help="tokens that each round drafts")
    parser.add_argument("--confidence", type=float, default=0.0, help="below which drafts end early; 0: never")
    parser.add_argument("--repeats", type=int, help="default 3")
    parser.add_argument("--prompts", type=int, help="how many of bench/prompts.jsonl; default 4")
    parser.add_argument("--tokens", type=int, help="new tokens for each prompt; default 64")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--python", default=sys.executable, help="interpreter that has torch and transformers")
    parser.add_argument("--out", type=Path, help="of the results; default bench/results/layerskip, none with --quick")
    given = parser.parse_args()
    given.model = given.model or grown(1 if given.quick else given.grow)
    for name, value in {"repeats": 3, "prompts": 4, "tokens": 64}.items():
        quick = 16 if name == "tokens" else 1
        setattr(given, name, getattr(given, name) or (quick if given.quick else value))
    given.out = given.out or (None if given.quick else harness.BENCH / "results" / harness.FOLDER)
    return given


def measure(given: argparse.Namespace) -> tuple[list[Way], str | None]:
    """The ways with their runs; why transformers is missing, if it is."""
    layers = json.loads((given.model / "config.json").read_text())["num_hidden_layers"]
    given.exit_layer = given.exit_layer or layers // 4
    ways = [Way(*one) for one in WAYS]
    job = {
        "model": str(given.model),
        "threads": given.threads,
        "prompts": prompts(given.model, given.prompts),
        "max_new_tokens": given.tokens,
        "exit_layer": given.exit_layer,
        "draft": given.draft,
        "confidence": given.confidence,
        "lookup": 1,
        "passes": 0,
    }
    for turn in range(given.repeats):
        for way in reversed(ways) if turn == 0 else ways:  # what is missing shows first
            python = given.python if way.peer == "transformers" else sys.executable
            told = run_job({**job, "peer": way.peer, "mode": way.mode}, python)
            if "missing" in told:
                return ways, f"{way.peer}: {told['missing']}"
            way.runs.append(told)
    return ways, None


def acceptance(way: Way) -> float | None:
    """Share of draft tokens that were accepted."""
    texts = way.runs[0]["texts"]
    drafted = sum(text["drafted"] or 0 for text in texts)
    return sum(len(text["tokens"]) - 1 - text["steps"] for text in texts) / drafted if drafted else None


def peak(way: Way) -> int:
    return max(run["peak_bytes"] for run in way.runs)


def table(ways: list[Way]) -> Table:
    found = Table(["", "tokens/s", "best", "of own plain", "M", "alpha", "peak memory", "own plain text", "swiftk's"])
    plain = {way.peer: way for way in ways if way.mode == "plain"}
    for way in ways:
        own, alpha = plain[way.peer], acceptance(way)
        ratio = median(a / b for a, b in zip(way.rates(), own.rates()))
        found.add(
            f"{way.peer}, {way.mode}",
            f"{median(way.rates()):.1f}",
            f"{max(way.rates()):.1f}",
            f"{ratio:.2f}",
            f"{way.tokens_per_step():.2f}",
            "" if alpha is None else f"{alpha:.0%}",
            f"{peak(way) / 1e9:.2f} GB",
            f"{same_start(way.texts(), own.texts()):.0%}",
            f"{same_start(way.texts(), plain['swiftk'].texts()):.0%}",
        )
    return found


def paint(ways: list[Way], path: Path) -> None:
    names = [f"{way.peer}, {way.mode}" for way in ways]
    with picture(path, panels=2, width=10, height=2.6, sharey=True) as axes:
        rates, peaks = [median(way.rates()) for way in ways], [peak(way) / 1e9 for way in ways]
        shown = (("tokens/s", rates, "%.1f"), ("peak memory, GB", peaks, "%.2f"))
        for axis, (title, values, form) in zip(axes, shown):
            colours = [COLOURS[0] if way.peer == "swiftk" else COLOURS[1] for way in ways]
            axis.bar_label(axis.barh(names, values, 0.6, color=colours), fmt=form, padding=2)
            axis.margins(x=0.15)
            axis.set_title(title)
            axis.grid(axis="y", visible=False)
        axes[0].invert_yaxis()


def notes(given: argparse.Namespace, ways: list[Way]) -> list[str]:
    size = sum(f.stat().st_size for f in given.model.glob("*.safetensors"))
    versions = {way.peer: way.runs[0]["version"] for way in ways}
    length = f"{given.draft} tokens a round" + (f", fewer below {given.confidence}" if given.confidence else "")
    machine = Machine.measure(given.threads, _core.isas()[0], ("bfloat16",))
    return [
        machine.describe(),
        f"{given.model.name}, {size / 1e9:.2f} GB of weights; exit layer {given.exit_layer}, {length}; greedy, "
        f"batch 1; {given.repeats} runs of {given.prompts} prompts in turn, {given.tokens} new tokens each",
        "tokens/s: median of the runs, behind the first block of each text; M: tokens per target pass; alpha: draft "
        "tokens accepted; own plain text, swiftk's: share of tokens before the first that differs from those",
        "by time: swiftk's own choice of length and tree for the same exit layer",
        "versions: " + ", ".join(f"{peer} {version}" for peer, version in versions.items()),
    ]


def write(given: argparse.Namespace, ways: list[Way], text: str, told: list[str]) -> None:
    given.out.mkdir(parents=True, exist_ok=True)
    measured: list[dict[str, Any]] = [
        {
            "peer": way.peer,
            "mode": way.mode,
            "tokens_per_second": way.rates(),
            "tokens_per_step": way.tokens_per_step(),
            "acceptance": acceptance(way),
            "peak_bytes": peak(way),
        }
        for way in ways
    ]
    facts = {"model": given.model.name, "notes": told, "ways": measured}
    (given.out / "transformers_peer.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    (given.out / "transformers_peer.md").write_text(text, encoding="utf-8")
    if available():
        paint(ways, given.out / "transformers_peer.png")


def main() -> int:
    given = arguments()
    ways, missing = measure(given)
    if missing:
        print(f"[transformers_peer] {missing}; want torch and transformers (--python names another interpreter)")
        return 1
    told = notes(given, ways)
    text = f"{table(ways).markdown()}\n\n" + "\n".join(f"- {note}" for note in told) + "\n"
    print(text, end="")
    if given.out:
        write(given, ways, text, told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
