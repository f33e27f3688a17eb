"""The benchmarks run, at the bundled model's own size, and report what they promise. Says nothing about speed."""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from heads import make_block, make_eagle
from marks import exhaustive
from patience import PATIENCE
from swiftk import demo_model

ROOT = Path(__file__).resolve().parents[2]

pytest.importorskip("pytest_benchmark")
# pytest-benchmark measures nothing in what looks like a worker of xdist, and a child of one does.
ALONE = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}


def run(*words, **more):
    command = [sys.executable, "-m", *map(str, words)]
    more |= {"cwd": ROOT, "env": {**ALONE, "SWIFTK_DEVICE": "cpu"}}
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, **more)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("phases", ["prefill of 512", "plain step", "draft step", "verify 64 rows", "commit"]),
        *exhaustive(
            ("ops", ["model qkv", "model lm_head", "model attention over 512", "GB/s", "GFLOP/s", "int3"]),
            ("draws", ["32000", "top_p .95", "penalty 1.1"]),
            ("generate", ["plain", "default", "int4, always", "half skipped", "T .6, top-p .95", "yes"]),
        ),
    ],
)
def test_benchmark_reports(tmp_path, name, words):
    bench = f"bench/bench_{name}.py"
    done = run("pytest", "--benchmark", "--grow", "1", "--out", tmp_path, "-q", "-p", "no:cacheprovider", bench)

    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / f"{name}.json").read_text())["smoke_test"] is True
    assert " NO " not in done.stdout
    assert all(word in done.stdout for word in [*words, "measured: reads"])


STUDIES = {
    "compare": ["swiftk, default", "swiftk, plain", "peak memory, GB", "1 of 1"],
    "families": ["Gemma 3", "over LLaMA's"],
    "loading": ["bf16 folder, as int4", "converted", "seconds a GB"],
    "quantised": ["toy, q8_0", "of reads", "long prompt", "1 of 1"],
    "published_model": ["writing, greedy", "default, int3", "without copies", "wanted", "mean of categories"],
    "quality": ["pass@1", "exact match", "ROUGE-L"],
    "modes": ["plain again", "default, int3", "uniform skip", "int3", "suffix", "auto", "memory"],
    "sources": ["again: code", "recycle", "accepted"],
    "precision": ["int4, 16", "uniform skip, by time", "T 1"],
    "batch": ["2, greedy", "over plain", "2 of 2"],
    "contexts": ["1024, retrieval, T .7", "int4, last 512", "of reads", "2 x 1024, shared", "over one", "best text"],
    "disk": ["44MB", "2 texts, default", "of direct reads", "T = 1", "1 of 1"],
    "arrivals": ["first, median", "default"],
    "users": ["no drafts", "default", "first, median", "1 of 1"],
    "remote": ["model, cut", "EAGLE-2 head", "4G", "suffix", "silence"],
    "structured": ["nothing forced", "records", "by grammar"],
    "heads": ["eagle2", "moa-last-states", "place 7", "tokens a pass"],
    "modelled": ["lm13m-eagle2, shuffled", "lm13m-eagle2, chain", "auto with lm13m-eagle2", "of none", "T 1"],
}


@pytest.mark.parametrize("name", ["arrivals", *exhaustive(*sorted(STUDIES.keys() - {"arrivals"}))])
def test_study_reports(tmp_path, name):
    """One schema: the build and rows in the JSON, all words in the table, one picture."""
    done = run(f"bench.{name}", "--quick", "--out", tmp_path)
    if "needs llama.cpp" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    text = (tmp_path / f"{name}.md").read_text()
    found = json.loads((tmp_path / f"{name}.json").read_text())

    assert all(word in text for word in [*STUDIES[name], "measured: reads", found["build"], found["command"]])
    assert " NO " not in text and found["rows"] and "cut short" not in text
    assert found["smoke_test"] is True and "\n- a smoke test" in text and "\n- a smoke test" in done.stdout
    assert all(row["same"] for row in found["rows"] if "same" in row)
    assert text.splitlines()[0] in done.stdout


