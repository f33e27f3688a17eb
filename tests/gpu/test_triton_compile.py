"""Every kernel of the manifest compiles without a GPU, to what its speed and its exactness rest on."""

import functools
import importlib.metadata
import importlib.util
import os
import re
import subprocess

import pytest

import sass
from cases import MODELS
from marks import exhaustive
from triton_interpreter import kernels, manifest

if importlib.util.find_spec("triton") is None:
    pytest.skip("needs triton", allow_module_level=True)

TRITON = tuple(map(int, importlib.metadata.version("triton").split(".")[:2]))

SEVEN = next(m for m in MODELS if m.name == "7b")
FLAGS = {"qk_norm": False, "qkv_bias": False, "o_bias": False, "mlp_bias": False, "eps": 1e-5}
SIZES = {"D": SEVEN.D, "H": SEVEN.H, "KV": SEVEN.n_kv, "HD": SEVEN.d, "F": SEVEN.F, "V": SEVEN.V}
LLAMA = {**SIZES, **FLAGS, "dtype": "bfloat16"}
QWEN = {**LLAMA, "KV": 8, "qk_norm": True, "qkv_bias": True, "o_bias": True, "mlp_bias": True}
ODD = {**QWEN, "D": 67, "H": 6, "KV": 2, "HD": 10, "F": 50, "V": 101}
NARROW = {**LLAMA, "D": 1, "H": 1, "KV": 1, "HD": 2, "F": 1, "V": 1}
SMALL = {**LLAMA, "D": 64, "H": 4, "KV": 2, "HD": 32, "F": 100, "V": 300}
LONG_V = {**LLAMA, "D": 8192, "V": 300000, "dtype": "float16"}  # D V is beyond 2^31
SHARED = 99 * 1024  # bytes that a block of any architecture from sm_80 on may have

MATMULS = re.compile(r"(qkv|o_proj|gate_up|down|lm_head)\.\d+")


HEAD = {**LLAMA, "F": 12288, "apart": True, "wide": 2 * SEVEN.D}
HEAD["linears"] = [[SEVEN.D, 3 * SEVEN.D, False], [SEVEN.V, 256, True]]


def named(shape, pattern="."):
    return [e for e in manifest.entries(shape) if re.match(pattern, e.name)]


QUICK = re.compile(r"(o_proj|lm_head|qkv\.int4|down\.int3|linear.*)\.8|qkv\.64|attention_split|rmsnorm|.*_rows|embed")


def by_name(entries):
    """Of all kernels; a few represent them in the quick tests."""
    marks = [() if QUICK.fullmatch(entry.name) else pytest.mark.exhaustive for entry in entries]
    return pytest.mark.parametrize("entry", [pytest.param(e, id=e.name, marks=m) for e, m in zip(entries, marks)])


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        patch.delenv("TRITON_INTERPRET", raising=False)
        yield


def build(entry, arch):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = getattr(kernels(entry.module), entry.function)
    names = function.arg_names
    assert names == [*entry.signature, *entry.constants], "the manifest and the kernel disagree"
    constants = {name: arch >= 90 if name == "EARLY" else value for name, value in entry.constants.items()}
    signature = {**entry.signature, **dict.fromkeys(constants, "constexpr")}
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name in entry.aligned}
    source = ASTSource(function, signature, constants, aligned)
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=entry.options)


@functools.cache
def for_hopper(name):
    return build(next(e for e in manifest.entries(LLAMA) if e.name == name), 90)


def dump(kernel, folder, option):
    """What cuobjdump says of a kernel."""
    from triton import knobs

    path = folder / "kernel.cubin"
    path.write_bytes(kernel.asm["cubin"])
    tool = knobs.nvidia.cuobjdump.path
    if not os.access(tool, os.X_OK):
        pytest.skip("this Triton comes without cuobjdump")
    return subprocess.run([tool, option, path], capture_output=True, text=True, check=True).stdout


