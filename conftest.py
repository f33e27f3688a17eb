"""`pytest` runs the tests, `pytest --benchmark` the benchmarks; pytest-benchmark itself has no option of that name.

Both run against the installed swiftk: the source tree, which holds no built extension, must not shadow it. Where the
tree itself is installed (pip install -e), the extension is built anew first; so is, in any case, the tests' own,
swiftk._testing: seconds, where little changed.
"""

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

ROOT = Path(__file__).resolve().parent
MOST_PROCESSES = 8  # each loads torch

if not any(p.suffix in {".so", ".pyd"} for p in ROOT.glob("swiftk/_core.*")):
    sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != ROOT]


def is_installed():
    """Whether this tree is, by pip install -e."""
    reported = [one.read_text("direct_url.json") for one in metadata.distributions(name="swiftk")]
    urls = [url for url in map(json.loads, filter(None, reported)) if url.get("dir_info", {}).get("editable")]
    return ROOT in [Path(url2pathname(urlsplit(url["url"]).path)) for url in urls]


def build(*command):
    """What went wrong; "" if nothing did."""
    command = [sys.executable, "setup.py", "-q", *command]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return f"{done.stdout}{done.stderr}\n{' '.join(command)} failed" if done.returncode else ""


if "PYTEST_XDIST_WORKER" not in os.environ:
    if is_installed() and (wrong := build("build_ext", "--inplace")):
        pytest.exit(wrong, 1)
    if wrong := build("build_testing"):
        print(f"{wrong}: there is no swiftk._testing, and tests that import it fail", file=sys.stderr)
import swiftk  # noqa: E402

swiftk.__path__.append(str(ROOT / "build" / "testing" / "swiftk"))  # where swiftk._testing is

# A process of several has cores of its own: else threads of all of them wait for each other. What it starts is no part
# of the run.
if worker := os.environ.pop("PYTEST_XDIST_WORKER", ""):
    cores, number = sorted(os.sched_getaffinity(0)), int(worker.removeprefix("gw"))
    os.sched_setaffinity(0, cores[number % len(cores) :: int(os.environ["PYTEST_XDIST_WORKER_COUNT"])])


def pytest_addoption(parser):
    parser.addoption("--benchmark", action="store_true", help="run the benchmarks in bench/ instead of the tests")
    parser.addoption("--grow", type=int, metavar="K", help="benchmarks run a model K times as wide as the bundled one")
    parser.addoption("--out", type=Path, metavar="DIR", help="folder of the benchmarks' results; default bench/out")
    parser.addoption("--record", action="store_true", help="results go to bench/results, which READMEs cite")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist, where it is installed, reads its options
def pytest_cmdline_main(config):
    """Tests share the cores, a file to a process; `-n 0` has them in one. Benchmarks have the machine to themselves."""
    option = config.option
    if getattr(option, "numprocesses", 0) is None and not hasattr(config, "workerinput"):
        processes = min(MOST_PROCESSES, len(os.sched_getaffinity(0)))
        alone = option.benchmark or option.usepdb or processes == 1
        option.numprocesses, option.dist = (0, "no") if alone else (processes, "loadfile")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    if not config.getoption("--benchmark"):
        return
    if not config.pluginmanager.hasplugin("benchmark"):
        raise pytest.UsageError("--benchmark needs the plugin pytest-benchmark: pip install '.[test]'")
    if config.args_source is not config.ArgsSource.ARGS:
        config.args = [str(ROOT / "bench")]
