"""swiftk on the shapes of known models: tokens/s of one row, the price of n rows, prefill, overhead, equal bits."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any
from unittest.mock import patch

import models
import numpy as np
import record

import swiftk
from swiftk import SkipSet, _core, pack
from swiftk.device import architecture

_ROWS = (1, 2, 4, 8, 16, 32, 48, 64)
_CONTEXT = 128  # tokens of text before each step
_LONG = 3500
_TOKENS_PER_SECOND = {"7b": 290, "1b": 1390, "13b": 151, "8b": 256}
_VERIFY = {8: 1.03, 16: 1.05, 32: 1.10, 64: 1.20}
_OVERHEAD_US = 30
_COPIES = ("int8", "int4", "int3")
_MATMULS = {"triton": "", "cuda": ", matmuls in CUDA C++"}


def free_bytes(device: str) -> int:
    return _core.gpu_free_bytes() if device == "cuda" else 0


class Subject:
    """A model on the device, and what the measurements of it share."""

    def __init__(self, part: record.Part, name: str, folder: Path, matmuls: str) -> None:
        self.part, self.name, self.label = part, name, f"{models.label(name)}{_MATMULS[matmuls]}"
        self.tiny = part.given.tiny
        self.config = models.config(name, self.tiny)
        device = part.given.device
        self.folder, self.kernels = folder, None
        if device != "cpu":
            arch, forms = architecture(device), ",".join(_COPIES)
            self.kernels = pack.ensure(pack.shape_of(folder), arch, matmuls=matmuls, draft_weights=forms)
        self.free = free_bytes(device)
        began = perf_counter()
        self.lm = self.load(context=self.config["max_position_embeddings"])
        part.note(f"{self.label}: loaded in {perf_counter() - began:.1f} s, {self.lm.model.weight_bytes / 1e9:.2f} GB")
        self.bytes = models.step_bytes(self.config)
        self.reads = record.reads(part.given) or self.lm.model.probe()[0]
        rng = np.random.default_rng(1)
        self.text = rng.integers(3, self.config["vocab_size"], _LONG).tolist()

    def load(self, **options: Any) -> Any:
        return swiftk.load(self.folder, device=self.part.given.device, pack=self.kernels, **options)

    def generate(self, prompt: list[int], count: int, **how: Any) -> Any:
        self.forget()
        return self.lm.generate(prompt, max_new_tokens=count, temperature=0.0, ignore_eos=True, **how)

    def forget(self) -> None:
        self.lm.session.reuse([self.text[0] ^ 1])

    def row(self, measure: str, value: Any, unit: str = "", **more: Any) -> None:
        self.part.add(self.label, measure, value, unit, **more)


def plain(s: Subject) -> None:
    """Whole texts, as a user decodes them."""
    count = 8 if s.tiny else 128
    runs = [s.generate(s.text[:_CONTEXT], count, speculate=False) for _ in range(4)][1:]
    rate = median(r.stats.tokens_per_second for r in runs)
    s.row("one row", rate, "tokens/s", of_reads=rate * s.bytes / s.reads, at_least=_TOKENS_PER_SECOND[s.name])
    outside = median(r.stats.other_seconds / r.stats.num_steps for r in runs)
    s.row("outside passes, a step", outside * 1e6, "us", at_most=_OVERHEAD_US)
    s.part.keep(f"{s.name}_tokens_per_second", rate)
    s.row("decoding repeats itself", all(r.tokens == runs[0].tokens for r in runs), must=True)


def steps(s: Subject) -> None:
    """Passes of n rows in turn, behind the same text; ratios round by round."""
    session = s.lm.session
    half = SkipSet.uniform(s.config["num_hidden_layers"])
    session.set_skip(list(half.attn), list(half.mlp))
    s.forget()
    session.prefill(s.text[:_CONTEXT])
    taken: dict[Any, list[float]] = {}
    for _ in range(3 if s.tiny else 15):
        for n in _ROWS:
            session.set_tree(s.text[_CONTEXT : _CONTEXT + n - 1], list(range(n - 1)))
            session.verify()
            taken.setdefault(n, []).append(session.last["verify"])
        session.draft(confidence=0.0, max_draft=4, max_nodes=5)
        taken.setdefault("draft", []).append(session.last["draft"] / session.last["draft_steps"])
        session.verify()
        session.commit(1)
    figures = {key: median(found[2:]) for key, found in taken.items()}
    s.part.keep(f"{s.name}_step_seconds", {str(key): value for key, value in figures.items()})
    s.row("step of one row", figures[1] * 1e3, "ms", of_reads=s.bytes / figures[1] / s.reads)
    for n, most in _VERIFY.items():
        s.row(f"verify {n} rows over one", median(a / b for a, b in zip(taken[n][2:], taken[1][2:])), at_most=most)
    s.row("draft step, half skipped, over one row", figures["draft"] / figures[1])


def overlap(s: Subject) -> None:
    """Steps of one row with launches that overlap and with launches in turn, by two sessions in turn; their bits."""
    sessions, taken = [], ([], [])
    for allowed in "10":
        with patch.dict(os.environ, SWIFTK_CUDA_OVERLAP=allowed):
            sessions.append(_core.Session(s.lm.model, context=2 * _CONTEXT))
    for session in sessions:
        session.prefill(s.text[:_CONTEXT])
    same = True
    for _ in range(3 if s.tiny else 40):
        rows = []
        for session, times in zip(sessions, taken):
            session.set_tree([], [])
            session.verify()
            times.append(session.last["verify"])
            rows.append(np.array(session.logits[0]).tobytes())
        same = same and rows[0] == rows[1]
    overlapped, in_turn = (median(times[2:]) for times in taken)
    s.row("step of one row, launches overlap", overlapped * 1e3, "ms", of_reads=s.bytes / overlapped / s.reads)
    s.row("step of one row, launches in turn", in_turn * 1e3, "ms", of_reads=s.bytes / in_turn / s.reads)
    s.row("in turn over overlapped", median(b / a for a, b in zip(taken[0][2:], taken[1][2:])))
    s.row("rows equal, overlapped and in turn", same, must=True)


def bits(s: Subject) -> None:
    """Logits of the same text, verified by n rows at once and token by token, by memcmp."""
    session = s.lm.session
    s.forget()
    root = session.prefill(s.text[:_CONTEXT]).token
    chain = s.text[_CONTEXT : _CONTEXT + max(_ROWS) - 1]
    logits = {}
    for n in _ROWS:
        session.set_tree(chain[: n - 1], list(range(n - 1)))
        session.verify()
        logits[n] = np.array(session.logits)
    whole = logits[max(_ROWS)]
    same = all(found.tobytes() == whole[:n].tobytes() for n, found in logits.items())
    s.row(f"rows equal, 1 to {max(_ROWS)} at once", same, must=True)
    text, same = [*s.text[:_CONTEXT], root], True
    for i in range(8):
        session.prefill(text + chain[:i])  # all but the last token is cached by now: a pass of one row
        same = same and np.array(session.logits[0]).tobytes() == whole[i].tobytes()
    s.row("rows equal, token by token", same, must=True)


def draft_seconds(
    lm: Any, text: list[int], lengths: tuple[int, ...], rounds: int, skip: SkipSet
) -> tuple[dict, list]:
    """Median seconds of drafts of some lengths, in turn, and every token that was drafted."""
    session = lm.session
    session.set_skip(**skip.arguments())
    session.reuse([text[0] ^ 1])
    session.prefill(text)
    taken: dict[int, list[float]] = {n: [] for n in lengths}
    drafted = []
    for _ in range(rounds):
        for n in lengths:
            session.draft(confidence=0.0, max_draft=n, max_nodes=n + 1, width=(1, 1, 1, 1))
            taken[n].append(session.last["draft"])
            drafted += session.tree_tokens.tolist()
            session.verify()
            session.commit(1)
    return {n: median(found[3:]) for n, found in taken.items()}, drafted


def drafts(s: Subject) -> None:
    """What a draft takes beside its steps, which cost what one more costs where the device takes them by itself."""
    text, lengths, rounds = s.text[:_CONTEXT], (4, 12), 5 if s.tiny else 23
    half = SkipSet.uniform(s.lm.config["num_layers"])
    graph, drafted = draft_seconds(s.lm, text, lengths, rounds, half)
    if not s.lm.session.last["at_once"]:
        s.part.note(f"{s.label}: drafts go step by step here, so what one graph saves was not measured")
        return
    with stepwise():
        other = s.load(context=s.lm.session.context)
    steps, same = draft_seconds(other, text, lengths, rounds, half)
    short, long = lengths
    step = (graph[long] - graph[short]) / (long - short)
    s.row("draft step in one graph", step * 1e6, "us")
    s.row(f"draft of {long} in one graph, beside its steps", (graph[long] - long * step) * 1e6, "us",
          at_most=_OVERHEAD_US)
    s.row(f"draft of {long} step by step, beside its steps", (steps[long] - long * step) * 1e6, "us")
    s.row("drafts of both ways are equal", drafted == same, must=True)


def copies(s: Subject) -> None:
    """A draft's step that reads a copy of the weights in few bits, by the copy's bytes; what loading them takes."""
    began = perf_counter()
    lm = s.load(draft_weights=_COPIES, context=2 * _CONTEXT)
    s.part.note(f"{s.label}: loaded with copies in {', '.join(_COPIES)} in {perf_counter() - began:.1f} s")
    (short, long), rounds = (2, 8), 5 if s.tiny else 13
    for form in ("own", *_COPIES):
        found, _ = draft_seconds(lm, s.text[:_CONTEXT], (short, long), rounds, SkipSet(weights=form))
        step = (found[long] - found[short]) / (long - short)
        size = lm.model.copies.get(form, s.bytes)
        s.row(f"draft step, {form} weights", step * 1e6, "us", of_reads=size / step / s.reads)
        s.part.keep(f"{s.name}_draft_step_seconds_{form}", step)


@contextmanager
def stepwise() -> Iterator[None]:
    """Models loaded inside wait for the host at every step of a draft."""
    os.environ["SWIFTK_CUDA_STEPWISE"] = "1"
    try:
        yield
    finally:
        del os.environ["SWIFTK_CUDA_STEPWISE"]


def prefill(s: Subject) -> None:
    count, session, taken = 512, s.lm.session, []
    for _ in range(4):
        s.forget()
        session.prefill(s.text[:count])
        taken.append(session.last["prefill"])
    seconds = median(taken[1:])
    flops = count * models.layer_flops(s.config) / seconds
    s.row(f"prefill of {count}", count / seconds, "tokens/s")
    s.row(f"prefill of {count}", flops / 1e12, "TFLOP/s")


def worst_case(s: Subject) -> None:
    """Text that no draft predicts: noise goes on differently with every sublayer left out."""
    ratios, same = [], True
    for _ in range(2):
        ways: tuple[dict, ...] = ({}, {"speculate": False})
        drafted, base = (s.generate(s.text[:_CONTEXT], 8 if s.tiny else 256, **how) for how in ways)
        ratios.append(drafted.stats.tokens_per_second / base.stats.tokens_per_second)
        same = same and drafted.tokens == base.tokens
    s.row("default options over plain, worst case", min(ratios), at_least=0.98)
    s.row("default options give the plain text", same, must=True)


def long_context(s: Subject) -> None:
    run = s.generate(s.text[: 64 if s.tiny else _LONG], 8 if s.tiny else 96, speculate=False)
    c = s.config
    cached = 4 * c["num_hidden_layers"] * c["num_key_value_heads"] * c["head_dim"] * (run.stats.prompt_tokens + 48)
    rate = run.stats.tokens_per_second
    share = rate * (s.bytes + cached) / s.reads
    s.row(f"one row behind {run.stats.prompt_tokens} tokens", rate, "tokens/s", of_reads=share)


def memory(s: Subject) -> None:
    session = s.lm.session
    weights = s.lm.model.weight_bytes + sum(s.lm.model.copies.values())
    needed = weights + session.cache_bytes + session.workspace_bytes
    if s.free:
        used = s.free - free_bytes(s.part.given.device)
        s.row("memory beside weights, cache, workspace", (used - needed) / 1e9, "GB")
    s.row("workspace", session.workspace_bytes / 1e6, "MB")


def measure(part: record.Part, name: str, store: models.Store) -> None:
    folder = store.ensure(name)
    todo: list[Callable[[Subject], None]] = [plain, steps, overlap, bits, prefill, worst_case, memory]
    if name in ("7b", "8b"):
        todo.append(long_context)
    if name in ("1b", "8b"):
        todo.append(copies)
    if name == "1b":  # whose steps are short, and of which a second copy is soon loaded
        todo.append(drafts)
    try:
        # Those of the other family are an alternative to the default's: enough is measured of them to choose.
        for matmuls, some in (("triton", todo), ("cuda", todo[:5])):
            if matmuls == "cuda" and part.given.device == "cpu":
                continue
            subject = Subject(part, name, folder, matmuls)
            for one in some:
                part.attempt(f"{subject.label}, {one.__name__}", one, subject)
            del subject  # its memory is the next one's
    finally:
        store.remove(name)


def main() -> None:
    given = models.options(argparse.ArgumentParser(description=__doc__)).parse_args()
    with record.Part("decode", given) as part:
        part.note("random weights in the shapes of these models, bf16, batch 1; medians; steps of n rows take turns "
                  f"behind {_CONTEXT} tokens; % of reads: bytes of weights (and of a long context) of the best stream")
        store = models.Store(given)
        for name in models.ORDER:
            if name in models.SHAPES:
                part.attempt(models.label(name), measure, part, name, store)


if __name__ == "__main__":
    main()
