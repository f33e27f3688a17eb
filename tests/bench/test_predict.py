"""The model of time: machine code is read as it is, limits are what a hand computes, and more work is never faster."""

import importlib
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from swiftk import pack, pack_compile, pack_cuda
from swiftk.errors import DeviceError
from swiftk.folders import kernel_sources

GPU = Path(__file__).resolve().parents[2] / "bench" / "gpu"
MODULES = ("constants", "images", "timing", "attention_time", "steps")
SHAPE = {"D": 4096, "H": 8, "KV": 2, "HD": 128, "F": 1024, "V": 1024, "eps": 1e-5, "dtype": "bfloat16",
         **dict.fromkeys(("qk_norm", "qkv_bias", "o_bias", "mlp_bias"), False)}  # fmt: skip


@pytest.fixture(scope="module")
def bench():
    """The modules of bench/gpu, by name."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(GPU), *sys.path])
        yield type("Bench", (), {name: importlib.import_module(name) for name in MODULES})
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(GPU.parent)):
            del sys.modules[name]


def loop(bench, text):
    """A loop of the instructions of a disassembly's lines."""
    lines = [f"/*{16 * i:04x}*/ {line} ;" for i, line in enumerate(text.strip().splitlines())]
    return bench.images.Loop(tuple(bench.images.instructions("\n".join(lines))))


