"""Makes data/*.jsonl, the prompts of the paper's experiments, from the full data sets: one line per instance, a list of
turns as raw text, short enough for the demo model. `python -m bench.paper.make_data FOLDER` where FOLDER holds
gsm8k_test.jsonl, HumanEval.jsonl.gz, spec_bench.jsonl, wiki.txt and c4.txt (data/README.md names their homes)."""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from swiftk import demo_model

HERE = Path(__file__).resolve().parent / "data"
COUNT = 20  # instances of a stream
LONGEST = 640  # tokens of a turn: prompt, answer and a second turn stay below the context of 2048
CHAT = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
SINGLE = ("translation", "summarization", "qa", "math_reasoning", "rag")


def trimmed(tokenizer: Tokenizer, text: str) -> str:
    """The text with words left out before its last line, until it has at most LONGEST tokens."""
    body, line, last = text.rpartition("\n")
    words = re.findall(r"\s*\S+", body if line else "")
    while words and len(tokenizer.encode("".join(words) + line + last).ids) > LONGEST:
        del words[-max(1, len(words) // 50) :]
    return "".join(words) + line + last if line else text


def question(text: str) -> str:
    return f"Question: {text.strip()}\nAnswer:"


def records(path: Path) -> Iterator[dict[str, Any]]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def spread(found: list[list[str]]) -> list[list[str]]:
    """COUNT of them, evenly over the whole list."""
    return [found[i * len(found) // COUNT] for i in range(min(COUNT, len(found)))]


def spec_bench(path: Path) -> dict[str, list[list[str]]]:
    """Spec-Bench: its eight chat categories are one stream of two turns, as in its paper."""
    streams: dict[str, list[list[str]]] = {name: [] for name in ("mt-bench", *SINGLE)}
    for one in records(path):
        category, turns = one["category"], one["turns"]
        if category in CHAT:
            streams["mt-bench"].append([question(turns[0]), "\n" + question(turns[1])])
        elif category == "summarization":
            streams[category].append([turns[0].strip() + "\nSummary:"])
        else:
            streams[category].append([question(turns[0])])
    return {name: spread(found) for name, found in streams.items()}


def english(folder: Path) -> list[list[str]]:
    """Beginnings of plain paragraphs, cut in the middle of a sentence; Wikipedia and C4 in turn."""
    wiki = re.findall(r"^<doc [^>]*>\n[^\n]*\n\n([^\n]{500,})", (folder / "wiki.txt").read_text(encoding="utf-8"), re.M)
    lines = (folder / "c4.txt").read_text(encoding="utf-8").splitlines()
    menu = re.compile(r"[|{}»•©]|\b(?:Login|Menu|Search|RSS)\b")
    plain = [line for line in lines if len(line) > 900 and not menu.search(line)]
    # The first sentences of a web page are often its menu.
    c4 = [re.split(r"(?<=[a-z][.!?]) (?=[A-Z])", line, maxsplit=2)[-1] for line in plain]
    both = [text for pair in zip(wiki[:: max(1, len(wiki) // COUNT)], c4) for text in pair]
    return [[" ".join(text.split()[:60])] for text in both if len(text.split()) > 90][:COUNT]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    tokenizer = Tokenizer.from_file(str(demo_model() / "tokenizer.json"))
    gsm8k = [[question(one["question"])] for one in records(folder / "gsm8k_test.jsonl")]
    code = [[one["prompt"]] for one in records(folder / "HumanEval.jsonl.gz")]
    streams = {"gsm8k": spread(gsm8k), "humaneval": spread(code), **spec_bench(folder / "spec_bench.jsonl")}
    streams["english"] = english(folder)
    for name, found in streams.items():
        short = [[trimmed(tokenizer, turn) for turn in turns] for turns in found]
        lines = [json.dumps({"turns": turns}, ensure_ascii=False) for turns in short]
        (HERE / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        longest = max(sum(len(tokenizer.encode(turn).ids) for turn in turns) for turns in short)
        print(f"{name}: {len(lines)} instances, {len(''.join(lines).encode())} bytes, longest {longest} tokens")


if __name__ == "__main__":
    main()
