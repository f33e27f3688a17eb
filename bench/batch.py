"""Many texts at a time: total tokens per second of an engine with B of them, plain and by default, beside one text.

With --python-llama PATH, an interpreter that has llama-cpp-python and gguf, llama.cpp decodes the same texts as well.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

sys.path[1:1] = [str(Path(__file__).with_name("paper"))]

import numpy as np  # noqa: E402

from compare import gguf, why  # noqa: E402
from plots import break_even, picture  # noqa: E402
from runs import SAMPLED, Part  # noqa: E402
from streams import NAMES, stream  # noqa: E402
from study import Kept, Study, Work  # noqa: E402
from swiftk import _core  # noqa: E402
from tables import Table  # noqa: E402

SIZES = (1, 2, 4, 8, 16)
SAMPLINGS = {"greedy": {}, "T .6": SAMPLED}
PROMPT = 200  # tokens of a prompt, at most
CONTEXT = 1024  # tokens of a text, at most
BLOCK = 2  # rounds of one text's share that a lane goes on before the next one does
LLAMA = ("bf16", "f16", "q8_0", "q4_0")
PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
CALM = 0.02  # seconds: a process's idle threads spin for some milliseconds, on the cores that the next one needs
NOTES = (
    "B texts that begin together and do not end: prompts of all streams in turn; seconds behind the last one's first "
    "token; one: a single text, plain; M: tokens of a text per round",
    "side by side in one process, each on an engine of its own, a few rounds each in turn",
)


class BatchStudy(Study):
    loading = {"draft_weights": "auto"}  # noqa: RUF012


@dataclass
class Lane:
    """An engine with some texts under way."""

    engine: Any
    drafting: str
    tokens: int = 0
    rounds: int = 0
    seconds: float = 0.0
    boxes: dict[int, Any] = field(default_factory=dict)
    texts: dict[int, list[int]] = field(default_factory=dict)

    def submit(self, prompts: Sequence[Sequence[int]], **options: Any) -> None:
        """Up to each one's first token."""
        for prompt in prompts:
            number = self.engine.submit(
                self.boxes, np.int32(prompt), max_new_tokens=1 << 20, drafting=self.drafting, **options
            )
            self.texts[number] = []
        while not all(self.texts.values()):
            self._step()

    def go_on(self, tokens: int) -> None:
        """Until it has so many tokens."""
        while self.tokens < tokens:
            began = perf_counter()
            found = self._step()
            self.seconds += perf_counter() - began
            self.tokens += found
            self.rounds += 1

    def _step(self) -> int:
        self.engine.step(self.boxes)
        before = sum(map(len, self.texts.values()))
        for number, box in self.boxes.items():
            while box:
                self.texts[number] += [one.token for one in box.popleft().tokens]
        return sum(map(len, self.texts.values())) - before

    def clear(self) -> None:
        for number in self.boxes:
            self.engine.cancel(number)
        while not self.engine.idle():
            self.engine.step(self.boxes)
        self.boxes.clear()
        self.texts.clear()


