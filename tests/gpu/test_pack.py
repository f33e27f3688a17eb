"""Kernel packs: what is in the file, the cache around it, and what is said when something is wrong."""

import errno
import json
import os
import shutil
import struct
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from swiftk import _core
from swiftk.errors import CheckpointError, DeviceError, InvalidArgument, UnsupportedModel
from swiftk.gpu import pack, pack_cuda

FLAGS = ("qk_norm", "qkv_bias", "o_bias", "mlp_bias")
SIZES = ("D", "H", "KV", "HD", "F", "V")
SMALL = {**dict(zip(SIZES, (64, 4, 2, 16, 88, 320))), "dtype": "bfloat16", **dict.fromkeys(FLAGS, False), "eps": 1e-5}
ODD = {**dict(zip(SIZES, (30, 3, 1, 10, 75, 101))), "dtype": "float32", **dict.fromkeys(FLAGS, True), "eps": 1e-6}
SQUARE = {**SMALL, "F": 64, "dtype": "float16"}  # o_proj and down are one kernel
SHAPES = {"small": SMALL, "odd": ODD, "square": SQUARE}
ONE_EACH = {"embed", "rmsnorm", "attention_split", "attention_merge", "attention_branch", "attention_serial",
            "topk_partial", "topk_merge", "gate", "move_rows", "read_probe", "dot_probe", "norm_rows", "round_rows",
            "mean_rows", "spread_rows", "read_rows"}  # fmt: skip
HEAD = {**SMALL, "wide": 128, "apart": True, "linears": [[64, 192, False], [320, 8, True]]}  # of a head that drafts
MATMULS = ("qkv", "o_proj", "gate_up", "down", "lm_head")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SWIFTK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A copy of the kernels, which is what packs are built from."""
    copy = tmp_path / "sources"
    shutil.copytree(pack.kernel_sources(), copy)
    monkeypatch.setattr(pack, "kernel_sources", lambda: copy)
    return copy


def parts(path):
    """(header, images) by the rules of the format."""
    data = Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def image(path, name):
    header, images = parts(path)
    return images[header["kernels"][name]["begin"] : header["kernels"][name]["end"]]


def rewrite(path, change):
    """Lets `change` have the header, which gets another length by it."""
    header, images = parts(path)
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + images)


def python(code, *arguments, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_pack_holds_every_kernel(tmp_path, shape):
    path = tmp_path / "a.pack"
    pack.build(shape, "stub", path, matmuls="triton")
    header, images = parts(path)
    assert header == pack.read_header(path)
    assert (header["arch"], header["shape"], header["hash"]) == ("stub", shape, pack.hash_of(shape, "stub", "triton"))
    per_bucket = {f"{matmul}.{tokens}" for matmul in MATMULS for tokens in (8, 16, 32, 64)}
    assert set(header["kernels"]) == ONE_EACH | per_bucket | ({"qk_norm_rope"} if shape["qk_norm"] else set())
    assert (path.stat().st_size - len(images)) % 64 == 0
    for entry in pack.manifest().entries(shape, early=True):
        kernel = header["kernels"][entry.name]
        assert kernel["begin"] % 64 == 0
        assert (kernel["symbol"], kernel["warps"]) == (entry.function, entry.warps)
        assert kernel["constants"] == {k: v for k, v in entry.constants.items() if isinstance(v, int)}
        found = json.loads(images[kernel["begin"] : kernel["end"]])
        assert found["kernel"] == entry.function
        assert found["constants"] == {**entry.constants, "DT": shape["dtype"]}


def test_a_head_has_kernels_for_its_own_matrices(tmp_path):
    """And Triton's matmuls, whatever was chosen: it shares no layout with the model."""
    for chosen in (None, "cuda"):
        pack.build(HEAD, "stub", tmp_path / "a.pack", matmuls=chosen)
        header = pack.read_header(tmp_path / "a.pack")
        names = ("qkv_wide", "qkv_q", "qkv_kv", "linear.64x192", "linear.320x8")
        assert {f"{name}.{tokens}" for name in names for tokens in (8, 16, 32, 64)} <= set(header["kernels"])
        assert "layouts" not in header and header["hash"] == pack.hash_of(HEAD, "stub", "triton")
    sizes = {name: header["kernels"][name]["constants"] for name in ("qkv_wide.8", "linear.320x8.8")}
    assert sizes["qkv_wide.8"]["D"] == 128
    assert [sizes["linear.320x8.8"][key] for key in ("N", "K", "HAS_BIAS")] == [320, 8, True]


