"""A model on the device that parts measure, with either kind of matmuls, and what they share about it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any
from unittest.mock import patch

import models
import numpy as np
import record

import swiftk
from swiftk import DraftSpec, _core
from swiftk.gpu import debug, pack
from swiftk.gpu.device import architecture

ROWS = (1, 2, 4, 8, 16, 32, 48, 64)
CONTEXT = 128  # tokens of text before most steps
KINDS = {"cuda": ", matmuls in CUDA C++", "triton": "", "": ""}  # what a case's name says of them
_TEXT = 17000
_SECONDS = 110  # that a model may take with one kind of matmuls


def kinds(device: str) -> list[str]:
    """Kinds of matmuls to measure: both, or the one that SWIFTK_DEBUG says; "" for a CPU, which has its own."""
    chosen = debug.value("matmuls")
    return [""] if device == "cpu" else [chosen] if chosen else ["cuda", "triton"]


def forms(name: str) -> str:
    """Copies of the weights that kernels are built for."""
    return "int8,int4,int3" if name in ("1b", "8b") else "int4"


def kernel_shape(name: str) -> dict:
    """What its kernels are compiled for; nothing is made for it."""
    if name == models.GROWN:
        demo = pack.shape_of(swiftk.demo_model())
        return {**demo, **{size: demo[size] * models.Store.factor for size in ("D", "H", "KV", "F")}}
    with TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(models.config(name, False)))
        return pack.shape_of(folder, "bfloat16")


def tree(n: int) -> list[int]:
    """Parents of n rows' nodes, row 0 being the root: four children each, of which the first goes on."""
    return [max(0, (j - 1) // 4 * 4 - 3) for j in range(1, n)]


def chain(n: int) -> list[int]:
    return list(range(n - 1))


def free_bytes(device: str) -> int:
    return _core.gpu_free_bytes() if device == "cuda" else 0


class Subject:
    """The model, its text, and rows of results that carry its name."""

    def __init__(self, part: record.Part, name: str, folder: Path, kind: str, context: int) -> None:
        self.part, self.name, self.kind, self.label = part, name, kind, f"{models.label(name)}{KINDS[kind]}"
        self.tiny, self.device = part.given.tiny, part.given.device
        self.config = models.config(name, self.tiny)
        self.folder, self.kernels = folder, None
        if kind:
            shape, arch = pack.shape_of(folder), architecture(self.device)
            self.kernels = pack.ensure(shape, arch, matmuls=kind, draft_weights=forms(name))
        self.free = free_bytes(self.device)
        began = perf_counter()
        self.lm = self.load(context=context)
        part.note(f"{self.label}: loaded in {perf_counter() - began:.1f} s, {self.lm.model.weight_bytes / 1e9:.2f} GB")
        self.bytes = models.step_bytes(self.config)
        self.reads = record.reads(part.given) or self.lm.model.probe()[0]
        self.text = np.random.default_rng(1).integers(3, self.config["vocab_size"], _TEXT).tolist()

    def load(self, **options: Any) -> Any:
        return swiftk.load(self.folder, device=self.device, pack=self.kernels, **options)

    def generate(self, prompt: list[int], count: int, **how: Any) -> Any:
        self.forget()
        return self.lm.generate(prompt, max_new_tokens=count, temperature=0.0, ignore_eos=True, **how)

    def forget(self) -> None:
        self.lm.forget_texts()

    def row(self, measure: str, value: Any, unit: str = "", **more: Any) -> None:
        self.part.add(self.label, measure, value, unit, **more)

    def cached(self, context: int) -> int:
        """Bytes of keys and values after which a row is computed."""
        c = self.config
        return 4 * c["num_hidden_layers"] * c["num_key_value_heads"] * c["head_dim"] * context

    def share(self, seconds: float, context: int = 0) -> float:
        """A step's reads, of the weights and after a text, beside what memory can deliver."""
        return (self.bytes + self.cached(context)) / seconds / self.reads

    def verify(self, session: Any, context: int, parents: list[int]) -> np.ndarray:
        """Logits of a tree after the text's first tokens, which the session holds."""
        session.set_tree(self.text[context : context + len(parents)], parents)
        session.verify()
        return np.array(session.logits)

    def seconds(self, context: int, shapes: Sequence[Callable[[int], list[int]]]) -> dict[tuple[int, int], list[float]]:
        """Seconds of passes of n rows in turn, by index of the shape and n; compare them round by round."""
        session, taken = self.lm.session, {}
        self.forget()
        session.prefill(self.text[:context])
        for _ in range(3 if self.tiny else 15):
            for n in ROWS[:: 3 if self.tiny else 1]:
                for i, parents in enumerate(shapes):
                    self.verify(session, context, parents(n))
                    taken.setdefault((i, n), []).append(session.last["verify"])
        return {key: found[2:] for key, found in taken.items()}


def ratio(a: list[float], b: list[float]) -> float:
    return median(x / y for x, y in zip(a, b))


def draft_seconds(lm: Any, text: list, lengths: tuple[int, ...], rounds: int, spec: DraftSpec) -> tuple[dict, list]:
    """Median seconds of drafts of some lengths, in turn, and every token that was drafted."""
    session = lm.session
    session.set_skip(_core.DraftSpec(**spec.arguments()))
    session.reuse([text[0] ^ 1])
    session.prefill(text)
    taken: dict[int, list[float]] = {n: [] for n in lengths}
    drafted = []
    for _ in range(rounds):
        for n in lengths:
            session.draft(_core.TreeRule(confidence=0.0, max_draft=n, max_nodes=n + 1, width=(1, 1, 1, 1)))
            taken[n].append(session.last["draft"])
            drafted += session.tree_tokens.tolist()
            session.verify()
            session.commit(1)
    return {n: median(found[3:]) for n, found in taken.items()}, drafted


def asking(word: str) -> Any:
    """SWIFTK_DEBUG with a word more, which overrules those before it."""
    return patch.dict(os.environ, SWIFTK_DEBUG=f"{os.environ.get('SWIFTK_DEBUG', '')},{word}")


def stepwise() -> Any:
    """Models loaded inside wait for the host at every step of a draft."""
    return asking("stepwise")


def both_ways(s: Subject, context: int) -> list[Any]:
    """Two sessions: one whose launches overlap, where the device does that, and one whose launches are in turn."""
    sessions = []
    for wish in ("1", "0"):
        with asking(f"overlap={wish}"):
            sessions.append(_core.Session(s.lm.model, context=context))
    return sessions


def each(
    part: record.Part, names: Sequence[str], kinds: Sequence[str], context: int, measure: Callable[[Subject], None]
) -> None:
    """measure(subject) for every model, with these kinds of matmuls, each in a process of its own."""
    store = models.Store(part.given)

    def one(name: str, kind: str) -> None:
        measure(Subject(part, name, store.ensure(name), kind, context))

    for name in names:
        for kind in kinds:
            part.apart(f"{models.label(name)}{KINDS[kind]}", _SECONDS, one, name, kind)