@dataclass
class Peer:
    """A lane of bench/peers/llama_batch.py's."""

    process: subprocess.Popen[str]
    tokens: int = 0
    rounds: int = 0
    seconds: float = 0.0
    texts: dict[int, list[int]] = field(default_factory=dict)

    def submit(self, prompts: Sequence[Sequence[int]], **_: Any) -> None:
        first = self._ask(prompts=prompts)["tokens"][0]
        self.texts = {number: [token] for number, token in enumerate(first)}

    def go_on(self, tokens: int) -> None:
        sleep(CALM)
        found = self._ask(rounds=(tokens - self.tokens) // len(self.texts))
        sleep(CALM)
        for number, text in self.texts.items():
            text += [some[number] for some in found["tokens"]]
        self.tokens = tokens
        self.rounds += len(found["tokens"])
        self.seconds += found["seconds"]

    def _ask(self, **job: Any) -> dict[str, Any]:
        print(json.dumps(job), file=self.process.stdin, flush=True)
        if not (line := self.process.stdout.readline()):
            raise RuntimeError(f"[batch] llama.cpp ended with status {self.process.wait()}")
        return json.loads(line)

    def clear(self) -> None:
        self.texts = {}


def measure(
    study: Study,
    prompts: Iterator[list[int]],
    size: int,
    sampling: dict[str, Any],
    part: Part,
    peers: Mapping[str, Peer],
) -> dict[str, Any]:
    model = study.lm.model

    def lane(drafting: str, texts: int) -> Lane:
        return Lane(_core.Engine(model, context=CONTEXT, sequences=texts), drafting)

    lanes = {"one": lane("off", 1), "plain": lane("off", size), "default": lane("planned", size), **peers}
    same = True
    equal = dict.fromkeys(peers, 0)
    for number in range(study.instances):
        some = [next(prompts) for _ in range(size)]
        for name, one in lanes.items():
            one.tokens, done = 0, 0
            one.submit(some[:1] if name == "one" else some, seed=number, **sampling)
        while done < study.tokens:
            done += BLOCK
            for name, one in lanes.items():
                one.go_on(done * (1 if name == "one" else size))
        for plain, drafted in zip(lanes["plain"].texts.values(), lanes["default"].texts.values(), strict=True):
            n = min(len(plain), len(drafted))
            same &= plain[:n] == drafted[:n]
        for name, one in peers.items():
            pairs = zip(lanes["plain"].texts.values(), one.texts.values(), strict=True)
            equal[name] += sum(mine[: len(its)] == its[: len(mine)] for mine, its in pairs)
        for one in lanes.values():
            one.clear()
        part.tick()
    found = {name: {"tokens": 0, "rounds": one.rounds, "seconds": one.seconds} for name, one in lanes.items()}
    for name in lanes:
        found[name]["tokens"] = study.tokens * study.instances * (1 if name == "one" else size)
    return {"lanes": found, "same": same, "texts": size, "equal": equal, "compared": size * study.instances}


def rate(part: dict[str, Any], lane: str) -> float:
    return part["lanes"][lane]["tokens"] / part["lanes"][lane]["seconds"]


def table(kept: Kept) -> Table:
    columns = ["one, tokens/s", "plain, tokens/s", "over one", "default, tokens/s", "over plain", "M", "output"]
    found = Table(["texts", *columns])
    for key, part in kept.items():
        one, plain, default = (rate(part, lane) for lane in ("one", "plain", "default"))
        length = part["lanes"]["default"]["tokens"] / part["lanes"]["default"]["rounds"] / part["texts"]
        found.add(
            key,
            f"{one:.1f}",
            f"{plain:.1f}",
            f"{plain / one:.2f}",
            f"{default:.1f}",
            f"{default / plain:.3f}",
            f"{length:.2f}",
            "same" if part["same"] else "DIFFERS",
        )
        for name, equal in part["equal"].items():
            its = rate(part, name)
            ratios = ["", f"{its:.1f}", f"{its / one:.2f}", "", f"{its / plain:.3f}", "1.00"]
            found.add(f"{key}, {name}", *ratios, f"{equal} of {part['compared']}")
    return found


def paint(kept: Kept, path: Path) -> None:
    with picture(path, panels=2, width=9) as (left, right):
        for mode in SAMPLINGS:
            parts = [part for key, part in kept.items() if key.endswith(f", {mode}")]
            if not parts:
                continue
            sizes = [part["texts"] for part in parts]
            ones = [rate(part, "one") for part in parts]
            left.plot(sizes, [rate(p, "default") / one for p, one in zip(parts, ones)], "o-", label=f"default, {mode}")
            left.plot(sizes, [rate(p, "plain") / one for p, one in zip(parts, ones)], "s--", label=f"plain, {mode}")
            for name in parts[0]["equal"]:
                left.plot(sizes, [rate(p, name) / one for p, one in zip(parts, ones)], ".:", label=name)
            right.plot(sizes, [rate(part, "default") / rate(part, "plain") for part in parts], "o-", label=mode)
        left.set_title("tokens/s over one text, plain")
        right.set_title("default over plain")
        break_even(right)
        for axis in (left, right):
            axis.set_xscale("log", base=2)
            axis.set_xticks(SIZES, list(map(str, SIZES)))
            axis.set_xlabel("texts at a time")
            axis.legend()


def llama(python: str, model: Path, threads: int) -> tuple[dict[str, list[str]], str]:
    """Commands of llama.cpp's lanes, which the number of texts ends, and a note of what they are."""
    command = [python, "-c", "import gguf, llama_cpp; print(llama_cpp.__version__)"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"[batch] --python-llama {python}: {why(done)}")
    worker, sizes = str(Path(__file__).with_name("peers") / "llama_batch.py"), (str(threads), str(CONTEXT))
    commands = {f"llama.cpp {dtype}": [python, worker, str(gguf(model, dtype, python)), *sizes] for dtype in LLAMA}
    return commands, (
        f"llama.cpp (llama-cpp-python {done.stdout.strip()}): a token of each text per llama_decode, greedy, from the "
        "same prompts, in a process of its own; over plain: over swiftk's; output: texts that equal swiftk's plain ones"
    )


def main() -> None:
    parser = argparse.ArgumentParser(add_help=False)  # the rest is the study's
    parser.add_argument("--python-llama")
    given, others = parser.parse_known_args()
    study = BatchStudy("batch", __doc__, instances=1, tokens=64, streams=NAMES, folder="", arguments=others)
    peers, notes = {}, list(NOTES)
    if given.python_llama:
        peers, note = llama(given.python_llama, study.model_dir, study.machine.threads)
        notes.append(note)

    def prompts() -> Iterator[list[int]]:
        every = [stream(name, study.model_dir) for name in study.streams]
        for number in range(1 << 20):
            yield list(every[number % len(every)][number // len(every)].turns[0])[:PROMPT]

    def work(size: int, sampling: dict[str, Any]) -> Work:
        def do(part: Part) -> dict[str, Any]:
            with ExitStack() as running:
                beside = {
                    name: Peer(running.enter_context(subprocess.Popen([*each, str(size)], **PIPES)))
                    for name, each in some.items()
                }
                return measure(study, prompts(), size, sampling, part, beside)

        some = {} if sampling else peers
        return study.work([], [], do, size=size, sampling=sampling, count=study.instances, peers=tuple(some))

    sizes = SIZES[:3] if study.quick else SIZES
    works = {f"{size}, {mode}": work(size, options) for mode, options in SAMPLINGS.items() for size in sizes}
    kept = study.run(works, table, notes)
    study.draw(lambda path: paint(kept, path))


if __name__ == "__main__":
    main()
