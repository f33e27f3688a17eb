"""Decoding after long contexts of 1k to 32k tokens: plain, the default, drafts whose attention sees all or a window,
and llama.cpp with flash attention; and several texts of 4k tokens at a time.

Run it with --model smollm2 --dtype bfloat16, or --model gemma3. A real long document makes better texts than the
articles here: --document FILE.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean
from typing import Any

from swiftk import LM, DraftSpec

from .as_gguf import Missing, gguf
from .documents import CODES, Document, Prefixes, whole
from .harness import Study
from .lanes import COLUMNS, DEFAULT, GREEDY, PLAIN, Pair, Way, chain, fixed, in_turn, write
from .many import Lane, Llama, Many
from .plots import lines
from .process import PYTHON_LLAMA, Ended, Peer
from .texts import Text

CONTEXTS = (1024, 2048, 4096, 8192, 16384, 32768)  # tokens of a text at its end
MODES = {"greedy": GREEDY, "T .7": {"temperature": 0.7}}
KINDS = ("document", "retrieval")
VIEWS: Mapping[str, Mapping[str, Any]] = {  # what a draft's attention sees: fields of its DraftSpec
    "all": {},
    "last 512": {"window": 512},
    "last 1024": {"window": 1024},
    "last 512, heavy": {"window": 512, "heavy": 1},
}
DRAFTED = 4  # tokens of a chain
SIZES, AT_ONCE = (1, 4, 8), 4096  # texts at a time, and the tokens of each at its end
SHARE, LONG = 0.95, 8192  # the share of reads that is wanted of plain decoding, after contexts as long as this
SHOWN = {"M": "M:.2f", "alpha": "alpha:.2f", "c": "c:.2f", "v": "v:.2f", "tokens/s": "rate:.1f"}
SHOWN |= {"of reads": "share:.2f", "speed-up": "speedup:.2f", "E(Spd.)": "E:.2f", "realised / E": "of_E:.2f"}
SHOWN |= {"over llama.cpp": "over:.2f", "over one": "over_one:.2f", "prompt, tokens/s": "prompt:.0f"}
SHOWN |= {"codes found": "found", "copy": COLUMNS["copy"], "output equal": COLUMNS["output equal"]}
NOTES = (
    "A context is the number of tokens of a prompt and of the text after it. Eight facts stand near the beginning. "
    "document: the text goes on; a model that chats writes a summary. retrieval: a question at the end asks for one of "
    "them. No text ends before its last token, so an answer goes on, often with the other facts; codes found: those of "
    "the eight that plain decoding wrote.",
    "of reads: the bytes that a plain step reads, over its seconds and over the memory's read rate. These bytes are "
    "the weights and the K and V of the context, of which a layer with a window reads no more than the window. The "
    "rate is probed before and after each part.",
    "alpha: accepted share of drafted tokens. c, v: time of a draft step and of a target pass, in plain steps. "
    f"E(Spd.): Equation 6 with this c. Each row of a view drafts a chain of {DRAFTED} tokens in every round; its copy "
    "of the weights is named first. A window is the last tokens of the text; the first 64 are seen beside it. heavy: "
    "and the run of 512 tokens to which the last verification attended most; below 2,048 tokens it sees all. default: "
    "E counts tokens of all sources.",
    "prompt, tokens/s: of the first document, up to its first new token. Each context continues the one before it, so "
    "tokens and seconds are summed over contexts. swiftk's engines load the keys and values of a prompt, which one of "
    "them computed, and begin with no statistics. llama.cpp computes its own, and keeps what prompts have in common.",
    "Rows `N x TOKENS`: N texts at a time, greedy. own: each has a document of its own. shared: one document with "
    "other questions at its end. one: a single text, plain. over one and speed-up are of tokens/s in all.",
)
OPTIONS = {
    "--document": {"type": Path, "metavar": "FILE", "help": "a text file; default: the articles of all streams"},
    "--contexts": {"type": int, "nargs": "+", "metavar": "N", "help": "tokens; default: from 1024 on, doubled"},
    "--sizes": {"type": int, "nargs": "*", "metavar": "N", "help": "texts at a time, perhaps none; default: 1 4 8"},
    "--copies": {"nargs": "+", "help": "weights of drafts by view; default: int4, or int3 where that is flattered"},
    **PYTHON_LLAMA,
}


class Contexts:
    """The study's documents and engines, and llama.cpp, which has one text."""

    def __init__(self, study: Study) -> None:
        self.study = study
        most = study.files.config["max_position_embeddings"]
        wanted = study.given.contexts or ((512, 1024) if study.quick else CONTEXTS)
        self.sizes = study.given.sizes if study.given.sizes is not None else ((1, 2) if study.quick else SIZES)
        text, count = whole(study.given.document), max([1, study.count, *self.sizes])
        tokenizer, chat, longest = study.lm.tokenizer, study.prompts.chat, min(max(wanted), most)
        self.documents = [Document(tokenizer, chat, text, i, count, longest) for i in range(count)]
        has = min(len(one.tokens) for one in self.documents[: study.count])
        self.sizes_of = sorted({n for n in wanted if n <= min(most, has)})
        if short := sorted({n for n in wanted if has < n <= most}):
            told = ", ".join(map(str, short))
            study.results.notes.append(f"left out: contexts of {told}, the text has {has} tokens; --document FILE")
        if not self.sizes_of:
            raise SystemExit(f"[contexts] no context of {min(wanted)} tokens: want at most {min(most, has)}")
        room = most - 2 * study.tokens  # a text may be ahead of the others
        self.at_once = min([AT_ONCE, room, longest, *(len(one.tokens) for one in self.documents)])
        self.prefixes = Prefixes(study.lm.model, max(self.at_once, self.sizes_of[-1]))
        self._read: dict[str, tuple[int, float]] = {}  # of the first document: tokens, seconds
        self.peer: Peer | None = None
        self.warm: list[LM] = []  # models whose weights and kernels are in memory and in use

    def llama(self, stack: ExitStack, **options: Any) -> Peer | None:
        """llama.cpp on the same GGUF file, or with the weights in f16; None: it is not there."""
        study, python = self.study, self.study.given.python_llama
        try:
            path = str(study.folder) if self._same_file else gguf(study.folder, "f16", python)
            return stack.enter_context(
                Peer("llama_cpp", python, threads=study.threads, path=path, flash=True, **options)
            )
        except (Missing, Ended, SystemExit) as error:
            if (note := f"left out: llama.cpp ({error})") not in study.results.notes:
                study.results.notes.append(note)
            return None

    @property
    def _same_file(self) -> bool:
        return self.study.folder.is_file() and "dtype" not in self.study.asked

    @property
    def peer_name(self) -> str:
        return f"llama.cpp, {'same file' if self._same_file else 'f16'}"

    def ways(self, context: int) -> list[Way]:
        study, every = self.study, [DEFAULT]
        for copy in study.given.copies or [study.copy]:
            loading = {} if copy in study.lm.model.copies else {"draft_weights": copy}
            for name, view in VIEWS.items():
                if view.get("window", 0) < context:
                    way = fixed(f"{copy}, {name}", DraftSpec(weights=copy, **view), chain(DRAFTED))
                    every.append(Way(way.name, way.options, loading))
        return every

    def speed(self, name: str, tokens: int, seconds: float) -> float:
        """Of the first document's prompt, in tokens per second, after so many more seconds."""
        before = self._read.get(name, (0, 0.0))
        if tokens > before[0]:
            self._read[name] = tokens, before[1] + seconds
        return self._read[name][0] / self._read[name][1]


