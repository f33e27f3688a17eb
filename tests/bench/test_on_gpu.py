"""bench/on_gpu.sh without a GPU: it says so; what its ladder makes of rungs that fail, hang and crash; what is kept."""

import json
import os
import shutil
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import stub_cuda
import swiftk
from on_gpu import BENCH, GPU, NO_DRIVER, call, found, given, tool_fixture  # noqa: F401
from swiftk.files.folders import kernel_sources

SCRIPT = BENCH / "on_gpu.sh"


# The run as a whole


def test_without_a_gpu_it_says_so(tmp_path):
    done = call("bash", SCRIPT, "--results", tmp_path / "results")
    assert done.returncode == 0, done.stderr
    assert "no NVIDIA GPU" in done.stdout
    assert not (tmp_path / "results").exists()


def test_an_unknown_part_is_named():
    done = call("bash", SCRIPT, "decoding")
    assert done.returncode == 2
    assert "'decoding'" in done.stdout and "speculation" in done.stdout


FAKE = """
import argparse, json, os, signal, sys, time
import ladder, record
given = record.options(argparse.ArgumentParser()).parse_known_args()[0]
how = json.loads(os.environ.get("FAKE", "{}")).get(given.part, "ok")
with record.Part(given.part, given) as part:
    asked = ladder.words(os.environ["SWIFTK_DEBUG"])
    part.keep("settings", {word: asked[word] for word in ladder.SETTINGS if word in asked})
    part.add("model", "speed", 1.25, "GB/s")
    part.add("model", "same", how != "wrong", must=True)
    if how == "broken":
        raise ValueError("no memory")
    if how == "hung":
        time.sleep(3600)
    if how == "deaf":  # as one that waits for the device in native code
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(3600)
    if how == "crashed":
        os.kill(os.getpid(), signal.SIGSEGV)
"""
LADDER = ["smoke", "loops", "overlap", "triton", "cuda", "many", "heads", "same bits"]
LATER = ["hardware", "decode", "speculation"]
BY_HOST, IN_TURN, TRITON = {"stepwise": "1"}, {"overlap": "0"}, {"matmuls": "triton"}


@pytest.fixture
def tree(tmp_path):
    """A source tree whose parts do what FAKE in their environment says."""
    gpu = tmp_path / "bench" / "gpu"
    gpu.mkdir(parents=True)
    for path in (SCRIPT, BENCH / "tables.py", *(GPU / f"{name}.py" for name in ("run", "record", "ladder", "ahead"))):
        shutil.copy(path, tmp_path / path.relative_to(BENCH.parent))
    for name in ("build", "smoke", "suite", "hardware", "decode", "speculation"):
        (gpu / f"{name}.py").write_text(FAKE)
    (gpu / "models.py").write_text("import sys, time\nif 'make' in sys.argv: time.sleep(3600)\n")
    python = tmp_path / "build" / "gpu" / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return tmp_path


def run(tree, *arguments, **environment):
    """(process, the parts' records)."""
    done = call("bash", tree / "bench" / "on_gpu.sh", "--device", "cpu", "--tiny", *arguments,
                env={**NO_DRIVER, **environment})  # fmt: skip
    return done, found(tree / "bench" / "results")["parts"]


CASES = {
    "nothing": ({}, "nothing faults", {}, [], []),
    "kernels": ({"smoke": "crashed"}, "kernels fault, launched in turn and by the host (smoke: crashed); ended: decode",
                {}, LADDER[1:], ["decode", "speculation"]),
    "kernels, wrong": ({"smoke": "wrong"}, "(smoke: wrong); ended", {}, LADDER[1:], ["decode", "speculation"]),
    "kernels, hung": ({"smoke": "deaf"}, "(smoke: hung); ended", {}, LADDER[1:], ["decode", "speculation"]),
    "loops": ({"loops": "hung"}, "kernels work, loops on the device fault (loops: hung); later parts run with "
              "SWIFTK_DEBUG=stepwise=1", BY_HOST, ["triton"], []),
    "overlap": ({"overlap": "crashed"}, "launches that overlap fault (overlap: crashed); later parts run with "
                "SWIFTK_DEBUG=overlap=0", IN_TURN, ["triton"], []),
    "loops and overlap": ({"loops": "wrong", "overlap": "broken"}, "later parts run with "
                          "SWIFTK_DEBUG=stepwise=1,overlap=0", {**BY_HOST, **IN_TURN}, ["triton"], []),
    "together": ({"triton": "wrong"}, "loops and overlap work, but not together (triton: wrong)", BY_HOST, [], []),
    "C++ matmuls": ({"cuda": "broken"}, "the C++ matmuls fault in a model (cuda: broken); later parts run with "
                    "SWIFTK_DEBUG=matmuls=triton", TRITON, [], []),
    "tests": ({"same bits": "wrong"}, "tests of equal bits fail (same bits: wrong)", {}, [], []),
}  # fmt: skip
QUICK = ("nothing", "kernels", "loops and overlap", "C++ matmuls")


