"""What the machine code of a pack's kernels says about their speed: room that they need, and their loops.

A loop's cycles come from running its instructions through one warp in order: each is issued when its operands are
there and its unit is free. So a chain of products, a reduction by shuffles or an address's arithmetic shows as the
latency that it is. What waits for memory is left out: predict.py counts that by bytes in flight.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import flow
from constants import H200, UNITS

from swiftk import pack
from swiftk.errors import DeviceError

_LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*);")
_REGISTER = re.compile(r"\b(UR|R|UP|P)(\d+)(\.64)?")
_NO_RESULT = re.compile(r"ST|BAR|BRA|UBLKCP|LDGSTS|DEPBAR|EXIT|BSSY|BSYNC|WARPSYNC|ARRIVES|RED\b|NOP|YIELD|FENCE|"
                        r"SYNCS\.(?!PHASE)")


def disassembler() -> str:
    """cuobjdump of the PATH, or the one that Triton brings."""
    found = shutil.which("cuobjdump")
    if found is None:
        import triton

        path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
        found = shutil.which("cuobjdump", path=str(path))
    if found is None:
        raise DeviceError("[predict] reading machine code needs cuobjdump, of CUDA's toolkit or of Triton's wheel: "
                          "there is none on the PATH and none beside Triton")
    return found


@dataclass(frozen=True)
class Instruction:
    at: int
    guarded: bool
    opcode: str
    operands: str
    reads: frozenset[str]
    writes: frozenset[str]
    unit: str
    latency: float
    occupied: float


def _wide(opcode: str) -> int:
    """Registers of what a load, a store or a product reads or makes."""
    width = re.search(r"\.(64|128)\b|\.M88\.([24])|^(HMMA)|(WIDE)", opcode)
    known = {"64": 2, "128": 4, "2": 2, "4": 4, "HMMA": 4, "WIDE": 2}
    return known[next(filter(None, width.groups()))] if width else 1


def _instruction(at: str, guard: str, opcode: str, operands: str) -> Instruction:
    found = [(kind, int(n), 2 if pair else 1) for kind, n, pair in _REGISTER.findall(operands)]
    results = 0 if _NO_RESULT.match(opcode) else 1
    if results and len(found) > 1 and found[1][0].endswith("P"):
        results = 2  # a carry, or the second of two predicates
    writes, reads = set(), {guard.strip("!")} if guard else set()
    for i, (kind, n, width) in enumerate(found):
        if i < results:
            width = _wide(opcode) if kind in ("R", "UR") else 1
        elif opcode.startswith("HMMA"):
            width = 2 if i == 2 else 4
        elif opcode.startswith("ST") and i == len(found) - 1:
            width = _wide(opcode)
        (writes if i < results else reads).update(f"{kind}{n + w}" for w in range(width))
    unit, latency, occupied = next(rest for begin, *rest in UNITS if re.match(begin, opcode))
    occupied *= _wide(opcode) if unit == "shared" else 1
    return Instruction(int(at, 16), bool(guard), opcode, operands, frozenset(reads), frozenset(writes), unit, latency,
                       occupied)


@dataclass(frozen=True)
class Loop:
    """A loop's instructions, in their order."""

    body: tuple[Instruction, ...]

    def count(self, opcodes: str) -> int:
        return sum(bool(re.match(opcodes, i.opcode)) for i in self.body)

    @cached_property
    def cycles(self) -> float:
        """Cycles of one warp alone, for one round among many."""
        ready: dict[str, float] = {}
        free: dict[str, float] = {}
        issued, ends = -1.0, []
        for _ in range(3):
            for i in self.body:
                issued = max([issued + 1, free.get(i.unit, 0), *(ready.get(r, 0) for r in i.reads)])
                issued += H200.barrier if i.unit == "barrier" else 0
                free[i.unit] = issued + i.occupied
                ready.update(dict.fromkeys(i.writes, issued + i.latency))
            ends.append(issued)
        return ends[-1] - ends[-2]

    @cached_property
    def load(self) -> Counter[str]:
        """Cycles for which a warp's round occupies each unit; "issue" is its scheduler."""
        load: Counter[str] = Counter({"issue": float(len(self.body))})
        for i in self.body:
            load[i.unit] += i.occupied
        return load


@dataclass(frozen=True)
class Image:
    """A kernel of a pack: what a launch of it is given, what it takes of a multiprocessor, its machine code."""

    name: str
    warps: int
    shared: int  # dynamic
    constants: dict[str, int]
    registers: int
    static_shared: int
    spills: int
    code: tuple[Instruction, ...]

    @property
    def early(self) -> bool:
        return bool(self.constants.get("EARLY"))

    @cached_property
    def resident(self) -> int:
        """Blocks of a multiprocessor."""
        m = H200
        registers = -(-self.registers * 32 // 256) * 256 * self.warps
        shared = self.shared + max(self.static_shared, m.block_shared)  # which counts among what is static
        return min(m.blocks, m.threads // (32 * self.warps), m.registers // registers, m.shared // shared)

    @cached_property
    def all_loops(self) -> list[Loop]:
        return [Loop(tuple(self.code[place] for place in places)) for places in flow.loops(self.code)]

    def loops(self, opcode: str) -> list[Loop]:
        """The loops that hold an opcode, shortest first; of equal ones the first in the code."""
        return sorted((found for found in self.all_loops if found.count(opcode)), key=lambda found: len(found.body))

    def around(self, opcode: str, end: str) -> float:
        """Cycles of a round of the loop around an opcode and what ends a round, less those of loops inside."""
        outer = next(found for found in self.loops(opcode) if found.count(end))
        inner = {i for found in self.all_loops if set(found.body) < set(outer.body) for i in found.body}
        return Loop(tuple(i for i in outer.body if i not in inner)).cycles / outer.count(end)


def instructions(disassembly: str) -> Iterator[Instruction]:
    return (_instruction(*line) for line in _LINE.findall(disassembly))


def read(name: str, kernel: dict[str, Any], code: bytes) -> Image:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        said = [subprocess.run([disassembler(), option, file.name], capture_output=True, text=True, check=True).stdout
                for option in ("--dump-resource-usage", "-sass")]
    numbers = {key: int(value) for key, value in re.findall(r"(REG|STACK|SHARED|LOCAL):(\d+)", said[0])}
    return Image(name, kernel["warps"], kernel["shared"], kernel["constants"], numbers["REG"], numbers["SHARED"],
                 numbers["LOCAL"] + numbers["STACK"], tuple(instructions(said[1])))


class Pack:
    """A pack's kernels by name, each disassembled when it is first asked for."""

    def __init__(self, path: Path) -> None:
        self.header = pack.read_header(path)
        data = path.read_bytes()
        self._images = data[8 + int.from_bytes(data[:8], "little"):]
        self._read: dict[str, Image] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.header["kernels"]

    def __getitem__(self, name: str) -> Image:
        if name not in self._read:
            k = self.header["kernels"][name]
            self._read[name] = read(name, k, self._images[k["begin"]:k["end"]])
        return self._read[name]
