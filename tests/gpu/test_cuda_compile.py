"""What NVRTC and nvcc make of the CUDA C++ kernels for models as they are: registers, shared memory, instructions."""

import functools
import os
import re
import shutil
import subprocess
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import cuda_shim
import sass
from marks import exhaustive
from swiftk.gpu import pack_cuda

plan = cuda_shim.load_plan()
SMALL = {"D": 2048, "H": 32, "KV": 8, "HD": 64, "F": 8192, "V": 128256}
LARGE = {"D": 4096, "H": 32, "KV": 8, "HD": 128, "F": 14336, "V": 128256}
OTHERS = [
    {"D": 4096, "H": 32, "KV": 32, "HD": 128, "F": 11008, "V": 32000},
    {"D": 5120, "H": 40, "KV": 40, "HD": 128, "F": 13824, "V": 32000},
]
PLAIN = {"dtype": "bfloat16", "qk_norm": False, "qkv_bias": False, "o_bias": False, "mlp_bias": False}
FULL = {"dtype": "float16", "qk_norm": True, "qkv_bias": True, "o_bias": True, "mlp_bias": True}
BUILDS = {
    "sm_90a": [({**LARGE, **PLAIN}, None), ({**SMALL, **FULL}, None)],
    "sm_100": [({**LARGE, **PLAIN}, ("qkv.64", "down.8", "gate_up.32"))],
    "sm_80": [({**LARGE, **FULL}, ("qkv.64", "down.8", "gate_up.32"))],
}
KB = {"sm_80": 163}
KINDS = ("nvrtc", "nvcc")
EXECUTABLE = 2  # ET_EXEC of an ELF header


def found(kind):
    return next((c for c in pack_cuda.compilers() if c.name.startswith(kind)), None)