def resources(kernel, folder):
    """Bytes of stack and of local memory that a thread takes."""
    text = dump(kernel, folder, "-res-usage")
    return [int(x) for x in re.search(r"STACK:(\d+) .*LOCAL:(\d+)", text).groups()]


@by_name(named(LLAMA))
def test_hopper(entry, tmp_path):
    """Nothing spills; small enough to run twice on a multiprocessor."""
    kernel = for_hopper(entry.name)
    assert resources(kernel, tmp_path) == [0, 0]
    assert kernel.metadata.shared <= SHARED
    assert kernel.metadata.global_scratch_size == 0 and kernel.metadata.profile_scratch_size == 0


@by_name(named(HEAD, "qkv_(wide|q|kv)|linear"))
def test_matrices_of_heads(entry, tmp_path):
    """Nothing spills, and sums have the one order of all matmuls."""
    kernel = build(entry, 90)
    assert resources(kernel, tmp_path) == [0, 0] and kernel.metadata.shared <= SHARED
    found = set(re.findall(r"(?:wgmma|mma|tcgen05)\.\S*?m\d+n\d+k\d+", kernel.asm["ptx"]))
    assert found == {"mma.sync.aligned.m16n8k16"} and places_along_k(kernel) == {"2"}


@pytest.mark.parametrize("name", ["attention_split", "attention_serial"])
def test_attention_has_keys_and_values_on_their_way(name):
    """The loop over whole tiles comes first: it has two buffers each for K and V, and reads a tile during another."""
    ir = for_hopper(name).asm["ttgir"]
    assert re.findall(r"ttg\.local_alloc : \(\) -> !ttg\.memdesc<(\d+)x", ir)[:2] == ["2", "2"]
    assert re.findall(r"async_wait.*?num = (\d+)", ir)[0] == "2"


@by_name(named(SMALL, r"(qkv|o_proj|gate_up|down|lm_head)\.\d+$"))
def test_matmuls_over_few_columns_have_a_loop(entry):
    """Without a loop, the compiler adds the residual within the product: a row's sums then depend on the bucket."""
    assert "scf.for" in build(entry, 90).asm["ttir"]


@by_name(named(LLAMA, r".*\.(8|64)|attention|rmsnorm"))
def test_nothing_is_contracted(entry, tmp_path):
    """A product and a sum are rounded apart: which of them the compiler joins would differ from kernel to kernel."""
    code = dump(for_hopper(entry.name), tmp_path, "-sass")
    assert "FMUL" in code or "HMMA" in code
    assert "FFMA" not in code


@by_name([e for e in named(QWEN) if "EARLY" in e.constants])
@pytest.mark.parametrize("arch", [90, *exhaustive(100)])
def test_early_kernels_let_the_next_one_start_and_wait_first_of_all(entry, arch, tmp_path):
    kernel = build(entry, arch)
    asked = re.findall(r"griddepcontrol\.\w+|(?:ld|st)\.global|cp\.async\.c\w", kernel.asm["ptx"])
    assert asked[:2] == ["griddepcontrol.launch_dependents", "griddepcontrol.wait"]
    assert sum(word.startswith("grid") for word in asked) == 2
    code = dump(kernel, tmp_path, "-sass")
    assert sass.TRIGGER in sass.before_waiting(code)
    assert not sass.memory_before_waiting(code)


@by_name([e for e in named(QWEN, r".*\.8|[^.]*$") if "EARLY" in e.constants])
def test_before_sm_90_nothing_is_early(entry):
    assert "griddepcontrol" not in build(entry, 80).asm["ptx"]


def test_every_kernel_of_a_pass_is_early():
    early = {e.function for e in manifest.entries(QWEN, early=True) if e.constants.get("EARLY")}
    others = {"topk_partial", "topk_merge", "move_rows", "read_probe", "dot_probe"}
    others |= {"spread_rows", "mean_rows", "read_rows"}
    assert early == {e.function for e in manifest.entries(QWEN)} - others


def matrices_of(entry):
    """That it reads side by side."""
    return 2 if entry.function in ("qkv", "gate_up") else 1


