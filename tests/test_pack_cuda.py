"""Packs whose matmuls are in CUDA C++: entries, layouts, what is said where they cannot be built."""

import shutil

import pytest

from swiftk import pack, pack_cuda
from swiftk.errors import DeviceError, InvalidArgument

FLAGS = dict.fromkeys(("qk_norm", "qkv_bias", "o_bias", "mlp_bias"), False)
SHAPE = {"D": 64, "H": 4, "KV": 2, "HD": 16, "F": 88, "V": 320, "dtype": "bfloat16", "eps": 1e-5, **FLAGS}


def test_every_matmul_is_replaced(tmp_path):
    plain, own = tmp_path / "triton.pack", tmp_path / "cuda.pack"
    pack.build(SHAPE, "stub", plain)
    pack.build(SHAPE, "stub", own, matmuls="cuda")
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
    monkeypatch.setenv("SWIFTK_MATMULS", "cuda")
    assert pack.hash_of(SHAPE, "stub") == pack.hash_of(SHAPE, "stub", "cuda")
    monkeypatch.setenv("SWIFTK_MATMULS", "cublas")
    with pytest.raises(InvalidArgument, match="'cublas', want 'triton' or 'cuda'"):
        pack.hash_of(SHAPE, "stub")


@pytest.mark.parametrize("change", [{"dtype": "float32"}, {"F": 90}, {"HD": 6, "H": 3}])
def test_shapes_without_such_kernels_are_errors(tmp_path, change):
    with pytest.raises(DeviceError, match="16-bit weights"):
        pack.build({**SHAPE, **change}, "stub", tmp_path / "a.pack", matmuls="cuda")


def test_without_a_toolkit_the_error_says_what_works(monkeypatch, tmp_path):
    pytest.importorskip("triton", reason="the other kernels are Triton's")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(DeviceError, match=r"needs nvcc.*matmuls='triton' does not"):
        pack.build(SHAPE, "sm_90", tmp_path / "a.pack", matmuls="cuda")


def test_a_real_pack_without_a_gpu(tmp_path):
    pytest.importorskip("triton", reason="the other kernels are Triton's")
    if not shutil.which("nvcc"):
        pytest.skip("needs nvcc")
    path, seen = tmp_path / "a.pack", []
    pack.build(SHAPE, "sm_90", path, lambda done, total: seen.append((done, total)), "cuda")
    header = pack.read_header(path)
    assert seen[-1] == (len(header["kernels"]), len(header["kernels"]))
    assert "nvcc" in header["built_with"]
