"""Packs whose matmuls are in CUDA C++, the default: entries, layouts, compilers, what is said where there are none."""

import shutil
import sys
from importlib import metadata
from types import SimpleNamespace

import pytest

from swiftk.errors import DeviceError, InvalidArgument
from swiftk.gpu import pack, pack_cuda
from swiftk.gpu.pack_compile import Image

FLAGS = dict.fromkeys(("qk_norm", "qkv_bias", "o_bias", "mlp_bias"), False)
SHAPE = {"D": 64, "H": 4, "KV": 2, "HD": 16, "F": 88, "V": 320, "dtype": "bfloat16", "eps": 1e-5, **FLAGS}
WIDE = {**SHAPE, "dtype": "float32"}  # which Triton's alone take


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SWIFTK_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SWIFTK_DEBUG", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """machine(*compilers, triton=True): what is installed. Images are compilers' names; sources are logged."""
    log = tmp_path / "log"

    def install(*names, triton=True):
        def version(name):
            if not triton:
                raise metadata.PackageNotFoundError(name)
            return "9.9"

        monkeypatch.setattr(metadata, "version", version)
        monkeypatch.setattr(pack_cuda, "compilers", lambda: [compiler(name, log) for name in names])
        monkeypatch.setattr(
            pack, "compile_kernels", lambda _, found, *rest: [Image(b"t", e.function, 0) for e in found]
        )
        return lambda: log.read_text().split() if log.exists() else []

    return install


def compiler(name, log):
    """A stand-in: compiles everything, or but the "gate", or says an "error", or has a "crash"."""
    code = {
        "error": "sys.exit('gate.cu(3): error: no such thing\\n1 error detected')",
        "crash": "os.kill(os.getpid(), 11)",
        "old": "'gate.cu' in sys.argv[2] and sys.exit('error: unresolved')",
    }.get(name, "")
    done = f"open({str(log)!r}, 'a').write(sys.argv[2].rpartition('/')[2] + ' ')"
    work = f"import os, sys; {code or 0}; {done}; open(sys.argv[1], 'w').write({name!r})"
    return pack_cuda.Compiler(name, (sys.executable, "-c", work))


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_every_matmul_is_replaced(tmp_path):
    plain, own = tmp_path / "triton.pack", tmp_path / "cuda.pack"
    pack.build(SHAPE, "stub", plain, matmuls="triton")
    pack.build(SHAPE, "stub", own)
    before, after = pack.read_header(plain), pack.read_header(own)
    added = {f"pack.{name}" for name in pack_cuda.MATMULS}
    assert set(after["kernels"]) == set(before["kernels"]) | added
    assert set(after["layouts"]) == set(pack_cuda.MATMULS)
    for name, layout in after["layouts"].items():
        assert layout["kernel"] in added
        assert layout["bytes"] % 16 == 0
        for tokens in (8, 16, 32, 64):
            assert after["kernels"][f"{name}.{tokens}"]["constants"]["GRID"] > 0
    assert before["hash"] != after["hash"]


def test_the_environment_chooses(monkeypatch):
    for name in ("triton", "cuda"):
        monkeypatch.setenv("SWIFTK_DEBUG", f"matmuls={name}")
        assert pack.hash_of(SHAPE, "stub") == pack.hash_of(SHAPE, "stub", name)
    assert pack.hash_of(SHAPE, "stub", "triton") != pack.hash_of(SHAPE, "stub")
    monkeypatch.setenv("SWIFTK_DEBUG", "matmuls=cublas")
    with pytest.raises(InvalidArgument, match="'cublas', want 'triton' or 'cuda'"):
        pack.hash_of(SHAPE, "stub")


@pytest.mark.parametrize("change", [{"dtype": "float32"}, {"F": 90}, {"HD": 6, "H": 3}])
def test_shapes_without_such_kernels(tmp_path, caplog, change):
    """An error where they were asked for, else Triton's."""
    path = tmp_path / "a.pack"
    with pytest.raises(DeviceError, match="16-bit weights"):
        pack.build({**SHAPE, **change}, "stub", path, matmuls="cuda")
    assert not path.exists() and not warnings(caplog)
    pack.build({**SHAPE, **change}, "stub", path)
    assert "layouts" not in pack.read_header(path)
    (said,) = warnings(caplog)
    assert "matmuls are Triton's" in said and "16-bit weights" in said


