"""The environment variables that swiftk reads, and SWIFTK_DEBUG, which two readers take apart."""

import ast
import re
from pathlib import Path

import pytest

from debug_words import ask
from swiftk import _core
from swiftk.errors import InvalidArgument
from swiftk.gpu import debug

ROOT = Path(__file__).resolve().parents[2]
OURS = {"SWIFTK_API_KEY", "SWIFTK_CACHE", "SWIFTK_DEBUG", "SWIFTK_DEVICE", "SWIFTK_LEARNED"}
THE_SYSTEM_S = {"XDG_CACHE_HOME", "XDG_STATE_HOME", "HF_HOME", "HF_HUB_CACHE"}  # where others keep their files


def literal(node):
    assert isinstance(node, ast.Constant), f"{ast.unparse(node)}: what is read is to be seen here"
    return node.value


def is_environment(node):
    return ast.unparse(node) in ("os.environ", "environ")


def read_by_python(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            assert not {"environ", "getenv"} & {alias.name for alias in node.names}, "want os.environ, in full"
        if isinstance(node, ast.keyword) and node.arg == "envvar":  # of an option of the command line
            yield literal(node.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "getenv" or (node.func.attr in ("get", "pop") and is_environment(node.func.value)):
                yield literal(node.args[0])
        elif isinstance(node, ast.Subscript) and is_environment(node.value) and isinstance(node.ctx, ast.Load):
            yield literal(node.slice)


def read_by_cpp(path):
    for argument in re.findall(r"\bgetenv\s*\(([^)]*)\)", path.read_text()):
        assert re.fullmatch(r'"\w+"', argument), f"{argument}: what is read is to be seen here"
        yield argument.strip('"')


def variables():
    """(variable, file) of everything that the package and the library read."""
    for folder in ("swiftk", "csrc", "kernels"):
        for path in (ROOT / folder).rglob("*"):
            reader = {".py": read_by_python, ".cc": read_by_cpp, ".h": read_by_cpp}.get(path.suffix)
            for name in reader(path) if reader else ():
                yield name, path.relative_to(ROOT)


def test_there_are_five_variables():
    found = list(variables())
    assert {name for name, _ in found} - THE_SYSTEM_S == OURS, found
    for path in (Path("csrc/base/debug.cc"), Path("swiftk/gpu/debug.py")):
        assert ("SWIFTK_DEBUG", path) in found
    named = set(re.findall(r"\bSWIFTK_[A-Z_]+\b", (ROOT / "swiftk" / "README.md").read_text()))
    assert named >= OURS


def test_words_and_their_values(monkeypatch):
    monkeypatch.delenv("SWIFTK_DEBUG", raising=False)
    assert debug.value("arch") == ""
    monkeypatch.setenv("SWIFTK_DEBUG", ",arch=sm_80,stepwise,,overlap=0,driver=/a=b,arch=sm_90")
    assert [debug.value(word) for word in ("arch", "stepwise", "overlap", "driver", "matmuls")] == [
        "sm_90", "1", "0", "/a=b", ""]  # fmt: skip
    ask(monkeypatch, "arch=")
    assert debug.value("arch") == ""


@pytest.mark.parametrize("asked", ["slow", "isas=avx2", "stepwise,Overlap=0", "=1"])
def test_an_unknown_word_is_named_by_both_readers(tiny_dir, monkeypatch, asked):
    monkeypatch.setenv("SWIFTK_DEBUG", asked)
    word = asked.rpartition(",")[2]
    said = []
    for read in (
        lambda: debug.value("arch"),
        lambda: _core.Model(str(tiny_dir("llama3")), isa="baseline"),
        lambda: _core.gpu_info(0),
    ):
        with pytest.raises(InvalidArgument) as error:
            read()
        said.append(str(error.value))
    wanted = "isa=avx2, stepwise, overlap=0, driver=PATH, arch=sm_90, matmuls=triton, clock=row:.03, memory=1e9"
    assert set(said) == {f"[debug] SWIFTK_DEBUG has '{word}', want some of {wanted}, joined by commas"}
