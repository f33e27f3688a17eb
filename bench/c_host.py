"""A host in C against Python, both as they come: the default on the same prompts, one text at a time, in turn."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path[1:1] = [str(Path(__file__).with_name("paper"))]

from batch import PROMPT, BatchStudy  # noqa: E402
from runs import Part  # noqa: E402
from streams import NAMES, stream  # noqa: E402
from study import Kept, Work  # noqa: E402
from tables import Table  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
NOTES = (
    "tokens/s behind the first token, as the host's callback and the stream's events come; greedy; each keeps what it "
    "learned from text to text; C: bench/embedded/host.c, a process of its own",
)


def build() -> Path:
    folder = ROOT / "build" / "embedded"
    for command in (["-S", ROOT / "bench" / "embedded", "-B", folder, "-DCMAKE_BUILD_TYPE=Release"],
                    ["--build", folder, "-j", "2"]):
        subprocess.run(["cmake", *map(str, command)], check=True, stdout=subprocess.DEVNULL)
    return folder / "host"


class Host:
    def __init__(self, folder: Path) -> None:
        command = [str(build()), str(folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, prompt: list[int], tokens: int, speculate: bool) -> tuple[float, list[int]]:
        print(tokens, int(speculate), *prompt, file=self._process.stdin, flush=True)
        seconds, *found = self._process.stdout.readline().split()
        return float(seconds), list(map(int, found))


def in_python(lm: Any, prompt: list[int], tokens: int, speculate: bool) -> tuple[float, list[int]]:
    found, began = [], 0.0
    for event in lm.submit(prompt, max_new_tokens=tokens, speculate=speculate, temperature=0.0, ignore_eos=True):
        began = began or perf_counter()
        found.append(event.token)
    return perf_counter() - began, found


def main() -> None:
    study = BatchStudy("c_host", __doc__, instances=2, tokens=128, streams=NAMES, folder="")
    host = Host(study.model_dir)

    def work(name: str) -> Work:
        def do(part: Part) -> dict[str, Any]:
            sums: dict[str, float] = dict.fromkeys(("C", "Python", "C, plain", "Python, plain"), 0.0)
            same = True
            for number, instance in enumerate(stream(name, study.model_dir, study.instances)):
                prompt, texts = list(instance.turns[0])[:PROMPT], []
                for way in sorted(sums, reverse=bool(number % 2)):
                    speculate = "plain" not in way
                    asked = prompt, study.tokens, speculate
                    seconds, tokens = host(*asked) if way.startswith("C") else in_python(study.lm, *asked)
                    sums[way] += seconds
                    texts.append(tokens)
                same &= all(text == texts[0] for text in texts)
                part.tick()
            return {"seconds": sums, "tokens": (study.tokens - 1) * study.instances, "same": same, "cut": False}

        return study.work([], [], do, stream=name, count=study.instances)

    study.run({name: work(name) for name in study.streams}, table, NOTES)


def added(parts: list[dict[str, Any]]) -> dict[str, Any]:
    seconds = {way: sum(part["seconds"][way] for part in parts) for way in parts[0]["seconds"]}
    return {
        "seconds": seconds,
        "tokens": sum(part["tokens"] for part in parts),
        "same": all(part["same"] for part in parts),
    }


def table(kept: Kept) -> Table:
    found = Table(["stream", "C, tokens/s", "Python, tokens/s", "C over Python", "plain", "output"])
    for name, part in {**kept, "all": added(list(kept.values()))}.items():
        rate = {way: part["tokens"] / seconds for way, seconds in part["seconds"].items()}
        found.add(
            name,
            f"{rate['C']:.1f}",
            f"{rate['Python']:.1f}",
            f"{rate['C'] / rate['Python']:.3f}",
            f"{rate['C, plain'] / rate['Python, plain']:.3f}",
            "same" if part["same"] else "DIFFERS",
        )
    return found


if __name__ == "__main__":
    main()