def test_equal_kernels_are_stored_once(tmp_path):
    for shape, count in ((SQUARE, 33), (SMALL, 37)):
        pack.build(shape, "stub", tmp_path / "a.pack", matmuls="triton")
        kernels = parts(tmp_path / "a.pack")[0]["kernels"]
        assert len({kernel["begin"] for kernel in kernels.values()}) == count
        assert (kernels["down.8"]["begin"] == kernels["o_proj.8"]["begin"]) == (shape is SQUARE)


@pytest.mark.parametrize("family", ["llama3", "llama-bias", "mistral", "qwen2", "qwen3"])
def test_the_shape_is_that_of_the_loaded_model(tiny_dir, tmp_path, family):
    folder = tiny_dir(family, dtype="float16")
    config = _core.Model(str(folder), device="cpu").config
    shape = pack.shape_of(folder)
    fields = ("hidden_size", "num_heads", "num_kv_heads", "head_dim", "ffn", "vocab_size")
    assert [shape[name] for name in SIZES] == [config[field] for field in fields]
    flags = {"llama-bias": (0, 1, 1, 1), "qwen2": (0, 1, 0, 0), "qwen3": (1, 0, 0, 0)}.get(family, (0, 0, 0, 0))
    assert tuple(shape[name] for name in FLAGS) == flags
    assert shape["eps"] == pytest.approx(json.loads((folder / "config.json").read_text())["rms_norm_eps"])
    assert shape["dtype"] == "float16"
    shutil.copy(folder / "config.json", tmp_path)
    assert pack.shape_of(tmp_path, "float32") == {**shape, "dtype": "float32"}
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        pack.shape_of(tmp_path)


def test_a_shape_that_nothing_is_built_for_is_an_error(tiny_dir, tmp_path):
    with pytest.raises(CheckpointError, match=r"config\.json"):
        pack.shape_of(tmp_path)
    with pytest.raises(InvalidArgument, match="int8"):
        pack.shape_of(tiny_dir("llama3"), "int8")
    config = json.loads((tiny_dir("llama3") / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "hidden_act": "gelu"}))
    with pytest.raises(UnsupportedModel, match="hidden_act"):
        pack.shape_of(tmp_path, "float16")


def test_the_hash_reports_what_kernels_are_made_from(sources):
    before = pack.hash_of(SMALL, "stub")
    assert pack.hash_of(dict(reversed(SMALL.items())), "stub") == before
    changed = [{**SMALL, "D": 128}, {**SMALL, "dtype": "float16"}, {**SMALL, "eps": 1e-6}, {**SMALL, "qk_norm": True}]
    assert len({before, *(pack.hash_of(shape, "stub") for shape in changed)}) == 5
    (sources / "tile.py").write_text("# changed\n")
    after = pack.hash_of(SMALL, "stub")
    (sources / "tile.py").rename(sources / "tiles.py")
    assert len({before, after, pack.hash_of(SMALL, "stub")}) == 3


def test_the_hash_reports_architecture_matmuls_and_copies():
    of = [("stub",), ("sm_80",), ("sm_90",), ("sm_90", "triton"), ("sm_90", "cuda", "int4")]
    assert len({pack.hash_of(SMALL, *arguments) for arguments in of}) == len(of)
    assert pack.hash_of(SMALL, "sm_90") == pack.hash_of(SMALL, "sm_90", "cuda")
    assert pack.hash_of(ODD, "sm_90") == pack.hash_of(ODD, "sm_90", "triton")  # there are no others for it


