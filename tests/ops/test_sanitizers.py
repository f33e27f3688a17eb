"""The ops under AddressSanitizer with UndefinedBehaviorSanitizer, and under ThreadSanitizer."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from swiftk._testing import ops

from building import call, find_cmake
from patience import PATIENCE
from swiftk.testing import make_tiny

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "tests" / "native"

pytestmark = pytest.mark.exhaustive


# The widest vectors overrun the furthest; races do not depend on them, and baseline compiles fastest.
@pytest.mark.parametrize("sanitizer, isa", [("address", ops.isas()[0]), ("thread", "baseline")])
def test_ops(tmp_path, sanitizer, isa):
    cmake = find_cmake()
    if cmake is None:
        pytest.skip("needs CMake, which the test extra brings")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    isas = "baseline" if isa == "baseline" else f"baseline;{isa}"  # CMake insists on baseline
    call(
        cmake,
        *generator,
        "-S",
        SOURCE,
        "-B",
        tmp_path,
        f"-DSWIFTK_SANITIZE={sanitizer}",
        f"-DSWIFTK_ISAS={isas}",
        "-DCMAKE_BUILD_TYPE=Debug",
        "-DCMAKE_CXX_FLAGS_DEBUG=-O1",
    )
    call(cmake, "--build", tmp_path, "--target", "ops_check", "-j", len(os.sched_getaffinity(0)))
    done = subprocess.run([tmp_path / "ops_check", isa], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr


def test_engine_and_its_threads(tmp_path):
    """The C host with eight threads that submit while another one steps, two threads to a pass."""
    cmake = find_cmake()
    if cmake is None:
        pytest.skip("needs CMake, which the test extra brings")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    library, hosts, prefix = tmp_path / "library", tmp_path / "hosts", tmp_path / "installed"
    debug = ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O1"]
    thread = ["-DSWIFTK_SANITIZE=thread", "-DSWIFTK_ISAS=baseline", "-DBUILD_SHARED_LIBS=OFF"]
    jobs = ["-j", len(os.sched_getaffinity(0))]
    call(cmake, *generator, "-S", ROOT, "-B", library, *thread, *debug)
    call(cmake, "--build", library, *jobs)
    call(cmake, "--install", library, "--prefix", prefix)
    call(cmake, *generator, "-S", ROOT / "tests" / "embedding", "-B", hosts, f"-DCMAKE_PREFIX_PATH={prefix}")
    call(cmake, "--build", hosts, "--target", "engine")
    model = make_tiny(tmp_path / "model", family="llama3", layers=2)
    done = subprocess.run([hosts / "engine", model, "baseline", "2"], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