@pytest.fixture(scope="module")
def kernels(bench):
    """Some kernels of a pack, compiled and read."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("needs triton")
    try:
        bench.images.disassembler()
    except DeviceError as error:
        pytest.skip(str(error))
    wanted = {"attention_split", "attention_merge", "attention_branch", "rmsnorm", "gate_up.8"}
    entries = [entry for entry in pack.manifest().entries(SHAPE, early=True) if entry.name in wanted]
    images = pack_compile.compile_kernels(kernel_sources(), entries, "sm_90")
    return {
        entry.name: bench.images.read(
            entry.name, {"warps": entry.warps, "shared": image.shared, "constants": entry.constants}, image.code
        )
        for entry, image in zip(entries, images, strict=True)
    }


def test_constants_agree_with_each_other(bench):
    m = bench.constants.H200
    ((_, _, latency, occupied),) = [unit for unit in bench.constants.UNITS if unit[0] == "HMMA"]
    products = m.multiprocessors * m.schedulers * 2 * 16 * 8 * 16 / occupied * m.clock
    assert 0.5 < products / 990e12 < 0.7  # of the data sheet's rate
    assert latency > occupied
    assert m.reads < 4.8e12 < m.l2 < m.multiprocessors * m.l2_port * m.clock
    assert m.early_launch < m.launch
    assert m.l2_latency < m.memory_latency < m.busy_latency


def test_a_round_takes_its_longest_chain(bench):
    alone = loop(bench, "HMMA.16816.F32.BF16 R8, R20, R24, R8")
    assert alone.cycles == pytest.approx(33)
    two = loop(bench, "HMMA.16816.F32.BF16 R8, R20, R24, R8\nHMMA.16816.F32.BF16 R12, R20, R26, R12")
    assert two.cycles == pytest.approx(33)  # side by side
    after = loop(bench, "HMMA.16816.F32.BF16 R8, R20, R24, R8\nHMMA.16816.F32.BF16 R8, R28, R26, R8")
    assert after.cycles == pytest.approx(66)
    assert loop(bench, "LDS.128 R20, [R2]\nHMMA.16816.F32.BF16 R8, R20, R24, R8").cycles == pytest.approx(33)
    assert loop(bench, "LDS R2, [R2]\nIADD3 R2, R2, R3, RZ").cycles == 31 + 5
    assert loop(bench, "BAR.SYNC.DEFER_BLOCKING 0x0").cycles == bench.constants.H200.barrier + 1
    assert loop(bench, "FADD R1, R2, R3\n" * 10).cycles == 10


@pytest.mark.parametrize(
    "line, reads, writes",
    [
        ("LDS.128 R4, [R2+0x10]", {"R2"}, {"R4", "R5", "R6", "R7"}),
        ("@!P0 LDG.E R6, desc[UR4][R2.64]", {"P0", "UR4", "R2", "R3"}, {"R6"}),
        ("IADD3 R7, P2, R8, R10, RZ", {"R8", "R10"}, {"R7", "P2"}),
        ("ISETP.GE.AND P0, PT, R4, UR6, PT", {"R4", "UR6"}, {"P0"}),
        ("STS.128 [R6+UR5], R16", {"R6", "UR5", "R16", "R17", "R18", "R19"}, set()),
        ("HMMA.16816.F32.BF16 R0, R4, R8, R12", {*(f"R{i}" for i in (4, 5, 6, 7, 8, 9, 12, 13, 14, 15))},
         {"R0", "R1", "R2", "R3"}),
    ],
)  # fmt: skip
def test_what_an_instruction_reads_and_writes(bench, line, reads, writes):
    (found,) = loop(bench, line).body
    assert (found.reads, found.writes) == (reads, writes)


def test_without_a_disassembler_it_says_what_is_missing(bench, monkeypatch):
    monkeypatch.setattr(bench.images.shutil, "which", lambda *_, **__: None)
    with pytest.raises(DeviceError, match="cuobjdump"):
        bench.images.disassembler()


@pytest.mark.exhaustive
def test_kernels_of_triton_are_read(kernels):
    for image in kernels.values():
        assert 16 <= image.registers <= 255
        assert image.spills == 0
        assert image.early
    full, masked = kernels["attention_split"].loops("HMMA")
    products = 2 * SHAPE["HD"] * kernels["attention_split"].constants["KEYS"] * 16 // (16 * 8 * 16)
    assert full.count("HMMA") == masked.count("HMMA") == products // kernels["attention_split"].warps
    assert full.cycles < masked.cycles < 10 * full.cycles
    assert full.cycles > full.count("HMMA") // 2 * 33  # one half is a chain
    assert len(kernels["gate_up.8"].loops("HMMA")) == 1


@pytest.mark.skipif(not pack_cuda.compilers(), reason="needs a compiler of CUDA C++")
def test_kernels_in_cpp_are_read(bench, kernels):
    entry = next(e for e in pack_cuda.entries(SHAPE, "sm_90", True)[0] if e.name == "gate_up.64")
    (image,), _ = pack_cuda.compile_entries([entry], "sm_90")
    facts = {"warps": entry.warps, "shared": entry.shared, "constants": entry.constants}
    read = bench.images.read(entry.name, facts, image.code)
    assert read.loops("HMMA")[0].count("HMMA") == 64  # two tiles of 16 x 64 tokens, 64 columns
    assert read.loops("UBLKCP")[0].count("UBLKCP") == 1
    four = read.loops("LDGSTS")[0]
    assert four.count("LDGSTS") == 4
    assert 0 < read.around("LDGSTS", "ARRIVES.LDGSTS") < 2000
    assert 0 < read.resident * (read.shared + 1024) <= 228 * 1024
    m = bench.constants.H200
    times = [bench.timing.cpp_matmul(m, read, rows).alone for rows in (8, 32, 64, 128, 512)]
    assert times == sorted(times)
    assert times[-1] > 2 * times[2]


def test_more_rows_are_not_faster(bench, kernels):
    m = bench.constants.H200
    attention = bench.attention_time
    for context in (100, 1000, 5000, 20000):
        for tree in (0, 1):
            rows = (1, 4, 8, 16, 32, 64)
            read = (attention.Attention(8, 2, 128, context, n, n // 4 * tree) for n in rows)
            taken = [sum(kernel.alone for kernel in attention.launches(m, kernels, a)) for a in read]
            assert taken == sorted(taken)
    matmuls = [bench.timing.triton_matmul(m, kernels["gate_up.8"], n).alone for n in (1, 4, 8)]
    assert matmuls == sorted(matmuls)
    slower = bench.timing.triton_matmul(replace(m, reads=m.reads / 100), kernels["gate_up.8"], 1)
    assert slower.limit == "memory"
    assert slower.limits["memory"] == pytest.approx(2 * SHAPE["F"] * SHAPE["D"] * 2 * 100 / m.reads)


def test_splits_are_the_kernels(bench):
    ends = bench.attention_time.split_ends
    assert ends(1) == [1]
    assert ends(600) == [256, 512, 600]
    for length in (4096, 4097, 16384, 40000):
        assert len(ends(length)) == pack.manifest().splits_of(length)
    assert [len(ends(length)) for length in (4096, 4097, 16384, 40000)] == [16, 17, 40, 80]


def test_blocks_take_turns(bench):
    assert bench.timing.makespan([3, 1, 1, 1], 2) == 3
    assert bench.timing.makespan([1, 1, 1, 3], 2) == 4


def test_what_a_ring_fetches_ahead_is_hidden(bench):
    """By hand: the second matrix begins where the first one's blocks leave, while a norm runs and two launches pass."""
    m = replace(bench.constants.H200, reads=4e12, memory_latency=0.5e-6, early_launch=1e-6, launch=2e-6)
    Time = bench.timing.Time
    matrix = Time("down", {"memory": 10e-6}, start=0.5e-6, bytes=40e6, ahead=20e6, room=200 << 10, early=True)
    norm = Time("rmsnorm", {"chain": 2e-6}, room=1 << 10, early=True)
    step = bench.steps.in_order(m, [matrix, norm, matrix])
    # 1 + 9.5, as .5 us of reading are done when inputs are there; 1 + 2; of the second, 4 - .5 us: 1 + 6.5
    assert step.seconds == pytest.approx(21e-6)
    assert bench.steps.in_order(m, [matrix, norm, matrix], overlap=False).seconds == pytest.approx(29e-6)
    alone = bench.steps.in_order(m, [replace(matrix, ahead=0.0), norm, replace(matrix, ahead=0.0)])
    assert alone.seconds == pytest.approx(26e-6)
    crowded = bench.steps.in_order(m, [matrix, replace(norm, room=100 << 10), matrix])
    assert crowded.seconds == pytest.approx(24e-6)  # the second begins behind the norm: 1 + 9.5