def compiled(folder, compiler, arch, entry):
    """(compiler's report, path of the image)."""
    image = Path(folder) / f"{entry.name}.{zlib.crc32(repr(entry).encode())}.{arch}.cubin"
    command = [*pack_cuda.compile_command(compiler, entry, arch, image), "--ptxas-options=-v"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr, image


def all_compiled(folder, compiler):
    """[(architecture, plan's kernel, report, path of the image)]."""
    work = [
        (arch, kernel, pack_cuda.Entry(kernel.name, kernel.source, {}, 0, 0, tuple(kernel.defines(shape["dtype"]))))
        for arch, shapes in BUILDS.items()
        for shape, wanted in shapes
        for kernel in plan.kernels(shape, arch)
        if wanted is None or kernel.name in wanted
    ]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        results = list(pool.map(lambda w: compiled(folder, compiler, w[0], w[2]), work))
    return [(arch, kernel, *result) for (arch, kernel, _), result in zip(work, results)]


@pytest.mark.parametrize(("arch", "most"), [("sm_90a", 227), ("sm_80", 163), ("sm_87", 163), ("sm_121", 99)])
def test_tiles_fit_the_shared_memory_of_a_block(arch, most):
    """An architecture that the plan does not know gets what all have, and no clusters."""
    sizes = {"D": 4096, "H": 32, "KV": 8, "HD": 128, "F": 14336, "V": 128256}
    kernels = list(plan.kernels({**sizes, **PLAIN}, arch))
    assert max(kernel.shared for kernel in kernels) <= most * 1024
    assert any(kernel.tile["CLUSTER"] > 1 for kernel in kernels) == (most == 227)


@pytest.fixture(name="all_builds", scope="module")
def all_builds_fixture(tmp_path_factory):
    """all_builds(kind): by "nvrtc" or "nvcc", once."""

    @functools.cache
    def make(kind):
        if found(kind) is None:
            pytest.skip(f"needs {kind}")
        return all_compiled(tmp_path_factory.mktemp(kind), found(kind))

    return make


@pytest.fixture(name="builds", params=KINDS)
def builds_fixture(request, all_builds):
    return all_builds(request.param)


def registers(report):
    return int(re.search(r"Used (\d+) registers", report)[1])


@pytest.mark.exhaustive
def test_kernels_compile_without_spills(builds):
    for arch, kernel, report, image in builds:
        assert image.is_file(), f"{arch} {kernel.name}: {report}"
        assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in report, (arch, kernel.name, report)
        assert "warning" not in report, (arch, kernel.name, report)
        assert -(-registers(report) // 8) * 8 * kernel.threads * kernel.tile["BLOCKS"] <= 65536
        assert (kernel.shared + 1024) * kernel.tile["BLOCKS"] <= (KB.get(arch, 227) + 1) * 1024
        assert kernel.tile["STAGES"] >= 3


@pytest.mark.exhaustive
def test_compilers_agree(all_builds):
    """On what decides about bits and, but for a register, on what a block takes; pack_cuda.py says why not on all."""
    deciding = re.compile(r"\b(?:HMMA|FADD|FMUL|FFMA|FSEL|MUFU|F2F|F2FP|I2F|FCHK)\b[\w.]*")
    for (arch, kernel, one, image), (_, _, other, its) in zip(all_builds("nvrtc"), all_builds("nvcc"), strict=True):
        assert registers(one) <= registers(other) + 1, (arch, kernel.name)
        first, second = disassembled(image), disassembled(its)
        assert set(deciding.findall(first)) == set(deciding.findall(second)), (arch, kernel.name)
        assert first.count("HMMA") == second.count("HMMA"), (arch, kernel.name)
        assert "FFMA" not in first or kernel.source == "gate_up", (arch, kernel.name)  # a division has it


def tool(name):
    """A disassembler: the toolkit's, or the one that comes with Triton."""
    if shutil.which(name):
        return shutil.which(name)
    triton = pytest.importorskip("triton")
    return str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name)


@functools.cache
def disassembled(image):
    environment = {**os.environ, "PATH": f"{Path(tool('nvdisasm')).parent}:{os.environ['PATH']}"}
    done = subprocess.run([tool("cuobjdump"), "-sass", str(image)], capture_output=True, text=True, env=environment)
    if done.returncode:
        pytest.skip(f"cuobjdump: {done.stderr.strip()[:200]}")
    return done.stdout


@pytest.mark.exhaustive
def test_before_it_waits_a_kernel_reads_weights_alone(builds):
    """Bulk copies, which fetch nothing else; and the next kernel may start before any of them."""
    for arch, kernel, _, image in builds:
        code = disassembled(image)
        if arch == "sm_80":
            assert sass.WAIT not in code and sass.TRIGGER not in code, kernel.name
            continue
        assert {opcode.split(".")[0] for opcode in sass.memory_before_waiting(code)} == {"UBLKCP"}, (arch, kernel.name)
        ahead = sass.before_waiting(code)
        bulk = next(i for i, opcode in enumerate(ahead) if opcode.startswith("UBLKCP"))
        assert sass.TRIGGER in ahead[:bulk], (arch, kernel.name)


@pytest.mark.parametrize("kind", ["nvrtc", *exhaustive("nvcc")])
@pytest.mark.parametrize("arch", ["sm_90", *exhaustive("sm_80", "sm_100")])
def test_the_gate_is_whole(tmp_path, arch, kind):
    """Nothing that it calls is left for the driver to find, but the driver's own function."""
    if found(kind) is None:
        pytest.skip(f"needs {kind}")
    report, image = compiled(tmp_path, found(kind), arch, pack_cuda.gate())
    assert image.is_file(), report
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in report
    assert "warning" not in report
    data = image.read_bytes()
    assert int.from_bytes(data[16:18], "little") == EXECUTABLE
    functions = dict(sass.functions(data))
    assert [name for name, there in functions.items() if not there] == ["cudaGraphSetConditional"]
    assert functions["gate"]
    assert not re.search(r"\b(FFMA|MUFU\.EX2)\b", disassembled(image)), "the rule would not be the host's to the bit"


@pytest.mark.exhaustive
def test_instructions_are_those_that_were_meant(builds):
    for arch, kernel, _, image in builds:
        if kernel.tile["TOKENS"] not in (8, 64):
            continue
        code = disassembled(image)
        tiles = kernel.tile["TILES"] * kernel.tile["TOKENS"] // 8
        assert len(re.findall(r"HMMA\.16816\.F32", code)) == 4 * tiles, (arch, kernel.name)  # 16 by 16 of a chunk of 64
        loads = 4 * kernel.tile["TILES"] + 2 * kernel.tile["TOKENS"] // 8
        assert len(re.findall(r"\bLDS\.128\b", code)) == loads, (arch, kernel.name)
        assert "LDGSTS.E.BYPASS.128" in code, (arch, kernel.name)
        assert ("UBLKCP" in code) == (arch != "sm_80"), (arch, kernel.name)
        assert not re.search(r"\b(LDL|STL|RED|ATOMG)\b", code), (arch, kernel.name)


def test_a_grid_is_enough_for_the_machine():
    """Work for nearly all multiprocessors, at every row count, in models from 1 to 13 billion weights."""
    for sizes in (SMALL, LARGE, *OTHERS):
        for kernel in plan.kernels({**sizes, **PLAIN}):
            tile = kernel.tile
            assert kernel.tiles * tile["CLUSTER"] >= 96, kernel.name
            stage = kernel.rows * plan.CHUNK * 2 * tile["K_WARPS"]
            assert stage * tile["STAGES"] * tile["BLOCKS"] >= 80 << 10, kernel.name
