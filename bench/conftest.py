"""Fixtures of the benchmarks. --grow says how many times wider than the bundled model they run (default 8: 0.76 B
parameters); any other size is a trial, and writes no results."""

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("pytest_benchmark")
sys.path.insert(0, str(Path(__file__).parent))

from demo import grown
from machine import Machine
from report import Report
from swiftk import _core

_GROW = 8
_reports = pytest.StashKey[dict]()


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
    return Machine.measure(len(os.sched_getaffinity(0)), _core.isas()[0])


@pytest.fixture(scope="session")
def report(pytestconfig, machine):
    """report(name, columns) -> the Report of that name."""
    reports = pytestconfig.stash.setdefault(_reports, {})

    def get(name, columns):
        return reports.setdefault(name, Report(name, columns, machine))

    return get


def pytest_terminal_summary(terminalreporter, config):
    for name, report in config.stash.get(_reports, {}).items():
        terminalreporter.section(name)
        terminalreporter.write(report.text())
        if _factor(config) == _GROW:
            report.write()