@pytest.mark.parametrize(
    ("fake", "words", "settings", "rungs", "ended"),
    [pytest.param(*CASES[name], id=name, marks=() if name in QUICK else pytest.mark.exhaustive) for name in CASES],
)
def test_the_ladder_names_what_faults_and_later_parts_go_around_it(tree, fake, words, settings, rungs, ended):
    hangs = {"hung", "deaf"} & {*fake.values()}
    done, parts = run(tree, "ladder", *LATER, "--part-seconds", "20" if hangs else "600", FAKE=json.dumps(fake))
    assert done.returncode == bool(fake)
    (line,) = {line for line in done.stdout.splitlines() if line.startswith("== ladder: ")}
    assert words in line and line == done.stdout.splitlines()[-1]
    skipped = {name for name, part in parts.items() if part["state"].startswith("not run: ")}
    assert skipped == {*rungs, *ended}
    for name in {*LATER} - skipped:
        assert parts[name]["figures"]["settings"] == settings
    if not skipped & {"cuda"}:
        assert parts["cuda"]["figures"]["settings"] == {**settings, "matmuls": "cuda"}
    for name in {*LADDER} - {*fake} - skipped:
        assert parts[name]["state"] == "done"
    assert all(parts[name]["rows"] for name in fake), "a row is there the moment it is known"


def test_the_next_run_goes_by_the_last_one_and_the_user_has_the_last_word(tree):
    run(tree, "loops", FAKE='{"loops": "broken"}')
    _, parts = run(tree, "decode")
    assert parts["decode"]["figures"]["settings"] == BY_HOST
    _, parts = run(tree, "decode", SWIFTK_DEBUG="stepwise=0")
    assert parts["decode"]["figures"]["settings"] == {"stepwise": "0"}
    _, parts = run(tree, "loops", "decode")
    assert parts["decode"]["figures"]["settings"] == {} and parts["loops"]["state"] == "done"
    results = tree / "bench" / "results" / "gpu.json"
    elsewhere = json.loads(results.read_text())
    elsewhere["machine"]["GPU"] = "another"
    results.write_text(json.dumps(elsewhere))
    _, parts = run(tree, "hardware")
    assert "decode: measured before, with GPU another" in (results.with_suffix(".md")).read_text()
    assert "machine" not in parts["hardware"]
    before = parts["decode"]
    done, parts = run(tree, "smoke", "decode", FAKE='{"smoke": "wrong"}')
    assert parts["decode"] == before and "== decode: not run: smoke faults" in done.stdout


def test_a_sanitizer_runs_over_kernels_that_fault(tree, tmp_path):
    tool = tmp_path / "bin" / "compute-sanitizer"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\necho "Invalid __global__ read" > "$2"\nshift 2\nexec "$@"\n')
    tool.chmod(0o755)
    out = tmp_path / "out"
    out.mkdir()
    path = f"{tool.parent}{os.pathsep}{os.environ['PATH']}"
    _, parts = run(tree, "smoke", "loops", FAKE='{"smoke": "crashed"}', PATH=path, OUT=str(out))
    assert parts["sanitizer"]["figures"]["settings"] == {**TRITON, **IN_TURN, **BY_HOST}
    assert (out / "sanitizer.log").read_text() == "Invalid __global__ read\n"
    _, parts = run(tree, "smoke", PATH=path)
    assert "sanitizer" not in parts


@pytest.mark.exhaustive
def test_parts_fail_or_end_at_the_limit_and_the_rest_goes_on(tree):
    out = tree / "out"
    out.mkdir()
    done, parts = run(tree, "build", "speculation", "hardware", "decode", SWIFTK_GPU_SECONDS="40", OUT=str(out),
                      FAKE='{"speculation": "broken", "hardware": "hung"}')  # fmt: skip
    assert done.returncode == 1
    assert {name: part["state"] for name, part in parts.items()} == {
        "build": "done", "speculation": "failed", "hardware": "stopped at its limit",
        "decode": "not run: no time was left"}  # fmt: skip
    assert parts["speculation"]["notes"] == ["ValueError: no memory"]
    text = (tree / "bench" / "results" / "gpu.md").read_text()
    assert "1.25 GB/s" in text and "trial on small shapes" in text
    assert text in done.stdout
    assert {f.name for f in out.iterdir()} == {"gpu.json", "gpu.md", "on_gpu.log"}
    assert (out / "gpu.md").read_text() == text


def test_tools_beside_the_running_python_are_found(tree, tmp_path):
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    toolkit = tmp_path / "toolkit" / "bin" / "nvcc"
    toolkit.parent.mkdir(parents=True)
    for tool in (python, toolkit):
        tool.touch()
        tool.chmod(0o755)
    done, _ = run(tree, "hardware", PATH=f"{python.parent}:/usr/bin:/bin", CUDA_HOME=str(toolkit.parents[1]))
    beside = shutil.which("python3", path=f"{Path(sys.executable).parent}:{python.parent}")
    assert f"[machine] python3: {beside}\n" in done.stdout
    assert f"[machine] nvcc: {toolkit}\n" in done.stdout
    assert "/dev/shm" in done.stdout


