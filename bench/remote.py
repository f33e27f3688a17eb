"""A drafter near the user: a client drafts for a model on a server beyond a slow line; and the line is cut."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import swiftk
from swiftk import demo_drafter, demo_model
from swiftk.files.safetensors_io import read_folder, write_folder

from .decoded import folder_of
from .harness import Study
from .plots import bars
from .server import Server
from .slow_line import Air, SlowLine
from .texts import grown

LAYERS = 10  # of the model at the client: the demo model's first ones, whose exit says 3 of 4 tokens as it does
PLACES = {"wire": Air(0.0, 0.0, 1e9, 0.0), "5G": Air(0.01, 0.01, 50e6, 1e-3), "4G": Air(0.021, 0.019, 20e6, 1e-3)}
CUT = 50  # tokens
STREAMS = ("gsm8k", "humaneval", "english")
COLUMNS = {"line": "part", "client": "way", "tokens/s": "rate:.1f", "over plain": "over:.2f"}
COLUMNS |= {"proposed": "proposed:.0%", "tau": "tau:.2f", "calls": "calls:.0f", "bytes up": "up:.0f"}
COLUMNS |= {"down": "down:.0f"}
COLUMNS |= {"same text": "same", "silence": "silence:.2f", "alone": "alone:.1f"}
NOTES = (
    "Server and client have a core each, and share the machine's memory. Delay, jitter, width and loss hold for each "
    "direction (5G and 4G as in Mixture of Attentions). plain: the server streams without drafts. model: the toy's "
    "first 10 layers. EAGLE-2 head: the bundled one, as wide as the model, with states as bfloat16. Other heads: of "
    "--head. tree: 8 wide, 6 deep, of 32 tokens; else chains. proposed: tokens that the client had drafted in time. "
    "tau: tokens a pass of the server. calls: such passes, per text. bytes: per token, with the states of the prompt. "
    "cut: after 50 tokens, for good. silence: seconds until the client continues, with its own model or the head. "
    "alone: its tokens/s. same text: up to there. tokens/s: after the first token."
)


class Silent:
    """Proposes nothing."""

    model = None

    def begin(self, prompt: Any, sampling: Any) -> None: ...

    def propose(self, text: Any, count: int) -> list[int]:
        return []

    def close(self) -> None: ...


def shallow(source: Path, folder: Path, layers: int) -> Path:
    """A model of the first layers alone."""
    source = folder_of(source)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    kept = {n: t for n, t in read_folder(source).items() if ".layers." not in n or int(n.split(".")[2]) < layers}
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors", "*.md"))
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": layers}), encoding="utf-8")
    for _ in write_folder(folder, kept):
        pass
    return folder


def said(url: str, drafter: Any, prompt: list[int], tokens: int, line: SlowLine | None = None) -> dict[str, Any]:
    """One text, and when its pieces came. line: to cut."""
    with swiftk.remote.connect(url, drafter, patience=1.0) as remote:
        text, times, alone = remote.stream(prompt, max_new_tokens=tokens, ignore_eos=True, temperature=0.0), [], []
        for piece in text:
            (alone if piece.alone else times).extend([perf_counter()] * len(piece.tokens))
            if line and len(times) >= CUT:
                line.cut()
                line = None
    result = text.result
    return {"result": result, "seconds": times[-1] - times[0], "times": times, "own": alone}


def row(part: str, way: str, some: list[dict[str, Any]]) -> dict[str, Any]:
    results = [one["result"] for one in some]
    tokens, new = sum(len(r.tokens) for r in results), sum(len(one["times"]) - 1 for one in some)
    found = {"part": part, "way": way, "rate": new / sum(one["seconds"] for one in some)}
    sums = {
        "proposed": sum(sum(r.proposed) for r in results),
        "up": sum(r.sent for r in results),
        "down": sum(r.received for r in results),
    }
    verified = [hit for r in results for hit in r.proposed[: r.alone_from]]
    passes = verified.count(False)  # each says one token that nobody proposed
    found |= {"tau": len(verified) / passes, "calls": passes / len(results)}
    return {**found, **{name: value / tokens for name, value in sums.items()}}


def is_mixture(folder: Path) -> bool:
    return "MOASpec" in (folder / "config.json").read_text(encoding="utf-8")


def clients(folder: Path, heads: dict[str, Path], small: swiftk.LM | None) -> dict[str, Any]:
    """Drafters by way. small: a model with the vocabulary of the one in `folder`, if there is one."""
    ways = {"plain": Silent(), "suffix": "suffix"} | ({"model": small} if small else {})
    for name, head in heads.items():
        ways[name] = swiftk.remote.Head(folder, head, threads=1)
        if is_mixture(head):
            ways[f"{name}, tree"] = swiftk.remote.TreeHead(folder, head, threads=1)
    return ways


def cut_off(
    port: int, air: Air, part: str, way: str, drafter: Any, prompt: list[int], wanted: list[int]
) -> dict[str, Any]:
    """A row of a text whose line is cut. wanted: the first tokens of it."""
    line = SlowLine(port, air)
    one = said(line.url, drafter, prompt, 3 * CUT, line)
    line.close()
    own, result = one["own"], one["result"]
    gone = {"silence": own[0] - one["times"][-1], "alone": (len(own) - 1) / (own[-1] - own[0])}
    both = min(result.alone_from, len(wanted))
    return {**row(part, f"{way}, cut", [one]), **gone, "same": result.tokens[:both] == wanted[:both]}


def measure(study: Study, port: int, ways: dict[str, Any], alone: dict[str, Any]) -> None:
    prompts = [text.prompt[:200] for name in study.streams for text in study.texts(name)]
    for part, air in study.parts(PLACES):
        line, wanted, plain = SlowLine(port, air), [], 0.0
        for way, drafter in ways.items():
            some = [said(line.url, drafter, prompt, study.tokens) for prompt in study.each(prompts)]
            wanted = wanted or [one["result"].tokens for one in some]
            made = row(part, way, some)
            plain = plain or made["rate"]
            same = all(one["result"].tokens == want for one, want in zip(some, wanted))
            study.rows.append({**made, "over": made["rate"] / plain, "same": same})
        line.close()
        for way, drafter in alone.items():
            study.rows.append(cut_off(port, air, part, way, drafter, prompts[0], wanted[0]))


def main() -> None:
    given = {"nargs": "*", "type": Path, "default": [], "help": "folders of heads, as wide as the model"}
    study = Study("remote", __doc__, tokens=128, streams=STREAMS, options={"--head": given})
    cores = sorted(os.sched_getaffinity(0))
    command = [sys.executable, "-m", "swiftk", "serve", str(study.folder), "--threads", "1"]
    heads = {} if study.grow is None else {"EAGLE-2 head": grown(study.grow, demo_drafter())}
    heads |= {head.name: head for head in study.given.head}
    for head in heads.values():
        command += ["--drafter", str(head)]
    with Server(command, "/health", {cores[0]}) as server, TemporaryDirectory() as name:
        os.sched_setaffinity(0, {cores[-1]})
        first = shallow(study.given.model or demo_model(), Path(name) / "small", LAYERS)
        small = swiftk.load(first, draft_weights="own", threads=1)
        ways = clients(study.folder, heads, small)
        alone = {"model": small}
        alone |= {way: ways[way] for way, head in heads.items() if is_mixture(head)}
        try:
            measure(study, server.port, ways, alone)
        finally:
            small.close()
    study.finish(COLUMNS, NOTES, panels=[bars(f"over plain, {part}", "over", part=part) for part in PLACES])


if __name__ == "__main__":
    main()
