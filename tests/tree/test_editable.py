"""A developer's loop: an editable install, in which pytest builds what changed before it runs."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.exhaustive
KEPT = ["CMakeLists.txt", "LICENSE", "README.md", "conftest.py", "pyproject.toml", "setup.py"]
KEPT += ["csrc", "kernels", "swiftk"]
ECHO = """// The text's last token, once more.
#include "source.h"

namespace swiftk {
namespace {

class Echo final : public Source {
 public:
  Cursor root(const Known& known) const override { return {known.text.back(), 0}; }
  void propose(const Known&, Cursor c, const Sampling&, int32_t, Proposals& proposals) const override {
    proposals.start(0);
    if (c.at >= 0) proposals.add(c.at);
  }
};

}  // namespace

std::unique_ptr<Source> make_echo() { return std::make_unique<Echo>(); }

}  // namespace swiftk
"""


class Developer:
    """A copy of the tree, installed by pip install -e in an environment that has all of this one besides."""

    def __init__(self, folder):
        self.tree = folder / "tree"
        self.tree.mkdir()
        for name in KEPT:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, self.tree / name)
        for built in self.tree.glob("swiftk/_core*.so"):
            built.unlink()
        self.run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
        self.python = folder / "venv" / "bin" / "python"
        (site,) = folder.glob("venv/lib/python*/site-packages")
        (site / "installed.pth").write_text(sysconfig.get_path("purelib") + "\n")
        self.run(self.python, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "-e", self.tree)

    def run(self, *command):
        env = {**os.environ, "CMAKE_ARGS": "-DSWIFTK_ISAS=baseline"}
        env = {name: value for name, value in env.items() if not name.startswith(("PYTEST_XDIST", "PYTHONPATH"))}
        command = [str(word) for word in command]
        done = subprocess.run(command, cwd=self.tree, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def pytest(self, test):
        """Runs a test; the names of what was compiled for it."""
        before = self._objects()
        (self.tree / "tests").mkdir(exist_ok=True)
        (self.tree / "tests" / "test_it.py").write_text(f"def test_it():\n    import swiftk\n    {test}\n")
        self.run(self.python, "-m", "pytest", "-q", "-n", "0", "tests")
        return {path.name for path, made in self._objects().items() if before.get(path) != made}

    def _objects(self):
        return {path: path.stat().st_mtime_ns for path in self.tree.glob("build/**/*.o")}


@pytest.fixture(scope="module")
def developer(tmp_path_factory):
    return Developer(tmp_path_factory.mktemp("developer"))


def changed(path):
    path.write_text(path.read_text() + "\n")


def test_what_changed_is_built_and_nothing_else(developer):
    developer.pytest("from swiftk import _testing; assert _testing.Planner")  # no installation has it
    assert developer.pytest("assert swiftk.LM") == set()
    changed(developer.tree / "swiftk" / "api.py")
    changed(next((developer.tree / "kernels" / "triton").glob("*.py")))
    assert developer.pytest("assert swiftk.LM") == set()
    changed(developer.tree / "csrc" / "planner" / "planner.cc")
    assert len(developer.pytest("assert swiftk.LM")) == 1


def test_a_new_source_is_a_file_and_a_line(developer):
    registry = developer.tree / "csrc" / "draft" / "sources" / "registry.h"
    lines = registry.read_text().splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if line.startswith("  X("))
    lines[last] = lines[last].rstrip() + " \\\n  X(Echo, echo)\n"
    registry.write_text("".join(lines))
    registry.with_name("echo.cc").write_text(ECHO)
    asked = "max_new_tokens=40, ignore_eos=True, speculate='always', drafter='echo'"
    developer.pytest(f"assert 'echo' in swiftk.load(swiftk.demo_model()).generate('a a a', {asked}).stats.proposed_by")
