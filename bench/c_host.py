"""A host in C against Python, both as they come: the default on the same prompts, one text at a time, in turn."""

from __future__ import annotations

import subprocess
from pathlib import Path
from time import perf_counter
from typing import Any

from swiftk import LM

from .harness import Study

ROOT = Path(__file__).resolve().parents[1]
PROMPT = 200  # tokens, at most
STREAMS = ("gsm8k", "humaneval", "summarization", "english")
WAYS = ("C", "Python", "C, plain", "Python, plain")
NOTES = (
    "tokens/s: after the first token, by the times of the callback and of the stream's events. Greedy. Each keeps its "
    "statistics from text to text. C: bench/embedded/host.c, a process of its own."
)


class Host:
    """bench/embedded/host.c, built where it is not."""

    def __init__(self, model: Path) -> None:
        folder = ROOT / "build" / "embedded"
        for command in (["-S", ROOT / "bench" / "embedded", "-B", folder, "-DCMAKE_BUILD_TYPE=Release"],
                        ["--build", folder, "-j", "2"]):  # fmt: skip
            subprocess.run(["cmake", *map(str, command)], check=True, stdout=subprocess.DEVNULL)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen([str(folder / "host"), str(model)], **pipes)

    def __call__(self, prompt: list[int], tokens: int, speculate: bool) -> tuple[float, list[int]]:
        print(tokens, int(speculate), *prompt, file=self._process.stdin, flush=True)
        seconds, *found = self._process.stdout.readline().split()
        return float(seconds), list(map(int, found))


def in_python(lm: LM, prompt: list[int], tokens: int, speculate: bool) -> tuple[float, list[int]]:
    stream = lm.submit(prompt, max_new_tokens=tokens, speculate=speculate, temperature=0.0, ignore_eos=True)
    found, began = [next(stream).token], perf_counter()
    found += [event.token for event in stream]
    return perf_counter() - began, found


def row(part: str, some: list[dict[str, Any]]) -> dict[str, Any]:
    """Sums of texts: each has the seconds of every way, and whether all wrote the same."""
    taken = {way: sum(text[way] for text in some) for way in WAYS}
    found = {f"{way} rate": sum(text["tokens"] for text in some) / seconds for way, seconds in taken.items()}
    found |= {"over": taken["Python"] / taken["C"], "plain_over": taken["Python, plain"] / taken["C, plain"]}
    return {"part": part, **found, "same": all(text["same"] for text in some)}


def main() -> None:
    study, every = Study("c_host", __doc__, tokens=128, streams=STREAMS, loading={}), []
    if study.asked:
        raise SystemExit(
            f"[c_host] --{next(iter(study.asked))}: the host in C loads as the header says, and no other way"
        )
    host, order = Host(study.folder), list(WAYS)
    for name, _ in study.parts(dict.fromkeys(study.streams), forget=False):
        some = []
        for text in study.each(study.texts(name, most=PROMPT)):
            found, written = {"tokens": study.tokens - 1}, []
            for way in order:
                asked = text.prompt, study.tokens, "plain" not in way
                found[way], tokens = host(*asked) if way.startswith("C") else in_python(study.lm, *asked)
                written.append(tokens)
            some.append({**found, "same": all(tokens == written[0] for tokens in written)})
            order.reverse()
        study.rows.append(row(name, some))
        every += some
    study.rows.append(row("all", every))
    columns = {"stream": "part", "C, tokens/s": "C rate:.1f", "Python, tokens/s": "Python rate:.1f"}
    columns |= {"C over Python": "over:.3f", "plain": "plain_over:.3f", "output equal": "same"}
    study.finish(columns, NOTES)


if __name__ == "__main__":
    main()
