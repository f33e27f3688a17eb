"""Many texts at a time: total tokens per second of an engine with B of them, plain and by default, beside one text."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path[1:1] = [str(Path(__file__).with_name("paper"))]

import numpy as np  # noqa: E402

from plots import break_even, picture  # noqa: E402
from runs import SAMPLED, Part  # noqa: E402
from streams import NAMES, stream  # noqa: E402
from study import Kept, Study, Work  # noqa: E402
from swiftk import _core  # noqa: E402
from tables import Table  # noqa: E402

SIZES = (1, 2, 4, 8, 16)
SAMPLINGS = {"greedy": {}, "T .6": SAMPLED}
PROMPT = 200  # tokens of a prompt, at most
BLOCK = 2  # rounds of one text's share that a lane goes on before the next one does
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


def measure(
    study: Study, prompts: Iterator[list[int]], size: int, sampling: dict[str, Any], part: Part
) -> dict[str, Any]:
    model = study.lm.model

    def lane(drafting: str, texts: int) -> Lane:
        return Lane(_core.Engine(model, context=1024, sequences=texts), drafting)

    lanes = {"one": lane("off", 1), "plain": lane("off", size), "default": lane("planned", size)}
    same = True
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
        for one in lanes.values():
            one.clear()
        part.tick()
    found = {name: {"tokens": 0, "rounds": one.rounds, "seconds": one.seconds} for name, one in lanes.items()}
    for name, size_of in (("one", 1), ("plain", size), ("default", size)):
        found[name]["tokens"] = study.tokens * study.instances * size_of
    return {"lanes": found, "same": same, "texts": size}


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
            right.plot(sizes, [rate(part, "default") / rate(part, "plain") for part in parts], "o-", label=mode)
        left.set_title("tokens/s over one text, plain")
        right.set_title("default over plain")
        break_even(right)
        for axis in (left, right):
            axis.set_xscale("log", base=2)
            axis.set_xticks(SIZES, list(map(str, SIZES)))
            axis.set_xlabel("texts at a time")
            axis.legend()


def main() -> None:
    study = BatchStudy("batch", __doc__, instances=1, tokens=64, streams=NAMES, folder="")

    def prompts() -> Iterator[list[int]]:
        every = [stream(name, study.model_dir) for name in study.streams]
        for number in range(1 << 20):
            yield list(every[number % len(every)][number // len(every)].turns[0])[:PROMPT]

    def work(size: int, sampling: dict[str, Any]) -> Work:
        def do(part: Part) -> dict[str, Any]:
            return measure(study, prompts(), size, sampling, part)

        return study.work([], [], do, size=size, sampling=sampling, count=study.instances)

    sizes = SIZES[:3] if study.quick else SIZES
    works = {f"{size}, {mode}": work(size, options) for mode, options in SAMPLINGS.items() for size in sizes}
    kept = study.run(works, table, NOTES)
    study.draw(lambda path: paint(kept, path))


if __name__ == "__main__":
    main()