def test_the_first_compiler_that_can_makes_them(tmp_path, machine):
    log = machine("error", "other", "third")
    pack.build(SHAPE, "sm_90", tmp_path / "a.pack")
    header = pack.read_header(tmp_path / "a.pack")
    assert header["built_with"] == "triton 9.9, other"
    assert set(header["layouts"]) == set(pack_cuda.MATMULS) and "gate" in header["kernels"]
    jobs = {(entry.function, entry.defines) for entry in pack_cuda.entries(SHAPE, "sm_90", True)[0]}
    assert len(log()) == len(jobs) + 1  # equal ones once, and the gate


@pytest.mark.parametrize(
    ("installed", "message"),
    [
        ([], r"needs NVRTC \(pip install 'swiftk\[cuda\]'\) or nvcc"),
        (["error"], r"compiling pack.qkv for sm_90 with error: gate.cu\(3\): error: no such thing"),
        (["error", "crash"], r"with error: .*; compiling pack.qkv for sm_90 with crash: status -11"),
    ],
)
def test_where_they_cannot_be_compiled(tmp_path, machine, caplog, installed, message):
    """An error that says why where they were asked for, else Triton's, which are said to be."""
    machine(*installed)
    path = tmp_path / "a.pack"
    with pytest.raises(DeviceError, match=message):
        pack.build(SHAPE, "sm_90", path, matmuls="cuda")
    assert not path.exists()
    caplog.clear()
    pack.build(SHAPE, "sm_90", path)
    header, said = pack.read_header(path), warnings(caplog)
    assert "layouts" not in header and "gate" not in header["kernels"] and header["built_with"] == "triton 9.9"
    assert [line.partition(":")[0] for line in said] == [
        "drafts on this GPU will wait for the host at every step",
        "matmuls are Triton's, which are slower",
    ]
    caplog.clear()
    pack.build(SHAPE, "sm_90", path, matmuls="triton")
    assert not any("slower" in line for line in warnings(caplog))


def test_the_key_is_the_same_everywhere(machine):
    """Packs that were prepared elsewhere are found, whatever compiles here, or if nothing does."""
    machine("one")
    path = pack.ensure(SHAPE, "sm_90")
    stamp = path.stat().st_mtime_ns
    for installed, triton in (((), False), ((), True), (("other",), False), (("other", "one"), True)):
        machine(*installed, triton=triton)
        assert pack.ensure(SHAPE, "sm_90") == path == pack.ensure(SHAPE, "sm_90", matmuls="cuda")
    assert path.stat().st_mtime_ns == stamp


def test_a_prepared_pack_of_the_other_kind_serves(machine, caplog):
    machine("one")
    path = pack.ensure(SHAPE, "sm_90", matmuls="triton")
    for installed, triton in (((), False), ((), True), (("one",), False)):
        machine(*installed, triton=triton)
        assert pack.ensure(SHAPE, "sm_90") == path
        assert "matmuls are Triton's" in warnings(caplog)[-1]
    machine(triton=False)
    with pytest.raises(DeviceError, match=r"pip install 'swiftk\[cuda\]'"):
        pack.ensure(SHAPE, "sm_90", draft_weights="int4")
    machine("one")
    assert pack.ensure(SHAPE, "sm_90") != path  # now that it can be


def test_a_pack_without_the_gate_is_built_again_where_that_can_be_compiled(machine):
    machine()
    path = pack.ensure(SHAPE, "sm_90", matmuls="triton")
    assert "gate" not in pack.read_header(path)["kernels"]
    log = machine("old")  # CUDA before 12.4 has not what the gate calls
    assert pack.ensure(SHAPE, "sm_90", matmuls="triton") == path
    assert "unresolved" in pack.read_header(path)["no_gate"]
    stamp = path.stat().st_mtime_ns
    assert pack.ensure(SHAPE, "sm_90", matmuls="triton") == path
    assert path.stat().st_mtime_ns == stamp, "nothing is tried at every start"
    path.unlink()
    machine()
    pack.ensure(SHAPE, "sm_90", matmuls="triton")
    machine("one", triton=False)
    pack.ensure(SHAPE, "sm_90", matmuls="triton")
    assert "gate" not in pack.read_header(path)["kernels"]
    machine("one")
    pack.ensure(SHAPE, "sm_90", matmuls="triton")
    assert "gate" in pack.read_header(path)["kernels"]
    assert log() == ["gate.cu"]


