"""The parts of bench/on_gpu.sh on small shapes, without a GPU or on the stub of one; the models they are measured with."""

import importlib
import json
import math
import os
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

import stub_cuda
from on_gpu import BENCH, GPU, call, found, given, tool_fixture  # noqa: F401
from swiftk import _core, demo_model
from swiftk.safetensors_io import read_folder

# Models


def test_shapes_are_those_of_the_models(tool):
    models = tool("models")
    sizes = {name: models.total_bytes(models.config(name, False)) / 2e9 for name in models.SHAPES}
    assert {name: round(size, 2) for name, size in sizes.items()} == {"7b": 6.74, "1b": 1.24, "13b": 13.02, "8b": 8.03}
    steps = {name: models.step_bytes(models.config(name, False)) / 1e9 for name in models.SHAPES}
    assert {name: round(size, 2) for name, size in steps.items()} == {"7b": 13.21, "1b": 2.47, "13b": 25.7, "8b": 15.01}


def test_models_are_made_once_and_whole(tool, tmp_path, monkeypatch, capsys):
    models = tool("models")
    monkeypatch.setattr(models, "_SHARD", 1 << 16)
    store = models.Store(given(tmp_path))
    (store.root / "1b.partial").mkdir(parents=True)
    (store.root / "1b.partial" / "config.json").write_text("half")
    for name in models.ORDER:
        folder = store.ensure(name)
        assert store.ensure(name) == folder
        tensors = read_folder(folder)
        if name != models.GROWN:
            config = models.config(name, True)
            assert {k: t.bits.shape for k, t in tensors.items()} == models.shapes(config)
            assert len(list(folder.glob("*.safetensors"))) > 1
        size = sum(t.bits.nbytes for t in tensors.values())
        assert 0.9 * store.bytes(name) < size <= store.bytes(name)
        model = _core.Model(str(folder))
        _core.Session(model).prefill(np.arange(5, dtype=np.int32))  # finite
        store.remove(name)
        assert not folder.exists()
    assert not list(store.root.glob("*.partial"))


def test_noise_differs_from_matrix_to_matrix(tool, tmp_path):
    models = tool("models")
    models.random_model(tmp_path, models.config("7b", True))
    matrices = [t.bits.tobytes()[:2048] for t in read_folder(tmp_path).values() if t.bits.ndim == 2]
    assert len(set(matrices)) == len(matrices)


def test_no_room_is_an_error_with_both_figures(tool, tmp_path, monkeypatch):
    models = tool("models")
    monkeypatch.setattr(models.shutil, "disk_usage", lambda _: Namespace(total=1 << 40, free=1 << 30))
    with pytest.raises(models.NoRoom, match=r"no room for the 0\.0 GB of Llama-2-7B"):
        models.Store(given(tmp_path)).ensure("7b")


def test_a_model_grown_into_shards_is_the_same(tmp_path, monkeypatch):
    module = importlib.import_module("swiftk.grow")
    whole = read_folder(module.grow(demo_model(), tmp_path / "a", 2))
    monkeypatch.setattr(module, "_SHARD", 20 << 20)
    module.grow(demo_model(), tmp_path / "b", 2)
    assert len(list((tmp_path / "b").glob("*.safetensors"))) == 5
    parts = read_folder(tmp_path / "b")
    assert set(parts) == set(whole)
    assert all(np.array_equal(parts[name].bits, whole[name].bits) for name in whole)


# Parts on small shapes


@pytest.mark.parametrize(("part", "words"), [
    ("smoke", ["drafted text equals plain text", "rows equal among 1 to 64", "tokens equal to the CPU's"]),
    ("decode", ["Llama-2-7B", "Llama-3.1-8B", "verify 16 rows", "launches in turn", "prefill of 512", "worst case",
                "draft step, int4 weights"]),
    ("speculation", ["early exit at half", "int4 weights", "of Equation 6", "every token equals plain"]),
])
def test_part_runs_on_small_shapes(tmp_path, part, words):
    models = [] if part == "smoke" else ["--models", tmp_path / "models"]
    done = call(sys.executable, GPU / f"{part}.py", "--device", "cpu", "--tiny", "--results", tmp_path, *models)
    assert done.returncode == 0, done.stdout + done.stderr
    assert found(tmp_path)["parts"][part]["state"] == "done"
    text = (tmp_path / "gpu.md").read_text()
    assert all(word in text for word in words)
    assert "missed" not in text


