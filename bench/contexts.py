"""Decoding after long contexts of 1k to 32k tokens: plain, the default, drafts whose attention sees all or a window,
and llama.cpp with flash attention; and several texts of 4k tokens at a time.

Run it with --model smollm2 --dtype bfloat16, with --model smollm2 --kind q8_0 or q4_k_m, or with --model gemma3. A real
long document makes better texts than the articles here: --document FILE.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from .as_gguf import KIND
from .cells import MODES, After, AtOnce
from .harness import Study
from .lanes import COLUMNS
from .long_texts import DRAFTED, LongTexts
from .plots import lines
from .process import PYTHON_LLAMA

KINDS = ("document", "retrieval")
SHARE, LONG = 0.95, 8192  # the share of reads that is wanted of plain decoding, after contexts as long as this
SHOWN = {"texts": "count", "M": "M:.2f", "alpha": "alpha:.2f", "c": "c:.2f", "v": "v:.2f", "tokens/s": "rate:.1f"}
SHOWN |= {"of reads": "share:.2f", "speed-up": "speedup:.2f"}
SHOWN |= {"worst text": "worst:.2f", "best text": "best:.2f", "E(Spd.)": "E:.2f", "realised / E": "of_E:.2f"}
SHOWN |= {"over llama.cpp": "over:.2f", "over one": "over_one:.2f", "prompt, tokens/s": "prompt:.0f"}
SHOWN |= {"codes found": "found", "copy": COLUMNS["copy"], "output equal": COLUMNS["output equal"]}
NOTES = (
    "A context is the number of tokens of a prompt and of the text after it. Eight facts stand near the beginning. "
    "document: the text goes on; a model that chats writes a summary. retrieval: a question at the end asks for one of "
    "them. No text ends before its last token, so an answer goes on, often with the other facts; codes found: those of "
    "the eight that plain decoding wrote.",
    "texts: how many were measured, each from another place of the document on, with the question for another fact. "
    "speed-up, E(Spd.), realised / E, over llama.cpp and over one are geometric means over texts of each text's own "
    "ratio; worst and best text: the lowest and the highest speed-up among them. M, alpha, c, v and tokens/s are of "
    "all texts together.",
    "of reads: the bytes that a plain step reads, over its seconds and over the memory's read rate. These bytes are "
    "the weights and the K and V of the context, of which a layer with a window reads no more than the window. The "
    "rate is probed before and after each part.",
    "alpha: accepted share of drafted tokens. c, v: time of a draft step and of a target pass, in plain steps. "
    f"E(Spd.): Equation 6 with this c. Each row of a view drafts a chain of {DRAFTED} tokens in every round; its copy "
    "of the weights is named first. A window is the last tokens of the text; the first 64 are seen beside it. heavy: "
    "and the run of 512 tokens to which the last verification attended most; below 2,048 tokens it sees all. default: "
    "E counts tokens of all sources.",
    "prompt, tokens/s: up to the first new token. Each context continues the one before it, so tokens and seconds are "
    "summed over contexts, and over texts. swiftk's engines load the keys and values of a prompt, which one of "
    "them computed, and begin with no statistics. llama.cpp computes its own, and keeps what prompts have in common.",
    "Rows `N x TOKENS`: N texts at a time, greedy, and so in every round of texts. own: each has a document of its "
    "own. shared: one document with other questions at its end. one: a single text, plain. over one and speed-up are "
    "of tokens/s in all.",
)
OPTIONS = {
    "--document": {"type": Path, "metavar": "FILE", "help": "a text file; default: the articles of all streams"},
    "--contexts": {"type": int, "nargs": "+", "metavar": "N", "help": "tokens; default: from 1024 on, doubled"},
    "--sizes": {"type": int, "nargs": "*", "metavar": "N", "help": "texts at a time, perhaps none; default: 1 4 8"},
    "--copies": {"nargs": "+", "help": "weights of drafts by view; default: int4, or int3 where that is flattered"},
    **KIND,
    **PYTHON_LLAMA,
}


def held(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """What is wanted after long contexts, and whether it was reached."""
    told, rows = [], [row for row in rows if "context" in row]
    for row in rows:
        if row["way"] == "plain" and row["context"] >= LONG:
            verdict = "reached" if row["share"] >= SHARE else "MISSED"
            told.append(f"plain, {row['part']}: {row['share']:.2f} of reads, {SHARE} wanted: {verdict}")
    first = {(row["kind"], row["sampling"]): row for row in reversed(rows) if row["way"] == "default"}
    for row in rows:
        short = first.get((row["kind"], row["sampling"]))
        if row["way"] == "default" and row["context"] >= LONG and row is not short:
            verdict = "reached" if row["speedup"] >= short["speedup"] else "MISSED"
            wanted = f"{short['speedup']:.2f} after {short['context']} wanted"
            found = f"{row['speedup']:.2f} times as fast as plain ({row['worst']:.2f} to {row['best']:.2f})"
            told.append(f"default, {row['part']}: {found}, {wanted}: {verdict}")
    return told


def parts(run: LongTexts) -> dict[str, After | AtOnce]:
    """By name, in the order of their rows. A longer context goes on with the keys and values of a shorter one."""
    asked = [(n, kind, mode) for n in run.sizes_of for kind in KINDS for mode in MODES]
    found: dict[str, After | AtOnce] = {f"{n}, {kind}, {mode}": After(n, kind, mode) for n, kind, mode in asked}
    for size in run.sizes:
        for shared in (False, True)[: 1 if size == 1 else None]:
            own = "" if size == 1 else ", shared" if shared else ", own"
            found[f"{size} x {run.at_once}{own}"] = AtOnce(size, shared)
    return found


def main() -> None:
    study = Study("contexts", __doc__, texts=3, tokens=96, loading={}, options=OPTIONS)
    with ExitStack() as stack:
        run = LongTexts(study)
        run.peer = run.llama(stack, context=run.sizes_of[-1] + 8)
        cells = parts(run)
        for number, _, cell in study.rounds(cells):
            run.turn_to(number)
            cell.measure(run, number)
    for part, cell in cells.items():
        cell.rows(run, part)
    columns = {"context": "part", "way": "way", **SHOWN}
    look = {"over": "context", "label": "context, tokens"}
    of = {"kind": "document", "sampling": "greedy"}
    panels = [lines("greedy: tokens/s", "rate", by="told", **look, plain=True, **of)]
    panels.append(lines("greedy: speed-up", "speedup", by="way", **look, even=1.0, within=("worst", "best"), **of))
    panels.append(lines("accepted share of drafts, by view", "alpha", by="view", **look, **of))
    study.finish(columns, *NOTES, *held(study.rows), panels=panels, width=13)


if __name__ == "__main__":
    main()