@exhaustive
def test_drafters_are_measured_beside_what_needs_none(tmp_path):
    folders = [make_block(tmp_path / "block", demo_model()), make_eagle(tmp_path / "eagle", demo_model(), "eagle1")]
    done = run("bench.drafters", "--quick", "--out", tmp_path, "--drafters", *folders)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "drafters.json").read_text())["rows"]
    ways = {row["way"] for row in rows}
    assert ways == {"plain", "no drafter", "int4", "suffix"} | {
        way for name in ("block", "eagle") for way in (name, f"{name}, chain", f"auto with {name}")
    } | {"auto with all"}
    assert all(row["same"] for row in rows if "same" in row)
    assert all(row["places"] for row in rows if row["way"].endswith("chain"))


def test_an_interpreter_without_llama_cpp_is_named_and_left_out(tmp_path):
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)

    done = run("bench.batch", "--quick", "--out", tmp_path, "--python-llama", bare)

    assert done.returncode == 0, done.stderr
    assert "left out: llama.cpp" in done.stdout and "bare-python" in done.stdout and "No module named" in done.stdout


@pytest.fixture
def results(monkeypatch):
    """The module bench.results."""
    monkeypatch.syspath_prepend(ROOT)
    return import_module("bench.results")


def test_nothing_is_recorded_unless_it_is_asked_for(results):
    elsewhere = Path("elsewhere")
    assert results.RECORD == ROOT / "bench" / "results" and results.OUT == ROOT / "bench" / "out"
    assert "bench/out/" in (ROOT / ".gitignore").read_text().split()
    for smoke in (False, True):
        assert results.folder_of(False, None, smoke) == results.OUT
        assert results.folder_of(False, elsewhere, smoke) == elsewhere
    assert results.folder_of(True, None, False) == results.RECORD
    for record_and in ({"out": elsewhere, "smoke": False}, {"out": None, "smoke": True}):
        with pytest.raises(ValueError, match="--record"):
            results.folder_of(True, **record_and)


@pytest.mark.parametrize(
    "words",
    [
        *(["bench.sources", "--quick"], ["bench.sources", "--out", "elsewhere"], ["bench.all", "--quick"]),
        ["pytest", "--benchmark", "--grow", "1", "bench/bench_draws.py"],
    ],
    ids=" ".join,
)
def test_a_smoke_test_is_not_recorded(words):
    done = run(*words, "--record")
    assert done.returncode in (2, pytest.ExitCode.USAGE_ERROR) and "--record" in done.stderr


def test_a_smoke_test_is_no_measurement_of_the_build(results, tmp_path):
    for smoke in (True, False):
        results.Results("one", "?", {}, "command", smoke=smoke).write(tmp_path)
        assert results.is_current("one", tmp_path, smoke=True)
        assert results.is_current("one", tmp_path, smoke=False) != smoke
    assert not results.is_current("other", tmp_path, smoke=True)


def test_all_studies_are_run_and_told_of(results):
    """By bench.all, and in its README."""
    every = import_module("bench.all")
    bench = ROOT / "bench"
    files = [path for path in bench.rglob("*.py") if 'Study("' in path.read_text()]
    studies = {str(path.relative_to(bench).with_suffix("")) for path in files}
    told = (bench / "README.md").read_text()

    assert studies == {*every.MINUTES, *every.APART} - set(every.BENCHMARKS)
    assert all(f"`{name.replace('/', '.')}`" in told for name in (*every.MINUTES, *every.APART))


@pytest.mark.exhaustive
def test_a_study_that_fails_stops_no_other_and_what_is_there_is_not_measured_again(tmp_path):
    words = ["bench.all", "--quick", "--out", tmp_path, "--only", "paper/constructed", "arrivals"]
    broken = tmp_path / "paper"
    broken.write_text("in the way of a folder")
    first = run(*words)
    broken.unlink()
    before = (tmp_path / "arrivals.json").stat().st_mtime_ns
    again = run(*words)
    last = run(*words)

    assert first.returncode == 1 and "failed: paper/constructed" in first.stdout
    assert again.returncode == 0 and "== 1 of 1: paper/constructed" in again.stdout
    assert (tmp_path / "arrivals.json").stat().st_mtime_ns == before
    assert last.returncode == 0 and last.stdout.startswith("0 studies")