def test_decode_runs_on_the_stub_of_a_gpu(tmp_path, tmp_path_factory):
    """Both families of matmuls, overlapped and in turn."""
    stub = stub_cuda.library(tmp_path_factory.getbasetemp() / "stub_cuda")
    environment = {"SWIFTK_CUDA_DRIVER": str(stub), "SWIFTK_CUDA_ARCH": "stub", "SWIFTK_CACHE": str(tmp_path / "cache")}
    done = call(sys.executable, GPU / "decode.py", "--device", "cuda", "--tiny", "--results", tmp_path,
                "--models", tmp_path / "models", env={**os.environ, **environment})  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    part = found(tmp_path)["parts"]["decode"]
    assert part["state"] == "done", part["notes"]
    rows = {(row["case"], row["measure"]): row["value"] for row in part["rows"]}
    for case in ("Llama-2-7B", "Llama-2-7B, matmuls in CUDA C++"):
        assert rows[case, "step of one row, launches overlap"] > 0 and rows[case, "in turn over overlapped"] > 0
    assert rows["Llama-3.2-1B", "drafts of both ways are equal"] is True


def test_tests_part_counts_outcomes(tmp_path):
    chosen = ["--select", "tests/test_gate.py"]
    done = call(sys.executable, GPU / "tests.py", "--device", "cpu", "--results", tmp_path, *chosen)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["measure"]: row["value"] for row in found(tmp_path)["parts"]["tests"]["rows"]}
    assert rows["passed"] > 5
    assert rows["failed"] == 0


def test_peer_computes_what_transformers_does(tool):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = {**tool("models").config("1b", True), "rope_theta": 10000.0}
    del config["rope_scaling"]
    fields = {key: value for key, value in config.items() if key not in ("architectures", "torch_dtype")}
    torch.manual_seed(0)
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**fields)).float().eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
        ours = tool("torch_llama").Llama(config, dict(theirs.state_dict()), 32)
        tokens = torch.arange(7, 21)
        ours.start(tokens.tolist())
        text = [*tokens.tolist(), ours.token.item()]
        for _ in range(8):
            want = theirs(torch.tensor([text])).logits[0, -1]
            got = ours.forward(ours.token, ours.position)[0]
            assert (got - want).abs().max() < 1e-4 * want.std()
            ours.step()
            text.append(ours.token.item())
            assert text[-1] == want.argmax()


@pytest.mark.parametrize("way", [0, 2, 3])
def test_peer_runs_on_small_shapes(tool, way):
    pytest.importorskip("transformers")
    name = tool("peer").WAYS[way]
    done = call(sys.executable, GPU / "peer.py", name, "1b", "--device", "cpu", "--tiny", "--tokens", "4")
    assert done.returncode == 0, done.stderr
    assert math.isfinite(json.loads(done.stdout)["seconds"])  # of two tokens, on a machine that may be busy


@pytest.mark.parametrize("arch", [80, 90])
def test_read_kernels_compile(tmp_path, arch):
    if not shutil.which("nvcc"):
        pytest.skip("needs nvcc")
    code = f"-gencode=arch=compute_{arch},code=sm_{arch}"
    done = call("nvcc", code, "-cubin", "-std=c++17", "-Xptxas", "-v", GPU / "streams.cu", "-o", tmp_path / "cubin")
    assert done.returncode == 0, done.stderr
    assert "0 bytes spill stores" in done.stderr
    assert ("read_bulk" in done.stderr) == (arch >= 90)
