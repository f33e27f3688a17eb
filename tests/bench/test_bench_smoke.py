"""The benchmarks run, at the bundled model's own size, and report what they promise. Says nothing about speed."""

import subprocess
import sys
from pathlib import Path

import pytest

from marks import exhaustive

ROOT = Path(__file__).resolve().parents[2]

pytest.importorskip("pytest_benchmark")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("phases", ["prefill of 512", "plain step", "draft step", "verify 64 rows", "commit"]),
        *exhaustive(
            ("ops", ["model qkv", "model lm_head", "model attention over 512", "GB/s", "GFLOP/s", "int3"]),
            ("draws", ["32000", "top_p .95", "penalty 1.1"]),
            ("generate", ["plain", "default", "early exit", "forecast", "same"]),
        ),
    ],
)
def test_benchmark_reports(name, words):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--benchmark", "--grow", "1", "-q", "-p", "no:cacheprovider",
         f"bench/bench_{name}.py"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=ROOT,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert "DIFFERS" not in done.stdout
    assert all(word in done.stdout for word in [*words, "measured: reads"])


@pytest.mark.exhaustive
def test_the_demo_s_recipe_trains_and_drafts(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "text.txt").write_text("Question: how many are one and two? They are three, or so we count. " * 2000)
    sizes = {"layers": 4, "hidden": 32, "heads": 2, "kv-heads": 1, "ffn": 32, "steps": 2, "threads": 2}
    arguments = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]

    done = subprocess.run(
        [sys.executable, str(ROOT / "bench/train_demo.py"), "text.txt", "--out", "models", "--control", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    assert all(word in done.stdout for word in ["layerskip", "plain", "held-out loss", "drafts accepted"])


@pytest.mark.parametrize(
    ("name", "words"),
    [("arrivals", ["first, median", "default"]), *exhaustive(("batch", ["4, greedy", "over plain", "same"]))],
)
def test_many_texts_report(name, words):
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench" / f"{name}.py"), "--quick"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "DIFFERS" not in done.stdout
    assert all(word in done.stdout for word in words), done.stdout


def test_an_interpreter_without_llama_cpp_is_refused_by_name(tmp_path):
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)

    done = subprocess.run(
        [sys.executable, str(ROOT / "bench/batch.py"), "--quick", "--python-llama", str(bare)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 1
    assert "bare-python" in done.stderr and "No module named" in done.stderr
