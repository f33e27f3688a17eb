"""Parts of bench/on_gpu.sh on small shapes, without a GPU or on the stub of one; the models they are measured with."""

import importlib
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

import stub_cuda
from debug_words import appended
from marks import exhaustive
from on_gpu import BENCH, GPU, call, found, given, tool_fixture  # noqa: F401
from swiftk import _core, demo_model
from swiftk.files.safetensors_io import read_folder

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


def test_models_go_for_another_when_it_is_needed(tool, tmp_path, monkeypatch, capsys):
    """Those first that were not used for the longest time; what is made ahead waits instead."""
    models = tool("models")
    store = models.Store(given(tmp_path))
    for name in ("7b", "1b", "8b"):
        store.ensure(name)
    for age, name in enumerate(("8b", "1b", "7b")):
        os.utime(store.root / name, (1000 - age, 1000 - age))
    store.ensure("7b")  # used

    def usage(_):
        there = [path.name for path in store.root.iterdir() if path.is_dir()]
        return Namespace(total=1 << 40, free=(1 << 40) * (len(there) < 2))

    monkeypatch.setattr(models.shutil, "disk_usage", usage)
    with pytest.raises(models.NoRoom):
        store.ensure("13b", ahead=True)
    assert store.ensure("13b").is_dir()
    assert {path.name for path in store.root.iterdir() if path.is_dir()} == {"7b", "13b"}


def test_where_memory_is_small_models_are_made_on_disk_and_it_says_so(tool, tmp_path, monkeypatch, capsys):
    models = tool("models")
    monkeypatch.setattr(models.record, "ROOT", tmp_path)
    for total, place in ((64 << 20, tmp_path / "build" / "gpu" / "swiftk-models"), (1 << 40, Path("/dev/shm"))):
        monkeypatch.setattr(models.shutil, "disk_usage", lambda _, total=total: Namespace(total=total, free=total))
        monkeypatch.setattr(Path, "mkdir", lambda *_, **__: None)
        root = models.Store(given(tmp_path, tiny=False, models=None)).root
        assert root == place or root.parent == place
        said = capsys.readouterr().out
        assert (f"/dev/shm has 0.1 GB, too few for models: they are made in {place}" in said) == (total < 1 << 30)


def test_a_model_grown_into_shards_is_the_same(tmp_path, monkeypatch):
    module = importlib.import_module("swiftk.files.grow")
    whole = read_folder(module.grow(demo_model(), tmp_path / "a", 2))
    monkeypatch.setattr(module, "_SHARD", 20 << 20)
    module.grow(demo_model(), tmp_path / "b", 2)
    assert len(list((tmp_path / "b").glob("*.safetensors"))) == 5
    parts = read_folder(tmp_path / "b")
    assert set(parts) == set(whole)
    assert all(np.array_equal(parts[name].bits, whole[name].bits) for name in whole)


# Parts on small shapes


def part_of(name, tmp_path, *arguments, env=os.environ):
    """A part's rows, as {(case, measure): value}, and gpu.md."""
    models = [] if name in ("smoke", "hardware") else ["--models", tmp_path / "models"]
    done = call(sys.executable, GPU / f"{name}.py", "--tiny", "--results", tmp_path, *models, *arguments, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    part, text = found(tmp_path)["parts"][name], (tmp_path / "gpu.md").read_text()
    assert part["state"] == "done", part["notes"]
    assert "missed" not in text
    return {(row["case"], row["measure"]): row["value"] for row in part["rows"]}, text


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("smoke", ["drafted text equals plain text", "rows equal among 1 to 64", "the CPU agrees"]),
        ("hardware", ["reads", "GB/s", "TFLOP/s"]),
        *exhaustive(
            ("decode", ["Llama-2-7B", "verify 8 rows", "launches in turn", "prefill of 512", "worst case"]),
            (
                "contexts",
                ["Llama-2-7B", "one row behind 128 tokens", "verify 8 rows of a tree over one behind 16 tokens"],
            ),
            ("speculation", ["early exit at half", "int4 weights", "of its forecast", "every token equals plain"]),
        ),
    ],
)
def test_part_runs_on_small_shapes(tmp_path, part, words):
    only = [] if part in ("smoke", "hardware") else ["--only", "7b"]
    _, text = part_of(part, tmp_path, "--device", "cpu", *only)
    assert all(word in text for word in words)
    assert "Llama-3.1-8B" not in text


