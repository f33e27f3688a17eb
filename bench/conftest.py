"""Fixtures of the benchmarks. --grow says how many times wider than the bundled model they run (default 8: 0.76 B
parameters); any other size is a trial, and writes no results."""

import pytest

pytest.importorskip("pytest_benchmark")

from swiftk import _core

from .machine import probe
from .results import FOLDER, Results
from .texts import grown

_GROW = 8
_results = pytest.StashKey[dict]()


def _factor(config):
    return config.getoption("--grow") or _GROW


@pytest.fixture(scope="session")
def grow(pytestconfig):
    return _factor(pytestconfig)


@pytest.fixture(scope="session")
def rounds(grow):
    """Rounds of a measurement: enough for a median, or just one look."""
    return 12 if grow == _GROW else 2


@pytest.fixture(scope="session")
def model_dir(grow):
    return grown(grow)


@pytest.fixture(scope="session")
def model(model_dir):
    return _core.Model(str(model_dir))


@pytest.fixture(scope="session")
def machine():
    return probe(("bfloat16", "float32"))


@pytest.fixture(scope="session")
def results(pytestconfig, machine):
    """results(name, about, columns, *notes) -> the Results of that name."""
    every = pytestconfig.stash.setdefault(_results, {})

    def get(name, about, columns, *notes):
        if name not in every:
            every[name] = Results(name, about, columns, f"pytest --benchmark bench/bench_{name}.py", notes=list(notes))
            every[name].machine = machine
        return every[name]

    return get


def pytest_terminal_summary(terminalreporter, config):
    for name, one in config.stash.get(_results, {}).items():
        terminalreporter.section(name)
        terminalreporter.write(one.text())
        if _factor(config) == _GROW:
            one.write(FOLDER)