def test_a_pack_is_built_once(cache):
    path = pack.ensure(SMALL, "stub")
    assert path.is_relative_to(cache)
    stamp = path.stat().st_mtime_ns
    assert pack.ensure(SMALL, "stub") == path
    assert path.stat().st_mtime_ns == stamp
    assert pack.ensure(ODD, "stub") != path


@pytest.mark.parametrize("damage", ["cut", "empty", "foreign", "other", "bit"])
def test_a_damaged_pack_is_built_again(damage, caplog):
    path = pack.ensure(SMALL, "stub")
    whole = path.read_bytes()
    if damage == "other":
        pack.build(ODD, "stub", path)
    else:
        flipped = whole[:-70] + bytes([whole[-70] ^ 1]) + whole[-69:]
        path.write_bytes({"cut": whole[:-90], "empty": b"", "foreign": b"MZ" + bytes(100), "bit": flipped}[damage])
    assert pack.ensure(SMALL, "stub") == path
    assert path.read_bytes() == whole
    assert [record.levelname for record in caplog.records if "built again" in record.message] == ["WARNING"] * 2


def test_of_several_processes_one_builds(cache):
    code = """if True:
        import json, logging, sys
        from swiftk.gpu import pack
        logging.basicConfig(level="INFO")
        print(pack.ensure(json.loads(sys.argv[1]), "stub"))"""
    running = [python(code, json.dumps(SMALL)) for _ in range(4)]
    said = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [0] * 4
    assert sum(err.count("building kernels") for _, err in said) == 1
    assert [str(file) for file in (cache / "kernels").iterdir()] == [said[0][0].strip()]
    assert len({out for out, _ in said}) == 1


def test_a_folder_that_cannot_be_written_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SWIFTK_CACHE", str(tmp_path / "file"))
    with pytest.raises(DeviceError, match=r"file/kernels cannot be written: .*; SWIFTK_CACHE names another"):
        pack.ensure(SMALL, "stub")
    monkeypatch.delenv("SWIFTK_CACHE")
    with pytest.raises(DeviceError, match=r"a\.pack cannot be written: [^;]*$"):
        pack.build(SMALL, "stub", tmp_path / "file" / "a.pack")


def test_a_full_disk_leaves_what_was_there(monkeypatch, tmp_path):
    path = tmp_path / "a.pack"
    pack.build(SMALL, "stub", path)

    def write_half(self, data):
        with open(self, "wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", write_half)
    with pytest.raises(DeviceError, match=r"a\.pack cannot be written: No space left"):
        pack.build(ODD, "stub", path)
    assert list(tmp_path.iterdir()) == [path]
    assert pack.read_header(path)["shape"] == SMALL


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h.update(format="gguf"), "not a kernel pack"),
        (lambda h: h.update(version=7), "version is 7, want 1"),
        (lambda h: h.pop("arch"), "arch is missing or no str"),
        (lambda h: h.update(kernels=[]), "kernels is missing or no dict"),
        (lambda h: h["shape"].pop("HD"), r"shape\.HD is missing"),
        (lambda h: h["kernels"]["qkv.8"].update(end=1 << 30), r"kernel qkv\.8 lies outside"),
        (lambda h: h["kernels"]["qkv.8"].pop("begin"), r"kernel qkv\.8 lies outside"),
        (lambda h: h.update(digest="0"), "images are damaged"),
    ],
)
def test_bad_headers_are_named(tmp_path, change, message):
    path = tmp_path / "a.pack"
    pack.build(SMALL, "stub", path)
    rewrite(path, change)
    with pytest.raises(CheckpointError, match=rf"a\.pack: .*{message}"):
        pack.read_header(path)


@pytest.mark.parametrize("data", [b"", b"1234", b"\xff" * 64, b"\2" + bytes(7) + b"[]", b"\3" + bytes(7) + b"{1}"])
def test_files_that_are_no_packs_are_named(tmp_path, data):
    path = tmp_path / "a.pack"
    with pytest.raises(CheckpointError, match=r"a\.pack: No such file"):
        pack.read_header(path)
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"a\.pack: not a kernel pack"):
        pack.read_header(path)