def context_bytes(per_token: int, windows: Sequence[int], tokens: float) -> float:
    """Of K and V that a step reads after so many tokens. windows: of each layer, 0: it sees all."""
    return per_token / len(windows) * sum(min(window or tokens, tokens) for window in windows)


def share_of_reads(run: Contexts, plain: Mapping[str, Any], tokens: float, rates: Sequence[float]) -> float:
    """How much of the memory's rate a plain step of this context uses."""
    model = run.study.lm.model
    kv = context_bytes(run.prefixes.bytes_of_token, model.config["window"], tokens)
    return (model.weight_bytes + kv) * plain["rate"] / fmean(rates)


def one_text(
    run: Contexts, document: Document, number: int, context: int, kind: str, mode: str
) -> tuple[list[Pair], list[Llama], int]:
    """A prompt under every way in turn: its pairs, llama.cpp's lane, if it has one, and how many codes plain decoding
    wrote."""
    study, size = run.study, context - run.study.tokens
    name = list(CODES)[number % len(CODES)]
    prompt = document.goes_on(size) if kind == "document" else document.asks(size, name)
    chosen = study.chosen([way.name for way in run.ways(max(CONTEXTS))])
    ways = [PLAIN, *(way for way in run.ways(context) if way.name in chosen)]
    lms = list(map(study.models.of, ways))
    if cold := [lm for lm in lms if lm not in run.warm]:
        write(cold, prompt[-64:], [PLAIN] * len(cold), 8)
        run.warm += cold
    for lm in lms:
        lm.forget()
        run.prefixes.give(lm._engine.native, prompt)
    beside = [Llama(run.peer, [prompt], study.tokens - 1, reuse=True)] if run.peer and mode == "greedy" else []
    results = write(lms, prompt, ways, study.tokens, beside=beside, **MODES[mode], ignore_eos=not study.given.eos)
    if len(results[0].tokens) < 2:
        return [], beside, 0
    text = Text(kind, (tuple(prompt),))
    written = study.lm.decode(results[0].tokens)
    found = sum(str(code) in written for code in CODES.values())
    return [Pair(way.name, text, one, results[0]) for way, one in zip(ways[1:], results[1:])], beside, found