# Files that are made ahead


def wheel(folder):
    """A wheel of swiftk as it runs here, for this Python, without its models, which the tree has."""
    package, kernels = Path(swiftk.__file__).parent, kernel_sources().parent
    files = {path.relative_to(package): path for path in package.rglob("*") if path.is_file()}
    files = {name: path for name, path in files.items() if name.parts[0] != "models" and path.suffix != ".pyc"}
    ours = (kernels / "gate_rule.h", *kernels.glob("triton/*.py"), *kernels.glob("cuda/*.*"))
    files |= {Path("kernels", path.relative_to(kernels)): path for path in ours}
    info = f"swiftk-{swiftk.__version__}.dist-info"
    python, system = f"cp{sys.version_info[0]}{sys.version_info[1]}", sysconfig.get_platform().replace("-", "_")
    facts = {
        "METADATA": f"Metadata-Version: 2.1\nName: swiftk\nVersion: {swiftk.__version__}\n",
        "RECORD": "",
        "WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {python}-{python}-{system}\n",
    }
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"swiftk-{swiftk.__version__}-{python}-{python}-{system}.whl", "w") as out:
        for name, path in files.items():
            out.write(path, Path("swiftk", name))
        for name, text in facts.items():
            out.writestr(f"{info}/{name}", text)


@pytest.fixture
def bare(tmp_path, monkeypatch, tool):
    """The benchmarks and models in a tree without sources, and an environment without compilers and Triton."""
    shutil.copytree(BENCH, tmp_path / "bench", ignore=shutil.ignore_patterns("results", "paper", "__pycache__"))
    shutil.copy(BENCH.parent / "pyproject.toml", tmp_path)
    (tmp_path / "tests").symlink_to(BENCH.parent / "tests")
    (tmp_path / "swiftk").mkdir()
    (tmp_path / "swiftk" / "models").symlink_to(BENCH.parent / "swiftk" / "models")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "dirname", "mkdir", "tee", "timeout"):
        (tools / name).symlink_to(shutil.which(name))
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "triton.py").write_text("raise ImportError('there is no Triton here')\n")
    build = tool("build")
    monkeypatch.setattr(build, "ENVIRONMENT", tmp_path / "outer")
    python = build.environment()
    monkeypatch.setattr(tool("record"), "ROOT", tmp_path)
    wheel(tmp_path / "build" / "gpu" / "prepared")
    (tmp_path / "build" / "gpu" / "prepared" / "sources").write_text(tool("ahead").digest())
    return tmp_path, {"PATH": f"{python.parent}:{tools}", "PYTHONPATH": str(tmp_path / "blocked"),
                      "CUDA_HOME": str(tmp_path / "nowhere"), "HOME": str(tmp_path)}  # fmt: skip


@pytest.mark.exhaustive
def test_what_is_made_ahead_serves_where_nothing_can_be_compiled(bare, tmp_path_factory):
    tree, environment = bare
    stub = {"SWIFTK_STUB_CUDA": str(stub_cuda.library(tmp_path_factory.getbasetemp() / "stub_cuda"))}
    here = {"PYTHONPATH": str(Path(swiftk.__file__).parents[1]),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # fmt: skip
    done = call("bash", tree / "bench" / "gpu" / "prepare.sh", "--arch", "stub", "--no-wheel", "--tests",
                "tests/api/test_api.py::test_prompt_forms_agree", env={**os.environ, **stub, **here})  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bench/on_gpu.sh hardware decode contexts bits" in done.stdout
    prepared = tree / "build" / "gpu" / "prepared"
    with tarfile.open(prepared / "packs.tar.xz") as archive:
        packs = set(archive.getnames())
    assert len(packs) >= 14, "two kinds of matmuls for six models and a test's"
    shutil.rmtree(tree / "build" / "gpu" / "cache")
    environment |= {"SWIFTK_DEBUG": f"arch=stub,driver={stub['SWIFTK_STUB_CUDA']}"}
    done = call("bash", tree / "bench" / "on_gpu.sh", "--tiny", *LADDER[:-1], env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    for missing in ("nvcc", "cmake"):
        assert f"[machine] {missing}: not found" in done.stdout
    parts = found(tree / "bench" / "results")["parts"]
    assert {part["state"] for part in parts.values()} == {"done"}
    assert f"from swiftk-{swiftk.__version__}-cp" in parts["build"]["notes"][0]
    assert {path.name for path in (tree / "build" / "gpu" / "cache" / "kernels").iterdir()} == packs, "one was built"


def test_a_wheel_of_other_sources_or_for_another_python_is_not_taken(tool, tmp_path, monkeypatch):
    ahead = tool("ahead")
    monkeypatch.setattr(ahead, "PREPARED", tmp_path)
    assert ahead.wheels() == []
    wheel(tmp_path)
    (tmp_path / "swiftk-0.1.0-cp27-cp27-linux_x86_64.whl").touch()
    assert ahead.wheels() == []
    (tmp_path / "sources").write_text(ahead.digest())
    assert len(ahead.wheels()) == 1
