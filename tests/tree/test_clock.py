"""No test goes by the machine's clock: what one decides beside light work, it decides beside nine builders."""

import ast
from pathlib import Path

import pytest

from patience import PATIENCE
from swiftk.gpu import debug

ROOT = Path(__file__).resolve().parents[2]
FILES = [ROOT / "conftest.py", *sorted((ROOT / "tests").rglob("*.py"))]
MAY = {  # path: why it may wait or look at a clock
    "tests/shared/patience.py": "the one wait for what must come, which ends where a test hangs",
    "tests/runtime/test_kvq.py": "paces a thread that cancels passes; the test goes on until enough were cancelled",
}
CLOCKS = {
    "time": {
        "sleep",
        "time",
        "time_ns",
        "perf_counter",
        "perf_counter_ns",
        "monotonic",
        "monotonic_ns",
        "process_time",
    },
    "asyncio": {"sleep", "wait_for", "timeout"},
    "threading": {"Timer"},
    "datetime": {"datetime"},
    "timeit": {"timeit", "Timer", "default_timer"},
}
WAITS = {"wait", "join", "acquire", "get", "recv", "communicate", "result"}  # methods that take seconds


def is_number(node):
    return isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value > 0


def offences(source):
    """(line, what) of each use of a clock."""
    tree = ast.parse(source)
    modules = {}  # name in the file: module
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name: alias.name for alias in node.names if alias.name in CLOCKS}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in CLOCKS:
            yield from ((node.lineno, a.name) for a in node.names if a.name in CLOCKS[node.module])
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in CLOCKS.get(modules.get(node.value.id), ()):
                yield node.lineno, f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Call):
            timeouts = [k.value for k in node.keywords if k.arg and k.arg.endswith("timeout")]
            if isinstance(node.func, ast.Attribute) and node.func.attr in WAITS:
                timeouts += node.args if len(node.args) == 1 else []
            for limit in filter(is_number, timeouts):
                if limit.value < PATIENCE:
                    yield node.lineno, f"waits {limit.value} s, want PATIENCE"


def test_no_test_goes_by_the_clock():
    found = {str(path.relative_to(ROOT)): list(offences(path.read_text(encoding="utf-8"))) for path in FILES}
    assert {path: uses for path, uses in found.items() if uses and path not in MAY} == {}
    assert all(found[path] for path in MAY), "an exception that nobody needs"


@pytest.mark.parametrize(
    "source",
    [
        *("import time\ntime.sleep(1)", "import time as t\nt.perf_counter()", "from time import monotonic"),
        *(
            "import asyncio\nasyncio.sleep(0.01)",
            "from threading import Timer",
            "import asyncio\nasyncio.wait_for(x, 1)",
        ),
        *("get(url, timeout=60)", "process.wait(30)", "thread.join(20)", "event.wait(timeout=2)", "line.recv(10)"),
    ],
)
def test_what_is_refused(source):
    assert list(offences(source))


@pytest.mark.parametrize(
    "source", ["thread.join()", "get(url, timeout=PATIENCE)", "', '.join(words)", "found.get('a', 3.5)", "import time"]
)
def test_what_is_not(source):
    assert not list(offences(source))


def test_the_engine_goes_by_given_prices():
    assert debug.value("clock")