@pytest.fixture(name="on_stub")
def on_stub_fixture(tmp_path, tmp_path_factory):
    stub = stub_cuda.library(tmp_path_factory.getbasetemp() / "stub_cuda")
    return {**os.environ, "SWIFTK_DEBUG": appended("arch=stub", f"driver={stub}"),
            "SWIFTK_CACHE": str(tmp_path / "cache")}  # fmt: skip


def with_word(environment, word):
    return {**environment, "SWIFTK_DEBUG": appended(word, to=environment["SWIFTK_DEBUG"])}


@pytest.mark.exhaustive
def test_decode_runs_on_the_stub_of_a_gpu(tmp_path, on_stub):
    """Both families of matmuls, overlapped and in turn; one alone where the ladder says so."""
    rows, _ = part_of("decode", tmp_path, "--only", "1b", env=on_stub)
    for case in ("Llama-3.2-1B, matmuls in CUDA C++", "Llama-3.2-1B"):
        assert rows[case, "step of one row, launches overlap"] > 0 and rows[case, "in turn over overlapped"] > 0
    assert rows["Llama-3.2-1B, matmuls in CUDA C++", "drafts of both ways are equal"] is True
    assert rows["Llama-3.2-1B, matmuls in CUDA C++", "draft step, int4 weights"] > 0
    rows, _ = part_of("decode", tmp_path, "--only", "7b", env=with_word(on_stub, "matmuls=triton"))
    assert {case for case, _ in rows} == {"Llama-2-7B"}


@pytest.mark.exhaustive
def test_bits_are_compared_where_a_gpu_may_get_them_wrong(tmp_path, on_stub):
    rows, _ = part_of("bits", tmp_path, "--only", "1b", env=on_stub)
    for case in ("Llama-3.2-1B, matmuls in CUDA C++", "Llama-3.2-1B"):
        for measure in ("row counts with other bits behind 20", "nodes of a tree with other bits behind 40"):
            assert rows[case, measure] == "none"
        for measure in ("rows equal over a poisoned cache behind 20", "rows equal, overlapped and in turn, behind 40",
                        "drafts equal, by loops and step by step, behind 60"):  # fmt: skip
            assert rows[case, measure] is True


@pytest.mark.exhaustive
def test_smoke_says_whether_the_device_drafts_by_itself(tmp_path, on_stub):
    for stepwise in ("0", "1"):
        rows, _ = part_of("smoke", tmp_path, env=with_word(on_stub, f"stepwise={stepwise}"))
        assert rows["tiny", "drafts are taken by the device"] == (stepwise == "0")


@pytest.mark.exhaustive
def test_speculation_keeps_its_rows_when_it_is_killed(tmp_path):
    """After the first round there are rows of every way; the next one adds to them."""
    command = [sys.executable, GPU / "speculation.py", "--device", "cpu", "--tiny", "--results", tmp_path]
    with subprocess.Popen([str(c) for c in (*command, "--models", tmp_path / "models")], stdout=subprocess.PIPE,
                          text=True) as process:  # fmt: skip
        for line in process.stdout:
            if "rounds behind the one that warms up 0" in line:
                process.kill()
                break
    part = found(tmp_path)["parts"]["speculation"]
    assert part["state"] == "unfinished"
    ways = {row["case"] for row in part["rows"] if row["measure"] == "decoding"}
    assert ways >= {"plain", "default", "always, half skipped", "always, int4 weights"}


@pytest.mark.exhaustive
def test_tests_part_counts_outcomes(tmp_path):
    chosen = ["--select", "tests/api/test_stops.py"]
    done = call(sys.executable, GPU / "suite.py", "--device", "cpu", "--results", tmp_path, *chosen)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["measure"]: row["value"] for row in found(tmp_path)["parts"]["tests"]["rows"]}
    assert rows["passed"] > 5
    assert rows["failed"] == 0
