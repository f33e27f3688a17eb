"""Tiny random checkpoints and loaded models, made once per run, on the CPU or on what --device says."""

import functools
import math
import os
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from debug_words import appended
from decode import open_model
from swiftk.testing import make_tiny

pytest.register_assert_rewrite("head_contract")  # its asserts are those of several test files

# Examples of a property, which is tested with the quick tests and, on more of them, with the exhaustive ones.
for name, examples in {"quick": 20, "exhaustive": 150}.items():
    settings.register_profile(name, max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))

DEVICES = ("cpu", "cuda", "stub")


def pytest_addoption(parser):
    parser.addoption(
        "--device", choices=DEVICES, default="cpu", help="run models on a GPU, or on the tests' stub of its driver"
    )


def pytest_configure(config):
    """swiftk.load() goes where its environment says."""
    usual = "exhaustive" if is_exhaustive(config) else "quick"
    settings.load_profile(config.getoption("--hypothesis-profile") or usual)
    os.environ.setdefault("SWIFTK_LEARNED", "0")  # a test starts from nothing and leaves nothing behind
    # Prices decide, not the machine: what is drafted is the same however busy it is. What is asked for besides counts.
    os.environ["SWIFTK_DEBUG"] = appended(os.environ.get("SWIFTK_DEBUG", ""), to="clock")
    chosen = config.getoption("--device")
    os.environ["SWIFTK_DEVICE"] = "cpu" if chosen == "cpu" else "cuda"
    if chosen == "stub":
        library = os.environ["SWIFTK_STUB_CUDA"]  # built by test_cuda_suite.py
        os.environ["SWIFTK_DEBUG"] = appended("arch=stub", f"driver={library}")


def is_exhaustive(config):
    return config.option.markexpr != "not exhaustive"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        if is_exhaustive(config) and is_hypothesis_test(item.function):
            item.add_marker("exhaustive")


@pytest.fixture(scope="session")
def tiny_dir(tmp_path_factory):
    """tiny_dir(family, **overrides) -> directory of a tiny random checkpoint."""

    @functools.cache
    def make(family="llama3", **overrides):
        return make_tiny(tmp_path_factory.mktemp(family.replace(".", "_")), family=family, **overrides)

    return make


@pytest.fixture(scope="session")
def tiny_model(tiny_dir, pytestconfig):
    """tiny_model(family, isa=.., threads=.., load_dtype=.., kv_dtype=.., **overrides) -> _core.Model."""
    usual = 2 if is_exhaustive(pytestconfig) else 1  # where all cores are busy, threads wait for each other

    @functools.cache
    def load(family="llama3", isa="", threads=usual, load_dtype="auto", kv_dtype="auto", **overrides):
        return open_model(tiny_dir(family, **overrides), load_dtype, isa, threads, kv_dtype)

    return load


@pytest.fixture(autouse=True)
def no_lines_of_progress(monkeypatch):
    """However busy the machine is, what a command prints is the same."""
    monkeypatch.setattr("swiftk.cli.progress.EVERY", math.inf)


@pytest.fixture
def kernels(isa):
    """The CPU's ops of an instruction set, on two threads."""
    from swiftk._testing import ops

    return ops.Kernels(isa, 2)


@pytest.fixture
def rng(request):
    """Numbers of a test's own, the same in every run."""
    return np.random.default_rng(zlib.crc32(request.node.name.encode()))
