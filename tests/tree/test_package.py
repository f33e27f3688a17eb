"""What gets installed: the data files, one version everywhere, the extension's stub, how the program starts."""

import ast
import importlib.metadata
import inspect
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import swiftk
from swiftk import _core

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(swiftk.__file__).parent


def run(*arguments, cwd):
    return subprocess.run([str(a) for a in arguments], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "name",
    [
        "py.typed",
        "_core.pyi",
        "cli/__init__.py",
        "serve/grafana.json",
        "models/lm13m/config.json",
        "models/lm13m/generation_config.json",
        "models/lm13m/model.safetensors",
        "models/lm13m/tokenizer.json",
        "models/lm13m/tokenizer_config.json",
        "models/lm13m-eagle2/config.json",
        "models/lm13m-eagle2/model.safetensors",
    ],
)
def test_file_is_installed(name):
    assert (PACKAGE / name).stat().st_size > 0 or name == "py.typed"


def test_extension_is_the_package_s_own():
    assert Path(_core.__file__).parent == PACKAGE


def test_one_version():
    assert importlib.metadata.version("swiftk") == swiftk.__version__


def test_runtime_needs_neither_torch_nor_a_compiler():
    needed = [r for r in importlib.metadata.requires("swiftk") if "extra ==" not in r]
    found = {r.split(">")[0].strip() for r in needed}
    assert found == {"numpy", "tokenizers", "jinja2", "typer", "rich", "prompt_toolkit"}


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_program_and_module_are_the_same(option, tmp_path):
    program = shutil.which("swiftk", path=str(Path(sys.executable).parent))
    assert program, "no swiftk beside this interpreter"
    one, other = run(program, option, cwd=tmp_path), run(sys.executable, "-m", "swiftk", option, cwd=tmp_path)
    assert one.returncode == other.returncode == 0
    assert one.stdout.strip()
    assert one.stdout.replace("python -m swiftk", "swiftk") == other.stdout.replace("python -m swiftk", "swiftk")


def test_python_started_in_the_source_tree_finds_the_extension():
    """The folder of the sources comes first on the path there, and holds no extension."""
    done = run(sys.executable, "-c", "import swiftk; print(swiftk.load)", cwd=ROOT)
    assert done.returncode == 0, done.stderr


def stub_names():
    """What the stub declares: functions, values and classes, and the members of each class."""
    names = {}
    for node in ast.parse((PACKAGE / "_core.pyi").read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names[node.name] = set()
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) != "Any":  # which modules are
            names[node.target.id] = set()
        elif isinstance(node, ast.ClassDef):
            members = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
            names[node.name] = members | {n.target.id for n in node.body if isinstance(n, ast.AnnAssign)}
    return names


def public(thing):
    return {n for n, v in vars(thing).items() if not n.startswith("_") and not inspect.ismodule(v)}


def test_stub_declares_what_the_extension_has():
    stub = stub_names()
    assert public(_core) == {n for n in stub if not n.startswith("_")}
    for name in public(_core):
        if inspect.isclass(getattr(_core, name)):
            assert public(getattr(_core, name)) == {n for n in stub[name] if not n.startswith("_")}, name


def stub_parameters():
    """(class or "", function) -> (positional ones, keywords), as the stub has them; of the first of several."""
    found = {}
    for node in ast.parse((PACKAGE / "_core.pyi").read_text()).body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        for one in (n for n in inside if isinstance(n, ast.FunctionDef)):
            owner = node.name if isinstance(node, ast.ClassDef) else ""
            names = [a.arg for a in one.args.args if a.arg != "self"], [a.arg for a in one.args.kwonlyargs]
            found.setdefault((owner, one.name), names)
    return found


def real_parameters(function):
    """Parameters of a bound function, `self` left out, and whether it takes keywords."""
    line = function.__doc__.strip().splitlines()[0]
    names = re.findall(r"(?:[(]|, )([*]{0,2}[a-z_]\w*)(?=:|[)])", line)
    return [n for n in names if n != "self" and not n.startswith("*")], "**kwargs" in names


@pytest.mark.parametrize("name", sorted(f"{owner}.{one}" for owner, one in stub_parameters()))
def test_stub_has_the_signatures_of_the_extension(name):
    owner, _, one = name.rpartition(".")
    function = getattr(getattr(_core, owner) if owner else _core, one)
    positional, keywords = stub_parameters()[owner, one]
    got, takes_keywords = real_parameters(function)
    if any(re.fullmatch(r"arg\d+", n) for n in got):
        got = positional if len(got) == len(positional) else got  # whose names nobody can use
    assert got == positional and takes_keywords == bool(keywords), function.__doc__
    assert len(got) <= 8


@pytest.mark.parametrize("name", ["Sampling", "TreeRule", "SourceSettings", "Request"])
def test_stub_has_the_fields_of_objects(name):
    """What a struct is built of, as it says where a keyword is none."""
    with pytest.raises(TypeError, match="want some of the fields") as raised:
        getattr(_core, name)(nonsense=1)
    fields = str(raised.value).rpartition("the fields ")[2].split(", ")
    assert stub_parameters()[name, "__init__"][1] == fields


def test_stub_has_the_options_of_load():
    with pytest.raises(TypeError, match="want some of the fields") as raised:
        _core.Model("nowhere", nonsense=1)
    assert stub_parameters()["Model", "__init__"][1] == str(raised.value).rpartition("the fields ")[2].split(", ")


def test_source_distribution_can_be_built_from(tmp_path):
    pytest.importorskip("setuptools", minversion="77")
    tree = tmp_path / "tree"
    ignore = shutil.ignore_patterns(".git", "build*", "*.egg-info", "__pycache__", "*.so", ".*cache")
    shutil.copytree(ROOT, tree, ignore=ignore)
    done = run(sys.executable, "-c", "from setuptools.build_meta import build_sdist; build_sdist('out')", cwd=tree)
    assert done.returncode == 0, done.stderr
    with tarfile.open(next((tree / "out").glob("*.tar.gz"))) as archive:
        names = {n.split("/", 1)[1] for n in archive.getnames() if "/" in n}
    tracked = ["CMakeLists.txt", "setup.py", "pyproject.toml", "conftest.py", "LICENSE", "README.md"]
    for folder in ("csrc", "kernels", "swiftk", "tests"):
        tracked += [str(p.relative_to(tree)) for p in (tree / folder).rglob("*") if p.is_file()]
    assert sorted(set(tracked) - names) == []
