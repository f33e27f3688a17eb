"""Fixtures of the benchmarks. --grow says how many times wider than the bundled model they run (default 8: 0.76 B
parameters); any other size is a smoke test."""

import pytest

pytest.importorskip("pytest_benchmark")

from swiftk import _core

from .machine import probe
from .results import Results, folder_of
from .texts import grown

_GROW = 8
_results = pytest.StashKey[dict]()


def _factor(config):
    return config.getoption("--grow") or _GROW


def _folder(config):
    try:
        return folder_of(config.getoption("--record"), config.getoption("--out"), _factor(config) != _GROW)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_sessionstart(session):
    _folder(session.config)  # contradictions are told before an hour's work


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
            command = f"pytest --benchmark bench/bench_{name}.py"
            smoke = _factor(pytestconfig) != _GROW
            every[name] = Results(name, about, columns, command, notes=list(notes), smoke=smoke)
            every[name].machine = machine
        return every[name]

    return get


def pytest_terminal_summary(terminalreporter, config):
    for name, one in config.stash.get(_results, {}).items():
        terminalreporter.section(name)
        terminalreporter.write(one.text())
        folder = _folder(config)
        one.write(folder)
        terminalreporter.write_line(f"kept in {folder / name}.md")
