"""Models larger than memory: weights are read from disk for each pass, and a few-bit copy, which drafts, is in memory.

Beside them are the same model in memory, for its tokens, and llama.cpp, which maps its file, under the same limit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from statistics import geometric_mean, mean
from typing import Any

from swiftk.options.values import Size

from .as_gguf import Missing, gguf
from .cgroup import MemoryGroup, forget
from .harness import Study
from .plots import bars
from .process import PYTHON_LLAMA, Ended, Peer
from .texts import Text
from .weights import flattered, size

MODES = {"greedy": {"temperature": 0.0}, "T = 1": {"temperature": 1.0}}
OFF = {"draft": None}
PLAIN, PEER = 10, 4  # tokens of a text by plain decoding, and by llama.cpp: each of them reads the weights once
NOTES = (
    "memory: what load(memory=) was given, and a control group bounds the process to. peak: of resident memory, as a "
    "part of that. read: weights that each pass reads from disk.",
    "of direct reads: bytes that passes of plain decoding read, over their seconds, and over what four threads read of "
    "the same file past the page cache before and after each text, without computing anything.",
    "over plain: seconds of a token of plain decoding over those of the default, each text's own, geometric means; "
    f"worst: the lowest. Plain decoding wrote {PLAIN} tokens of each text, beside the default's; no prompt is counted. "
    "M: tokens a pass. N texts at a time, greedy; over plain: tokens/s of all, over those of one text by plain "
    "decoding.",
    "equal: texts whose tokens are those of the same model in memory, plain.",
    f"llama.cpp: {PEER} tokens of a text. Its file, which it maps, had left the page cache before, and a control group "
    "of the same size bounds its memory.",
)
COLUMNS = {"model": "part", "memory": "memory", "": "way", "copy": "copy", "sampling": "sampling"}
COLUMNS |= {"read, GB": "read:.2f", "tokens/s": "rate:.2f", "over plain": "over:.2f", "worst": "worst:.2f"}
COLUMNS |= {"M": "M:.1f", "of direct reads": "share:.2f", "direct, GB/s": "direct:.2f"}
COLUMNS |= {"peak": "peak:.2f", "equal": "same"}
OPTIONS = {
    "--models": {"type": Path, "nargs": "+", "default": [], "help": "folders; default: the toy, grown"},
    "--memory": {"nargs": "+", "default": ["1/2", "1/3"], "help": "parts of the weights' bytes, or sizes"},
    "--copies": {"nargs": "+", "default": ["auto"], "help": "weights of drafts: auto, int4, int3"},
    "--context": {"type": int, "default": 256, "help": "tokens of a text, for which there is room"},
    "--sizes": {"type": int, "nargs": "*", "default": [4], "help": "texts at a time"},
    **PYTHON_LLAMA,
}


class Found:
    """Texts by plain decoding and by the default."""

    def __init__(self) -> None:
        self.plain: list[dict[str, Any]] = []
        self.fast: list[dict[str, Any]] = []
        self.same = 0

    def add(self, plain: dict[str, Any], fast: dict[str, Any], want: list[int]) -> None:
        self.plain.append(plain)
        self.fast.append(fast)
        self.same += fast["tokens"] == want and plain["tokens"] == want[: len(plain["tokens"])]

    def rows(self, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
        pairs = zip(self.plain, self.fast, strict=True)
        over = [fast["timed"] / fast["seconds"] * plain["seconds"] / plain["timed"] for plain, fast in pairs]
        direct = mean(rate for one in self.plain for rate in one["direct"])
        read = sum(one["disk_bytes"] for one in self.plain) / sum(one["seconds"] for one in self.plain)
        plain = {"way": "plain", "rate": _rate(self.plain), "share": read / direct, "direct": direct / 1e9}
        fast = {"way": "default", "rate": _rate(self.fast), "over": geometric_mean(over), "worst": min(over)}
        fast |= {"M": sum(one["timed"] for one in self.fast) / sum(one["steps"] for one in self.fast)}
        peak = max(one["peak_bytes"] for one in self.plain + self.fast) / facts["limit"]
        told = {**facts, "peak": peak, "same": f"{self.same} of {len(self.plain)}"}
        return [{**told, **plain}, {**told, **fast}]


def _rate(texts: list[dict[str, Any]]) -> float:
    return sum(one["timed"] for one in texts) / sum(one["seconds"] for one in texts)


class Wanted:
    """A model's texts, and their tokens by mode where all of it is in memory."""

    def __init__(self, study: Study, model: Path) -> None:
        prompts, most = study.prompts_of(model), study.given.context // 2
        self.texts = [text for name in study.streams for text in prompts.stream(name, study.count, most)]
        loading = {**study.asked, "draft_weights": "own", "context": study.given.context}
        with Peer("swiftk", model=str(model), loading=loading, threads=study.threads, options=OFF) as peer:
            self.tokens = {mode: [self._tokens(study, peer, mode, i) for i in range(len(self.texts))] for mode in MODES}

    def asked(self, mode: str, i: int) -> dict[str, Any]:
        return {"prompt": self.texts[i].prompt, "options": {**MODES[mode], "seed": i}}

    def _tokens(self, study: Study, peer: Peer, mode: str, i: int) -> list[int]:
        return peer.ask("generate", count=study.tokens, **self.asked(mode, i))["tokens"]