def test_architectures_that_nothing_is_built_for_are_errors(monkeypatch, tmp_path):
    for arch in ("hopper", "sm_", "sm_90a", "90"):
        with pytest.raises(InvalidArgument, match="want sm_80"):
            pack.build(SMALL, arch, tmp_path / "a.pack")
    with pytest.raises(DeviceError, match="no kernels for sm_75"):
        pack.ensure(SMALL, "sm_75")


def test_without_triton_the_error_says_what_to_install(monkeypatch, tmp_path):
    def nothing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", nothing)
    for call in (lambda: pack.build(SMALL, "sm_90", tmp_path / "a.pack"), lambda: pack.ensure(SMALL, "sm_90")):
        with pytest.raises(DeviceError, match=r"pip install 'swiftk\[cuda\]'"):
            call()


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ("raise ValueError('broken on purpose')", "for sm_90: ValueError: broken on purpose"),
        ("import os\nos.write(2, b'x' * 200000 + b'\\nlast words\\n')\nos._exit(3)", "status 3: last words"),
        ("import triton\n@triton.jit\ndef embed(other): pass", "not what the manifest says"),
    ],
)
def test_kernels_that_do_not_compile_are_an_error(sources, tmp_path, kernel, message):
    pytest.importorskip("triton", reason="kernels are compiled by Triton, which is not here")
    (sources / "embed.py").write_text(kernel)
    with pytest.raises(DeviceError, match=f"compiling embed.*{message}"):
        pack.build(SMALL, "sm_90", tmp_path / "a.pack", matmuls="triton")
    assert not (tmp_path / "a.pack").exists()


@pytest.mark.exhaustive
def test_a_real_pack_without_a_gpu(monkeypatch, sources, tmp_path):
    pytest.importorskip("triton", reason="kernels are compiled by Triton, which is not here")
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # is for the caller's own kernels
    with open(sources / "embed.py", "a") as file:
        file.write("print('chatter')\n")
    path, seen = tmp_path / "a.pack", []
    pack.build(SQUARE, "sm_90", path, lambda done, total: seen.append((done, total)), "triton")
    header = pack.read_header(path)
    more = int(bool(pack_cuda.compilers()))  # the gate
    assert len(header["kernels"]) == 36 + more
    assert seen == sorted(seen) and len(seen) == 32 and seen[-1] == (36 + more, 36 + more)
    assert header["built_with"].startswith("triton 3.")
    for name, kernel in header["kernels"].items():
        code = image(path, name)
        assert code[:4] == b"\x7fELF"
        assert kernel["symbol"].encode() in code
        assert 0 <= kernel["shared"] <= 99 << 10
    assert str(tmp_path).encode() not in path.read_bytes()


def test_a_script_may_build_without_ceremony(tmp_path):
    """Processes that compile do not run the program that started them again."""
    pytest.importorskip("triton", reason="kernels are compiled by Triton, which is not here")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom types import SimpleNamespace\nfrom swiftk.gpu import pack\n"
        "pack.manifest = lambda made=pack.manifest(): SimpleNamespace(entries=lambda *of: made.entries(*of)[:2])\n"
        f"pack.build({SMALL}, 'sm_90', 'a.pack', matmuls='triton')\nprint('once')\n"
    )
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("once\n", 0), done.stderr
    assert {"embed", "rmsnorm"} <= set(pack.read_header(tmp_path / "a.pack")["kernels"])


def test_a_wheel_carries_the_kernels(tmp_path):
    root = Path(__file__).resolve().parents[2]
    pytest.importorskip("setuptools", minversion="77")
    code = "import runpy, sys; sys.argv = ['setup.py', '-q', 'build_py', '-d', sys.argv[1]]; runpy.run_path('setup.py')"
    done = subprocess.run([sys.executable, "-c", code, tmp_path], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for folder in ("triton", "cuda"):
        carried = {file.name for file in (tmp_path / "swiftk" / "kernels" / folder).iterdir()}
        assert carried == {file.name for file in (root / "kernels" / folder).iterdir()} - {"__pycache__"}