def copies_of(kernel):
    """Bytes of each of its copies into shared memory."""
    found = re.findall(r"cp\.async\.c[ag]\.shared\.global \[[^]]*\], \[[^]]*\], (\w+)", kernel.asm["ptx"])
    return [int(size, 0) for size in found]


def reads_16_bytes_at_a_time(kernel):
    """Keys and values; what is copied by 4 bytes is the number of the block that a tile of them lies in."""
    sizes = copies_of(kernel)
    return {*sizes} <= {4, 16} and sizes.count(16) > sizes.count(4)


def places_along_k(kernel):
    """How many neighbours along K a lane holds of an operand: another number is another order within an instruction."""
    return set(re.findall(r"dot_op<.*?kWidth = (\d+)", kernel.asm["ttgir"]))


@by_name(named(LLAMA, MATMULS))
def test_matmuls_stream_their_weights_into_one_instruction(entry):
    """mma.sync at every TOKENS, so one order of sums; 16 bytes a copy, and copies ahead of their use."""
    ptx = for_hopper(entry.name).asm["ptx"]
    assert set(re.findall(r"(?:wgmma|mma|tcgen05)\.\S*?m\d+n\d+k\d+", ptx)) == {"mma.sync.aligned.m16n8k16"}
    copies = copies_of(for_hopper(entry.name))
    constants, warps = entry.constants, entry.warps
    matrices = matrices_of(entry)
    stage = (matrices * constants["ROWS"] + constants["TOKENS"]) * constants["BLOCK_K"] * 2 // (16 * 32 * warps)
    assert len(copies) == stage * entry.stages  # one stage in the loop, the others before it
    assert set(copies) == {16}
    assert not re.search(r"ld\.global\S*\.b16", ptx)
    assert places_along_k(for_hopper(entry.name)) == {"2"}


LOW = {e.name: e for e in manifest.entries(LLAMA, early=True, forms=manifest.FORMS) if re.search(r"\.int\d\.", e.name)}
BUILT = [LOW[name] for name in LOW if re.fullmatch(r".*\.int4\.8|down\.int[38]\.8|(qkv|down)\.int\d\.32", name)]


@by_name(BUILT)
def test_weights_of_few_bits_become_values_where_they_are(entry, tmp_path):
    """Nothing spills, no value goes through shared memory; 16 bytes a copy; one order of sums at every TOKENS."""
    kernel = build(entry, 90)
    assert resources(kernel, tmp_path) == [0, 0] and kernel.metadata.shared <= SHARED
    asm = kernel.asm
    assert set(re.findall(r"(?:wgmma|mma|tcgen05)\.\S*?m\d+n\d+k\d+", asm["ptx"])) == {"mma.sync.aligned.m16n8k16"}
    assert places_along_k(kernel) == {"4"}
    loop = asm["ttgir"][asm["ttgir"].index("scf.for") : asm["ttgir"].index("scf.yield")]
    assert "tt.dot" in loop
    # Triton 3.9 moves values of a second matrix from layout to layout, which costs time and no bit.
    if TRITON < (3, 7) or matrices_of(entry) == 1:
        assert not re.search(r"convert_layout|local_store|local_alloc %", loop)
    code = dump(kernel, tmp_path, "-sass")
    assert "LDS.128" in code and "FFMA" not in code
    assert len(re.findall(r"LOP3\.LUT.* 0x43004300", code)) <= 1  # an exponent is set by the mask's instruction
    # Copies of words, of a column that scales lie in, and of y: a stage's in the loop, the others' before it.
    constants, bits = entry.constants, entry.constants["BITS"]
    matrices = matrices_of(entry)
    columns = 4 * constants["BLOCK_K"]
    words = matrices * 16 * columns * (bits if bits != 3 or constants["BLOCK_K"] > 128 else 2) // 8
    stage = (words + columns * constants["TOKENS"] * 2) // (16 * 128)
    assert copies_of(kernel).count(16) == stage * entry.stages
    assert not re.search(r"ld\.global\S*\.(b16|u8|s8)", asm["ptx"])


