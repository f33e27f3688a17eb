"""A pass as its kernels in order, and how long it takes: timing.py's kernels, launched as csrc/cuda/ops.cc does.

Each kernel waits for the one before. A matmul in CUDA C++ has by then fetched what its ring holds, if its blocks found
room beside the kernels between it and the one whose place they take (csrc/cuda/launch.h).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace

import models
from attention_time import Attention, launches, serial
from constants import H200, Machine
from images import Pack
from subject import CONTEXT, kernel_shape
from timing import Time, matmul, small

from swiftk import pack

ARCH, FORM = "sm_90", "int4"
BUCKETS = pack.manifest().BUCKETS
CHUNK = 512  # rows of a pass of a prompt (csrc/session.cc)
KINDS = (("embed|rmsnorm", "norms"), ("attention", "attention"), ("topk|gate$", "draws"), ("", "matmuls"))


@dataclass(frozen=True)
class Step:
    """Kernels in the order of their launches, and when each began to count and ended."""

    kernels: list[Time]
    gaps: list[float]
    own: list[float]

    @property
    def seconds(self) -> float:
        return sum(self.gaps) + sum(self.own)

    def parts(self) -> dict[str, float]:
        found = Counter({"launches": sum(self.gaps)})
        for kernel, own in zip(self.kernels, self.own):
            found[next(kind for begin, kind in KINDS if re.match(begin, kernel.name))] += own
        return dict(found)


def in_order(m: Machine, kernels: list[Time], overlap: bool = True) -> Step:
    ends, begins, gaps, own = [0.0], [0.0], [], []
    for i, kernel in enumerate(kernels):
        gap = m.early_launch if overlap and kernel.early else m.launch
        ready, room, begin = ends[-1] + gap, kernel.room, ends[-1]
        for j in range(i - 1, -1, -1):  # its blocks take the place of the last kernel that leaves them no room
            room += kernels[j].room
            if room > m.shared:
                begin = max(ends[j + 1], begins[-1])
                break
        begins.append(begin)
        fetched, start = 0.0, kernel.start
        if kernel.ahead and overlap:
            fetched = min(max(ready - begin - m.memory_latency, 0) * m.reads, kernel.ahead)
            start = max(begin + m.memory_latency - ready, 0)
        taken = start + max(kernel.body - fetched / m.reads, 0) + kernel.end
        gaps.append(gap)
        own.append(taken)
        ends.append(ready + taken)
    return Step(kernels, gaps, own)


class Model:
    """A model's shape with its pack, and the kernels of its passes."""

    def __init__(self, name: str, matmuls: str, machine: Machine = H200, kernels: Pack | None = None) -> None:
        self.name, self.matmuls, self.machine = name, matmuls, machine
        self.config, self.shape = models.config(name, False), kernel_shape(name)
        self.kernels = kernels or Pack(pack.ensure(self.shape, ARCH, matmuls=matmuls, draft_weights=FORM))

    def on(self, machine: Machine) -> Model:
        return Model(self.name, self.matmuls, machine, self.kernels)

    def _matmul(self, name: str, rows: int, form: str) -> Time:
        bucket = next((b for b in BUCKETS if rows <= b), BUCKETS[-1])
        if form and name == "lm_head" and self.shape["V"] * self.shape["D"] <= models.step_bytes(self.config) / 20:
            form = "int8"  # of a head that is at most a tenth of the weights
        return matmul(self.machine, self.kernels[".".join(filter(None, (name, form, str(bucket))))], rows)

    def _small(self, name: str, rows: int, size: float, loads: int = 2, rounds: int = 0) -> Time:
        image = self.kernels[name]
        blocks = rows * (-(-self.shape["V"] // image.constants["BLOCK"]) if name == "topk_partial" else 1)
        loop = image.loops("SHFL|REDUX")[0] if rounds else None
        return small(self.machine, image, blocks, loads, size, rounds, loop)

    def attention(self, context: int, rows: int, depth: int = 0) -> list[Time]:
        a = Attention(*(self.shape[key] for key in ("H", "KV", "HD")), context, rows, depth)
        m = self.machine
        return [serial(m, self.kernels, a)] if rows > 64 else launches(m, self.kernels, a)

    def layer(self, context: int, rows: int, depth: int = 0, form: str = "") -> list[Time]:
        norm = self._small("rmsnorm", rows, rows * self.shape["D"] * 6)
        qkv, o_proj, gate_up, down = (self._matmul(n, rows, form) for n in ("qkv", "o_proj", "gate_up", "down"))
        return [norm, qkv, *self.attention(context, rows, depth), o_proj, norm, gate_up, down]

    def kernels_of(self, context: int, rows: int, depth: int = 0, form: str = "", drawn: int = 1) -> list[Time]:
        """A pass with its draw; of a prompt's rows only the last has logits."""
        D, V, logits = self.shape["D"], self.shape["V"], rows if rows <= 64 else 1
        head = [self._small("rmsnorm", logits, logits * D * 6), self._matmul("lm_head", logits, form)]
        draw = [self._small("topk_partial", logits, logits * V * 8, rounds=drawn),
                self._small("topk_merge", logits, logits * V * 12 * drawn / 1024, 3, drawn)]
        layers = self.config["num_hidden_layers"] * self.layer(context, rows, depth, form)
        return [self._small("embed", rows, rows * D * 6), *layers, *head, *draw]

    def step(self, context: int, rows: int, depth: int = 0, form: str = "", overlap: bool = True) -> Step:
        return in_order(self.machine, self.kernels_of(context, rows, depth, form), overlap)

    def seconds(self, context: int, rows: int, depth: int = 0, overlap: bool = True) -> float:
        return self.machine.host + self.step(context, rows, depth, overlap=overlap).seconds

    def draft_step(self, form: str) -> Step:
        """One of a graph that goes round by itself: a pass, its draw, the gate."""
        m = self.machine
        kernels = [*self.kernels_of(CONTEXT, 1, form=form), self._small("gate", 1, 0, 4)]
        found = in_order(m, kernels)
        return replace(found, gaps=[*found.gaps[:-1], found.gaps[-1] + m.loop])

    def prompt(self, count: int) -> float:
        return sum(self.seconds(done, min(CHUNK, count - done)) for done in range(0, count, CHUNK))
