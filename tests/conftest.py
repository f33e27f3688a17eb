"""Tiny random checkpoints and loaded models, made once per run."""

import functools

import pytest

from swiftk import _core
from swiftk.testing import make_tiny


@pytest.fixture(scope="session")
def tiny_dir(tmp_path_factory):
    """tiny_dir(family, **overrides) -> directory of a tiny random checkpoint."""

    @functools.cache
    def make(family="llama3", **overrides):
        return make_tiny(tmp_path_factory.mktemp(family.replace(".", "_")), family=family, **overrides)

    return make


@pytest.fixture(scope="session")
def tiny_model(tiny_dir):
    """tiny_model(family, isa=.., threads=.., load_dtype=.., **overrides) -> _core.Model."""

    @functools.cache
    def load(family="llama3", isa="", threads=2, load_dtype="auto", **overrides):
        return _core.Model(str(tiny_dir(family, **overrides)), dtype=load_dtype, isa=isa, threads=threads)

    return load

