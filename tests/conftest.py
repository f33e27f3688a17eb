"""Tiny random checkpoints and loaded models, made once per run, on the CPU or on what --device says."""

import functools
import os
import zlib

import numpy as np
import pytest

from debug_words import appended
from swiftk import _core, device
from swiftk.testing import make_tiny

DEVICES = ("cpu", "cuda", "stub")


def pytest_addoption(parser):
    parser.addoption(
        "--device", choices=DEVICES, default="cpu", help="run models on a GPU, or on the tests' stub of its driver"
    )


def pytest_configure(config):
    """swiftk.load() goes where its environment says."""
    os.environ.setdefault("SWIFTK_LEARNED", "0")  # a test starts from nothing and leaves nothing behind
    chosen = config.getoption("--device")
    os.environ["SWIFTK_DEVICE"] = "cpu" if chosen == "cpu" else "cuda"
    if chosen == "stub":
        library = os.environ["SWIFTK_STUB_CUDA"]  # built by test_cuda_suite.py
        os.environ["SWIFTK_DEBUG"] = appended("arch=stub", f"driver={library}")


@pytest.fixture(scope="session")
def tiny_dir(tmp_path_factory):
    """tiny_dir(family, **overrides) -> directory of a tiny random checkpoint."""

    @functools.cache
    def make(family="llama3", **overrides):
        return make_tiny(tmp_path_factory.mktemp(family.replace(".", "_")), family=family, **overrides)

    return make


def open_model(folder, dtype="auto", isa="", threads=2):
    """A checkpoint on the device of this run; `isa` is for the CPU."""
    chosen = os.environ["SWIFTK_DEVICE"]
    pack = device.kernels(folder, dtype, chosen)
    return _core.Model(str(folder), dtype=dtype, isa=isa, threads=threads, device=chosen, pack=pack)


@pytest.fixture(scope="session")
def tiny_model(tiny_dir):
    """tiny_model(family, isa=.., threads=.., load_dtype=.., **overrides) -> _core.Model."""

    @functools.cache
    def load(family="llama3", isa="", threads=2, load_dtype="auto", **overrides):
        return open_model(tiny_dir(family, **overrides), load_dtype, isa, threads)

    return load


@pytest.fixture
def kernels(isa):
    """The CPU's ops of an instruction set, on two threads."""
    return _core.ops.Kernels(isa, 2)


@pytest.fixture
def rng(request):
    """Numbers of a test's own, the same in every run."""
    return np.random.default_rng(zlib.crc32(request.node.name.encode()))
