"""Tests of the runtime and of generate() once more, in a process whose models run on the stub of a GPU's driver."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import stub_cuda
from marks import exhaustive

TESTS = Path(__file__).resolve().parents[1]
SUITES = ["api", "engine", "exits", "families", "generate", "lossless", "nucleus", "propose", "recall", "sampling"]
SUITES += ["score", "shared_prompts", "timed_trees"]
SOME = [
    "api/test_api.py::test_prompt_forms_agree",
    "api/test_generate.py::test_drafts_change_no_token",
    "api/test_generate.py::test_stop_id_is_exact",
    "runtime/test_engine.py::test_prefixes_are_found_again",
    "runtime/test_lossless.py",
    "runtime/test_prefix_files.py",
]


def paths(suite):
    return [next(TESTS.glob(f"*/test_{suite}.py"))]


@pytest.mark.parametrize("tests", [SOME, *exhaustive(*map(paths, SUITES))], ids=["some", *SUITES])
def test_on_the_stub(request, tmp_path_factory, tests):
    if request.config.getoption("--device") != "cpu":
        pytest.skip("the whole run is on a GPU")
    library = stub_cuda.library(tmp_path_factory.getbasetemp() / "stub_cuda")
    chosen = ["-m", "not exhaustive"] if tests is SOME else ["-m", "", "--hypothesis-profile", "quick"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, "--device", "stub", *tests]
    environment = {**os.environ, stub_cuda.GIVEN: str(library)}
    done = subprocess.run(command, cwd=TESTS, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
