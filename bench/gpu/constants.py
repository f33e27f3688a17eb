"""What an H200 can do: one page of numbers that predict.py counts with, each with where it is from.

sheet: the vendor's data sheet or programming guide. seen: measured on an H200. h100: measured on an H100 by others
(revollllt/flash-vla), whose processor is the same; scaled where memory is meant. guess: nobody's measurement.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """Seconds, bytes, and rates of both; per multiprocessor where it says so."""

    multiprocessors: int = 132  # sheet
    clock: float = 1.755e9  # h100: while memory is busy; up to 1.98 (sheet, seen)
    schedulers: int = 4  # sheet: of a multiprocessor; each issues one instruction of one warp a cycle
    threads: int = 2048  # sheet: of a multiprocessor, as the next three
    blocks: int = 32
    registers: int = 65536
    shared: int = 228 << 10
    block_shared: int = 1 << 10  # sheet: that each block costs beside its own

    reached: float = 0.8  # guess: of a unit's or a scheduler's cycles that busy warps use

    reads: float = 4.35e12  # h100: 90-95 % of the sheet's rate (4.8e12) for bulk copies; copies: 4.3e12 (seen)
    l2: float = 6.5e12  # guess: 5.5 to 7 are reported for loads of an H100; whatever memory delivers passes it, too
    l2_port: float = 64.0  # sheet: bytes a cycle from L2 into a multiprocessor
    shared_port: float = 128.0  # sheet: bytes a cycle of shared memory
    memory_latency: float = 0.65e-6  # h100: of an idle memory
    busy_latency: float = 0.8e-6  # guess: of one that is busy
    l2_latency: float = 0.16e-6  # h100: 270 to 290 cycles

    launch: float = 1.24e-6  # h100: between two kernels of a graph, from the last block's end to the first one's work
    early_launch: float = 0.6e-6  # guess: the same for a kernel whose blocks already wait (programmatic launch)
    barrier: float = 30.0  # guess: cycles of a block's barrier beside the waiting for its slowest warp
    tile_end: float = 0.5e-6  # guess: a matmul's last products, the sum of its slices, what it stores
    cluster_barrier: float = 0.65e-6  # h100: for 8 blocks
    bulk_copy: float = 60.0  # guess: cycles that a warp needs to start a bulk copy; h100: up to 435 with a tensor map
    loop: float = 3e-6  # guess: a graph's conditional node, from the end of its body to the next beginning
    host: float = 20e-6  # guess: copying rows, launching a graph, waiting for what it leaves


H200 = Machine()

# A warp's instructions: unit, cycles until the result can be used, cycles for which the unit is occupied. Latencies:
# h100 (and what others report of Ampere); cycles: sheet, but for HMMA (h100: mma.sync reaches 63 % of the sheet's 4
# cycles). "shared" is one unit of all schedulers, whose cycles count for each 4 bytes of a lane; of the others each
# scheduler has one.
UNITS = (  # opcodes, by their beginning; the first that fits
    ("HMMA", "tensor", 33, 6.26),
    ("F2FP", "alu", 5, 2),
    ("MUFU|F2F|F2I|I2F|FLO|POPC|BREV", "special", 22, 8),
    ("LDSM|LDS|LD\\b", "shared", 31, 1),
    ("LDGSTS|STS|ST\\b|ATOMS|SYNCS|ARRIVES", "shared", 20, 1),
    ("SHFL|REDUX|VOTE\\b", "shared", 24, 1),
    ("LDG|STG", "load", 280, 4),
    ("S2R|S2UR|R2UR|UBLKCP", "load", 20, 4),
    ("BAR", "barrier", 0, 0),
    ("FADD|FMUL|FFMA|HFMA2|HADD2|HMUL2", "fma", 4, 1),
    ("IMAD", "fma", 4, 2),
    ("U[A-Z]", "uniform", 10, 2),
    ("BRA|EXIT|NOP|BSYNC|BSSY|WARPSYNC|YIELD|DEPBAR|LDGDEPBAR|PREEXIT|ACQBULK", "branch", 0, 1),
    ("", "alu", 5, 2),
)