def alone(study: Study, peer: Peer, wanted: Wanted) -> dict[str, Found]:
    """One text after the other, by mode."""
    found = {mode: Found() for mode in MODES}
    for i in study.each(range(len(wanted.texts))):
        for mode in MODES:
            asked = wanted.asked(mode, i)
            undrafted = {**asked, "options": {**asked["options"], **OFF}}
            before = peer.ask("direct")["rate"]
            plain = peer.ask("generate", count=min(PLAIN, study.tokens), **undrafted)
            plain["direct"] = before, peer.ask("direct")["rate"]
            found[mode].add(plain, peer.ask("generate", count=study.tokens, **asked), wanted.tokens[mode][i])
    return found


def together(study: Study, peer: Peer, texts: list[Text], one: float, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Several texts at a time. one: tokens/s of one of them, plain."""
    rows = []
    for number in study.given.sizes:
        prompts = [text.prompt for text in (texts * number)[:number]]
        for way, count, options in ("plain", min(PLAIN, study.tokens), OFF), ("default", study.tokens, {}):
            found = peer.ask("together", prompts=prompts, count=count, options=options)
            rate = found["timed"] / found["seconds"]
            row = {"way": f"{number} texts, {way}", "sampling": "greedy", "rate": rate, "over": rate / one}
            rows.append({**facts, **row, "peak": found["peak_bytes"] / facts["limit"]})
    return rows


def of_llama(study: Study, model: Path, text: Text, limit: int) -> dict[str, Any]:
    python = study.given.python_llama
    path = gguf(model, "f16", python)
    forget(Path(path))
    with MemoryGroup(limit) as group, Peer("llama_cpp", python, path=path, enter=group.enter) as peer:
        found = peer.ask("generate", prompt=text.prompt, count=PEER + 1)
        rate = found["timed"] / found["seconds"]
        return {"way": f"llama.cpp {peer.version}, f16", "sampling": "greedy", "rate": rate}


def part(study: Study, model: Path, memory: str, copy: str, wanted: Wanted) -> list[dict[str, Any]]:
    limit = int(size(model) * Fraction(memory)) if "/" in memory else Size().read("--memory", memory)
    loading = {**study.asked, "context": study.given.context, "draft_weights": copy}
    loading["max_sequences"] = max([1, *study.given.sizes])
    facts = {"part": model.name, "memory": f"{memory}, {limit / 1e9:.2f} GB", "limit": limit}
    with ExitStack() as stack:
        enter = None
        try:
            enter = None if study.quick else stack.enter_context(MemoryGroup(limit)).enter
        except Missing as error:
            study.results.notes.append(f"{facts['part']}, {memory}: unbounded by the system ({error})")
        loading["memory"] = limit
        peer = stack.enter_context(
            Peer("swiftk", model=str(model), loading=loading, threads=study.threads, enter=enter)
        )
        plan = peer.ask("plan")
        flattering = flattered(plan["copies"], study.prompts_of(model).files, study.asked.get("dtype", "auto"))
        facts["case"] = f"{model.name}, {memory}, {', '.join(plan['copies'])}"
        facts |= {"copy": ", ".join(plan["copies"]) + ", flattered" * flattering, "read": plan["streamed"] / 1e9}
        found = alone(study, peer, wanted)
        rows = [row for mode, its in found.items() for row in its.rows({**facts, "sampling": mode})]
        rows += together(study, peer, wanted.texts, rows[0]["rate"], facts)
    if study.quick:
        return rows
    try:
        one = of_llama(study, model, wanted.texts[0], limit)
        rows.append({**facts, **one, "copy": "", "read": None, "over": one["rate"] / rows[0]["rate"]})
    except (Missing, Ended) as error:
        study.results.notes.append(f"left out: llama.cpp, {facts['part']}, {memory} ({error})")
    return rows


def main() -> None:
    study = Study("disk", __doc__, texts=4, tokens=160, streams=("gsm8k",), options=OPTIONS)
    given, wanted = study.given, {}
    if study.quick:  # the bundled model is smaller than a process that loads it, which is not counted then
        os.environ["SWIFTK_DEBUG"] = f"{os.environ.get('SWIFTK_DEBUG', '')},memory=1e12"
        given.memory, given.sizes = ["44MB"], [2]
    works = {
        f"{model.name}, {memory}, {copy}": (model, memory, copy)
        for model in study.given_models or [study.folder]
        for memory in given.memory
        for copy in given.copies
    }
    for _, (model, memory, copy) in study.parts(works):
        if model not in wanted:
            wanted[model] = Wanted(study, model)
        study.rows.extend(part(study, model, memory, copy, wanted[model]))
    for row in study.rows:
        row["bar"] = row["way"] if row["sampling"] == "greedy" else f"{row['way']}, {row['sampling']}"
    cases = dict.fromkeys(row["case"] for row in study.rows)
    panels = [bars(case, "rate", "bar", case=case, plain=True) for case in cases]
    study.finish(COLUMNS, *NOTES, panels=panels, width=12, height=2.6, sharey=True)


if __name__ == "__main__":
    main()
