"""Kernel packs: what is in the file, the cache around it, and what is said when something is wrong."""

import json
import multiprocessing
import struct
from pathlib import Path

import pytest

import swiftk
from swiftk import pack
from swiftk.cli import main
from swiftk.errors import CheckpointError, DeviceError, InvalidArgument

SHAPES = {
    "small": dict(D=64, H=4, KV=2, HD=16, F=88, V=320, dtype="bfloat16", qk_norm=False, qkv_bias=False, o_bias=False,
                  mlp_bias=False, eps=1e-5),
    "odd": dict(D=30, H=3, KV=1, HD=10, F=75, V=101, dtype="float32", qk_norm=True, qkv_bias=True, o_bias=True,
                mlp_bias=True, eps=1e-6),
}  # fmt: skip
FIXED = {"embed", "rmsnorm", "attention_split", "attention_merge", "attention_serial", "topk_partial", "topk_merge"}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SWIFTK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def image(path, name):
    """A kernel's image out of the file, by the header's own offsets."""
    data = Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    kernel = json.loads(data[8 : 8 + length])["kernels"][name]
    return data[8 + length + kernel["begin"] : 8 + length + kernel["end"]]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_pack_holds_every_kernel(tmp_path, shape):
    path = tmp_path / "a.pack"
    pack.build(shape, "stub", path)
    header = pack.read_header(path)
    assert (header["arch"], header["shape"]) == ("stub", shape)
    assert FIXED <= set(header["kernels"])
    assert ("qk_norm_rope" in header["kernels"]) == shape["qk_norm"]
    for matmul in ("qkv", "o_proj", "gate_up", "down", "lm_head"):
        for tokens in (8, 16, 32, 64):
            kernel = json.loads(image(path, f"{matmul}.{tokens}"))
            assert kernel["constants"]["TOKENS"] == tokens
            assert kernel["constants"]["DT"] == shape["dtype"]


def test_the_hash_tells_what_kernels_are_made_from(monkeypatch, tmp_path):
    shape = SHAPES["small"]
    keys = {pack.hash_of(s, "stub") for s in (shape, {**shape, "D": 128}, {**shape, "dtype": "float16"})}
    assert len(keys) == 3
    before = pack.hash_of(shape, "stub")
    assert pack.hash_of(shape, "stub") == before
    copied = tmp_path / "kernels"
    copied.mkdir()
    for source in pack.kernel_sources().glob("*.py"):
        (copied / source.name).write_bytes(source.read_bytes())
    monkeypatch.setattr(pack, "kernel_sources", lambda: copied)
    assert pack.hash_of(shape, "stub") == before
    (copied / "tile.py").write_text("# changed\n")
    assert pack.hash_of(shape, "stub") != before


def test_a_pack_is_built_once(cache):
    path = pack.ensure(SHAPES["small"], "stub")
    assert path.is_relative_to(cache)
    stamp = path.stat().st_mtime_ns
    assert pack.ensure(SHAPES["small"], "stub") == path
    assert path.stat().st_mtime_ns == stamp
    assert pack.ensure(SHAPES["odd"], "stub") != path


@pytest.mark.parametrize("damage", ["cut", "empty", "foreign", "other"])
def test_a_damaged_pack_is_built_again(damage, caplog):
    path = pack.ensure(SHAPES["small"], "stub")
    whole = path.read_bytes()
    if damage == "other":
        pack.build(SHAPES["odd"], "stub", path)
    else:
        path.write_bytes({"cut": whole[:-40], "empty": b"", "foreign": b"MZ" + bytes(100)}[damage])
    assert pack.ensure(SHAPES["small"], "stub") == path
    assert path.read_bytes() == whole
    assert "built again" in caplog.text


def test_two_processes_build_one(cache):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        paths = pool.starmap(pack.ensure, [(SHAPES["small"], "stub")] * 4)
    assert len(set(paths)) == 1
    assert list((cache / "kernels").iterdir()) == [paths[0]]


def test_a_folder_that_cannot_be_written_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SWIFTK_CACHE", str(tmp_path / "file"))
    with pytest.raises(DeviceError, match="SWIFTK_CACHE"):
        pack.ensure(SHAPES["small"], "stub")
    with pytest.raises(DeviceError, match="cannot be written"):
        pack.build(SHAPES["small"], "stub", tmp_path / "file" / "a.pack")


def test_bad_files_are_named(tmp_path):
    path = tmp_path / "a.pack"
    with pytest.raises(CheckpointError, match=r"a\.pack"):
        pack.read_header(path)
    pack.build(SHAPES["small"], "stub", path)
    data = path.read_bytes().replace(b'"version": 1', b'"version": 7')
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="version is 7, want 1"):
        pack.read_header(path)
    with pytest.raises(InvalidArgument, match="want sm_80"):
        pack.build(SHAPES["small"], "hopper", path)


def test_without_triton_the_error_says_what_to_install(monkeypatch, tmp_path):
    def nothing(name):
        raise pack.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(pack.metadata, "version", nothing)
    with pytest.raises(DeviceError, match=r"pip install 'swiftk\[cuda\]'"):
        pack.build(SHAPES["small"], "sm_90", tmp_path / "a.pack")


def test_kernels_that_do_not_compile_are_an_error(monkeypatch, tmp_path):
    pytest.importorskip("triton")
    copied = tmp_path / "kernels"
    copied.mkdir()
    for source in pack.kernel_sources().glob("*.py"):
        (copied / source.name).write_bytes(source.read_bytes())
    (copied / "embed.py").write_text("raise ValueError('broken on purpose')\n")
    monkeypatch.setattr(pack, "kernel_sources", lambda: copied)
    with pytest.raises(DeviceError, match="broken on purpose"):
        pack.build(SHAPES["small"], "sm_90", tmp_path / "a.pack")
    assert not (tmp_path / "a.pack").exists()


def test_a_real_pack_without_a_gpu(tmp_path, capsys):
    pytest.importorskip("triton")
    path = tmp_path / "demo.pack"
    seen = []
    pack.build(pack.shape_of(swiftk.demo_model()), "sm_90", path, lambda done, total: seen.append((done, total)))
    header = pack.read_header(path)
    assert seen[-1] == (len(header["kernels"]), len(header["kernels"]))
    assert image(path, "qkv.8")[:4] == b"\x7fELF"
    assert main(["pack", "--show", str(path)]) == 0
    assert "for sm_90, built with triton" in " ".join(capsys.readouterr().out.split())


def test_the_command_builds_and_shows(tmp_path, capsys):
    path = tmp_path / "a.pack"
    assert main(["pack", "--model", "demo", "--arch", "stub", "-o", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == pack.read_header(path)
    assert main(["pack", "--model", "demo"]) == 2
    assert "want --model DIR and -o FILE" in capsys.readouterr().err