@pytest.mark.exhaustive
@by_name([LOW[f"{name}.8"] for name in ("qkv.int4", "down.int3", "lm_head.int8")])
@pytest.mark.parametrize("arch", [80, 100])
def test_weights_of_few_bits_on_other_architectures(entry, arch):
    kernel = build(entry, arch)
    assert kernel.metadata.shared <= SHARED
    assert "mma.sync.aligned.m16n8k16" in kernel.asm["ptx"]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "shape, name",
    [(ODD, "qkv.int4.8"), (NARROW, "gate_up.int3.16"), ({**ODD, "dtype": "float32"}, "down.int8.64")],
    ids=["odd", "narrow", "float32"],
)
def test_weights_of_few_bits_of_odd_shapes(shape, name):
    (entry,) = (e for e in manifest.entries(shape, forms=manifest.FORMS) if e.name == name)
    assert build(entry, 90).metadata.shared <= SHARED


def layouts(kernel, pattern):
    """The layouts, spelled out, of the tensors that a pattern finds in the kernel's intermediate form."""
    text = kernel.asm["ttgir"]
    known = dict(re.findall(r"^(#\w+) = (.*)$", text, re.M))
    return {known[name] for name in re.findall(pattern, text)}


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", manifest.POINTER)
def test_attention_sums_in_one_order(dtype):
    """All kernels take a row's sums in the same layout: what makes their bits equal on a device."""
    every = [build(e, 90) for e in named({**LLAMA, "dtype": dtype}, "attention_(split|branch|serial)")]
    sums = [layouts(kernel, r"\(tensor<16x(?:32|64)xf32, (#\w+)>\) -> tensor<16xf32") for kernel in every]
    dots = [layouts(kernel, r"tt\.dot .*-> tensor<\w+, (#\w+)>") for kernel in every]
    assert sums == sums[:1] * 3 and len(sums[0]) == 1
    assert dots == dots[:1] * 3
    if dtype != "float32":
        assert sums[0] == dots[0]
        for kernel in every:
            assert places_along_k(kernel) == {"2"}
            assert reads_16_bytes_at_a_time(kernel)


@pytest.mark.exhaustive
@by_name(named(LLAMA, r".*\.(8|64)|attention|topk|rmsnorm|read"))
@pytest.mark.parametrize("arch", [80, 100])
def test_other_architectures(entry, arch):
    kernel = build(entry, arch)
    assert kernel.metadata.shared <= SHARED
    if MATMULS.match(entry.name):
        assert "mma.sync.aligned.m16n8k16" in kernel.asm["ptx"]


@by_name(named(ODD, r".*\.(8|32)|[^.]*$"))
def test_odd_shape(entry):
    assert build(entry, 90).metadata.shared <= SHARED


@by_name(named(NARROW, r"qkv\.8|down\.64|attention|rmsnorm|topk|embed|move"))
def test_narrow_shape(entry):
    build(entry, 90)


@pytest.mark.exhaustive
@pytest.mark.parametrize("HD", [64, 80, 96, 256])
def test_heads_are_read_16_bytes_at_a_time(HD, tmp_path):
    (entry,) = named({**QWEN, "HD": HD}, "attention_split")
    kernel = build(entry, 90)
    assert reads_16_bytes_at_a_time(kernel)
    assert resources(kernel, tmp_path) == [0, 0] and kernel.metadata.shared <= SHARED


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", ["qkv.16", "gate_up.64", "attention_serial", "embed", "move_rows"])
def test_other_dtypes(name, dtype):
    (entry,) = named({**QWEN, "dtype": dtype}, f"{name}$")
    assert build(entry, 90).metadata.shared <= SHARED


def test_large_matrices_are_addressed_with_64_bits():
    (entry,) = named(LONG_V, r"lm_head\.8")
    ttir = build(entry, 90).asm["ttir"]
    assert re.search(r"arith\.muli .* : i64", ttir)