def test_an_architecture_has_one_gate(cache, machine, tmp_path):
    log = machine("one")
    for shape, arch in ((SHAPE, "sm_90"), (WIDE, "sm_90"), (SHAPE, "sm_80")):
        pack.build(shape, arch, tmp_path / "a.pack", matmuls="triton")
    assert log() == ["gate.cu"] * 2
    (kept,) = (cache / "kernels").glob("sm_90*.gate")
    kept.write_bytes(kept.read_bytes()[:-1])  # damaged
    machine("two")
    pack.build(SHAPE, "sm_90", tmp_path / "a.pack", matmuls="triton")
    assert log() == ["gate.cu"] * 3
    machine()
    pack.build(WIDE, "sm_90", tmp_path / "a.pack")
    header = pack.read_header(tmp_path / "a.pack")
    assert "gate" in header["kernels"] and header["built_with"] == "triton 9.9, two"


def test_a_cache_that_cannot_be_written_keeps_no_gate(monkeypatch, machine, tmp_path):
    machine("one")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SWIFTK_CACHE", str(tmp_path / "file"))
    pack.build(SHAPE, "sm_90", tmp_path / "a.pack")
    assert "gate" in pack.read_header(tmp_path / "a.pack")["kernels"]


@pytest.mark.parametrize("kind", ["nvrtc", "nvcc"])
@pytest.mark.parametrize(
    ("added", "message"),
    [
        ("#error broken on purpose", "error.*broken on purpose"),
        ('extern "C" __device__ void no_such();\nextern "C" __global__ void f() { no_such(); }', "fatal.*no_such"),
    ],
)
def test_what_a_compiler_says_is_reported(monkeypatch, tmp_path, kind, added, message):
    there = [c for c in pack_cuda.compilers() if c.name.startswith(kind)]
    if not there:
        pytest.skip(f"needs {kind}")
    copy = tmp_path / "kernels" / "cuda"
    shutil.copytree(pack_cuda.sources(), copy)
    shutil.copy(pack_cuda.header(), copy.parent)
    (copy / "gate.cu").write_text((copy / "gate.cu").read_text() + added)
    monkeypatch.setattr(pack_cuda, "sources", lambda: copy)
    monkeypatch.setattr(pack_cuda, "compilers", lambda: there[:1])
    with pytest.raises(DeviceError, match=f"compiling gate for sm_90 with {kind}.*{message}"):
        pack_cuda.gate_image("sm_90")


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["nvrtc", "nvcc"])
def test_a_real_pack_without_a_gpu(monkeypatch, tmp_path, kind):
    """By NVRTC of a wheel with nothing on the PATH, and by nvcc."""
    pytest.importorskip("triton", reason="the other kernels are Triton's")
    there = [c for c in pack_cuda.compilers() if c.name.startswith(kind)]
    if not there:
        pytest.skip(f"needs {kind}")
    if kind == "nvcc":
        monkeypatch.setattr(pack_cuda, "compilers", lambda: there)
    else:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert pack_cuda.compilers() == there
    manifest = pack.manifest()
    some = SimpleNamespace(entries=lambda *of: [e for e in manifest.entries(*of) if e.name in ("embed", "qkv.8")])
    monkeypatch.setattr(pack, "manifest", lambda: some)
    path, seen = tmp_path / "a.pack", []
    pack.build(SHAPE, "sm_90", path, lambda done, total: seen.append((done, total)))
    header = pack.read_header(path)
    kernels = header["kernels"]
    assert seen == sorted(seen) and seen[-1] == (len(kernels), len(kernels))
    assert set(kernels) == {"embed", "gate", *(entry.name for entry in pack_cuda.entries(SHAPE, "sm_90", True)[0])}
    assert header["built_with"].endswith(f", {there[0].name}")
    data = path.read_bytes()
    images = data[8 + int.from_bytes(data[:8], "little") :]
    for kernel in kernels.values():
        code = images[kernel["begin"] : kernel["end"]]
        assert code[:4] == b"\x7fELF" and kernel["symbol"].encode() in code
    assert str(tmp_path).encode() not in data