def after(run: Contexts, part: str, context: int, kind: str, mode: str) -> None:
    """Rows of all ways after one context."""
    study, pairs, lanes, found = run.study, [], [], []
    rates, speeds = [study.lm.model.probe()[0]], {}
    for number, document in enumerate(study.each(run.documents[: study.count])):
        prompt = document.tokens[: context - study.tokens]
        took = run.prefixes.read(prompt)
        theirs = run.peer and not number and run.peer.ask("begin", prompts=[prompt], reuse=True)["seconds"]
        if not number:
            speeds = {"plain": run.speed("plain", len(prompt), took)}
            speeds |= {run.peer_name: run.speed("llama.cpp", len(prompt), theirs)} if theirs else {}
        some, beside, there = one_text(run, document, number, context, kind, mode)
        pairs, lanes, found = [*pairs, *some], [*lanes, *beside], [*found, there]
    rates.append(study.lm.model.probe()[0])
    of = {"context": context, "kind": kind, "sampling": mode}
    first = len(study.rows)
    study.add(part, pairs, **of)
    if not pairs:
        return
    plain = study.rows[first]
    plain |= {"share": share_of_reads(run, plain, context - study.tokens / 2, rates), "prompt": speeds["plain"]}
    if kind == "retrieval":
        plain["found"] = f"{sum(found)} of {len(CODES) * len(found)}"
    if lanes:
        rate = sum(lane.tokens for lane in lanes) / sum(lane.seconds for lane in lanes)
        row = {"part": part, "way": run.peer_name, "rate": rate, "speedup": rate / plain["rate"], **of}
        study.rows.append({**row, "prompt": speeds[run.peer_name]})
        for one in study.rows[first:-1]:
            one["over"] = one["rate"] / rate
    for row in study.rows[first:]:
        copy, _, view = row["way"].partition(", ")
        row |= {"view": row["way"], "copied": copy} if view in VIEWS else {"told": row["way"]}


def at_once(run: Contexts, part: str, size: int, shared: bool) -> None:
    """Rows of an engine that has so many texts, greedy."""
    study, most = run.study, run.study.tokens - 1
    length = run.at_once - study.tokens
    study.models.forget()
    asked = zip(run.documents[:1] * size if shared else run.documents, list(CODES) * size, range(size))
    prompts = [document.asks(length, name) for document, name, _ in asked]
    for document in run.documents[: 1 if shared else size]:
        run.prefixes.read(document.tokens[:length])
    with ExitStack() as stack:

        def many(drafting: str, count: int) -> Many:
            def begin(engine: Any) -> None:
                for prompt in prompts[:count]:
                    run.prefixes.give(engine, prompt)

            context = run.at_once + 2 * study.tokens
            memory = 2 * count * context * run.prefixes.bytes_of_token  # half of it at most is for prefixes
            return Many(study.lm.model, drafting, prompts[:count], most, context, memory, begin, **GREEDY)

        lanes: dict[str, Lane] = {"plain": many("off", size), "default": many("planned", size)}
        lanes |= {"one": many("off", 1)} if size > 1 else {}
        if run.peer:
            peer = run.llama(stack, context=run.at_once + study.tokens, texts=size)
            lanes |= {run.peer_name: Llama(peer, prompts, most, reuse=True)} if peer else {}
        in_turn(lanes.values())
    plain, theirs = lanes["plain"], lanes.get(run.peer_name)
    one = lanes.get("one", plain)
    for name, lane in lanes.items():
        row = {"part": part, "way": name, "texts": size, "shared": shared, "rate": lane.rate, "M": lane.length}
        row |= {} if name == "one" else {"over_one": lane.rate / one.rate, "speedup": lane.rate / plain.rate}
        if theirs and lane is not theirs and name != "one":
            row["over"] = lane.rate / theirs.rate
        if lane is not theirs:
            row["same"] = all(a[: len(b)] == b[: len(a)] for a, b in zip(lane.texts, plain.texts))
        study.rows.append(row)


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
            told.append(f"default, {row['part']}: {row['speedup']:.2f} times as fast as plain, {wanted}: {verdict}")
    return told


def main() -> None:
    study = Study("contexts", __doc__, tokens=96, loading={}, options=OPTIONS)
    with ExitStack() as stack:
        run = Contexts(study)
        run.peer = run.llama(stack, context=run.sizes_of[-1] + 8)
        asked = [(n, kind, mode) for n in run.sizes_of for kind in KINDS for mode in MODES]
        works: dict[str, Any] = {f"{n}, {kind}, {mode}": (n, kind, mode) for n, kind, mode in asked}
        for size in run.sizes:
            for shared in (False, True)[: 1 if size == 1 else None]:
                own = "" if size == 1 else ", shared" if shared else ", own"
                works[f"{size} x {run.at_once}{own}"] = (size, shared)
        for part, work in study.parts(works, forget=False):
            (after if len(work) == 3 else at_once)(run, part, *work)
    columns = {"context": "part", "way": "way", **SHOWN}
    look = {"over": "context", "label": "context, tokens"}
    of = {"kind": "document", "sampling": "greedy"}
    panels = [lines("greedy: tokens/s", "rate", by="told", **look, plain=True, **of)]
    panels.append(lines("greedy: speed-up", "speedup", by="way", **look, even=1.0, **of))
    panels.append(lines("accepted share of drafts, by view", "alpha", by="view", **look, **of))
    study.finish(columns, *NOTES, *held(study.rows), panels=panels, width=13)


if __name__ == "__main__":
    main()
