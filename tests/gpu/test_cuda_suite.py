"""Tests of the runtime and of generate() once more, in a process whose models run on the stub of a GPU's driver."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import stub_cuda

TESTS = Path(__file__).resolve().parents[1]
NAMES = ["lossless", "sampling", "nucleus", "generate", "api", "families"]
NAMES += ["timed_trees", "score", "exits", "propose", "recall", "engine"]
SUITES = [next(TESTS.glob(f"*/test_{name}.py")) for name in NAMES]


def test_on_the_stub(request, tmp_path_factory):
    if request.config.getoption("--device") != "cpu":
        pytest.skip("the whole run is on a GPU")
    library = stub_cuda.library(tmp_path_factory.getbasetemp() / "stub_cuda")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", "--device", "stub", *SUITES]
    environment = {**os.environ, stub_cuda.GIVEN: str(library)}
    done = subprocess.run(command, cwd=TESTS, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
