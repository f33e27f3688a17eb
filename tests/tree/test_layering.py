"""The seams of the source tree: who may include or import whom."""

import ast
import functools
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import swiftk
from swiftk.draft import sources
from swiftk.files import hf_folder
from swiftk.files.safetensors_io import INDEX, WEIGHTS

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = {
    "encoding.h",
    "format.h",
    "ops.h",
    "tensor.h",
    "noise.h",
    "gate_rule.h",
}  # all that csrc may see of kernels/
# Modules of swiftk, and folders, in their order: each may import itself and those before it.
SWIFTK = ROOT / "swiftk"
SWIFTK_ROOMS = ["errors", "files", "draft", "text", "options", "gpu", "search", "papers", "running", "pages", "api"]
SWIFTK_ROOMS += ["hf", "testing", "remote", "serve", "cli", "train", "__main__"]
PURE = {"draft", "options", "search", "papers"}  # rooms of policy, which run and are tested without the engine
PURE |= {"running.policies", "running.stats", "running.trace", "text.bpe", "text.stops"}
PURE |= {f"train.{name}" for name in ("settings", "recipe", "files", "texts", "tokens", "log")}
READERS = {"draft.sources", "files.hf_folder"}
TRAIN = ROOT / "swiftk" / "train"
WITH_TORCH = {"model", "weights", "loop", "running", "trainer"}
WITH_TORCH |= {"frozen", "drafter", "draft_vocab", "block", "eagle", "eagle2", "moa", "independent"}
LONGEST_FUNCTION = 60

SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
NATIVE = sorted(p for d in ("kernels", "csrc") for p in (ROOT / d).rglob("*") if p.suffix in SUFFIXES)
PYTHON = sorted(p for d in ("swiftk", "tests", "bench", "kernels") for p in (ROOT / d).rglob("*.py"))
PYTHON += [ROOT / "setup.py", ROOT / "conftest.py"]


def name(path):
    return str(path.relative_to(ROOT))


def includes(path):
    """(quoted, system) includes of a C++ file."""
    text = path.read_text()
    found = re.findall(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', text, re.M)
    return {header for mark, header in found if mark == '"'}, {header for mark, header in found if mark == "<"}


def imports(path):
    """Modules that a Python file imports anywhere, relative ones as they are written (`.gate`)."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found.add(module)
            found |= {f"{module.rstrip('.')}.{alias.name}" for alias in node.names}
    return found


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


def below(folder, paths=NATIVE):
    """Those of `paths` anywhere below a folder of the tree; there must be some."""
    found = [p for p in paths if p.is_relative_to(ROOT / folder)]
    assert found, f"no file below {folder}"
    return found


def rule(offences):
    """A test that fails with every (path, what is wrong with it) that is yielded."""

    @functools.wraps(offences)
    def test():
        found = [f"{name(path)}: {what}" for path, what in offences()]
        assert not found, "\n".join(["", *found])

    return test


BINDINGS = re.compile(r"Python|pybind11|torch|ATen|c10")


def test_there_is_something_to_check():
    assert len(NATIVE) > 30
    assert len(PYTHON) > 20


def test_a_rule_names_all_offenders():
    with pytest.raises(AssertionError, match=r"(?s)setup\.py: one.*conftest\.py: two"):
        rule(lambda: [(ROOT / "setup.py", "one"), (ROOT / "conftest.py", "two")])()


@rule
def test_kernels_are_a_leaf():
    for path in below("kernels"):
        quoted, system = includes(path)
        places = path.parent, ROOT / "kernels", ROOT / "kernels" / "cpu"
        yield from ((path, f"{h} is not in kernels/") for h in quoted if not any((p / h).is_file() for p in places))
        yield from ((path, f"includes {h}") for h in system if BINDINGS.match(h))


@rule
def test_csrc_sees_only_the_contract_of_kernels():
    for path in below("csrc"):
        quoted, system = includes(path)
        for header in quoted - CONTRACT:
            if not (CSRC / header).is_file():
                yield path, f"{header} is neither csrc's, by its room, nor the contract's"
        if room_of(path) != "python":
            yield from ((path, f"includes {h}") for h in system if BINDINGS.match(h))


# A room may include itself and those before it.
CSRC = ROOT / "csrc"
CSRC_ROOMS = [
    "base",
    "files",
    "cuda",
    "model",
    "run",
    "sampling",
    "draft",
    "planner",
    "text",
    "phases",
    "heads",
    "engine",
]
CSRC_ROOMS += ["c", "python"]


def room_of(path):
    """Of a file below csrc."""
    return path.relative_to(CSRC).parts[0]


@rule
def test_no_include_runs_upwards():
    for path in below("csrc"):
        floor = CSRC_ROOMS.index(room_of(path))
        for header in sorted(includes(path)[0] - CONTRACT):
            if CSRC_ROOMS.index(header.split("/")[0]) > floor:
                yield path, f"includes {header}"


def test_every_room_of_csrc_has_its_place():
    assert {path.name for path in CSRC.iterdir() if path.is_dir()} == {*CSRC_ROOMS}


# Rules within these orders: what a room may see at all.
PLANNER_SEES = {"draft/draft_plan.h", "draft/sources/registry.h", "draft/tree_rule.h", "draft/outcome.h"}
PLANNER_SEES |= {"base/error.h", "base/stopwatch.h", "draft/round_record.h"}
SOURCES = CSRC / "draft" / "sources"
SOURCES_SEE = {"base/error.h", "sampling/sampler.h", "draft/token_tree.h", "draft/tree_rule.h"}


@rule
def test_the_planner_sees_prices_and_probabilities_alone():
    for path in below("csrc/planner"):
        others = {header for header in includes(path)[0] if not header.startswith("planner/")}
        yield from ((path, f"includes {header}") for header in others - PLANNER_SEES)


@rule
def test_sources_see_the_text_and_draws_alone():
    for path in below("csrc/draft/sources"):
        others = {header for header in includes(path)[0] if not header.startswith("draft/sources/")}
        yield from ((path, f"includes {header}") for header in others - SOURCES_SEE)


def test_a_source_is_a_line_of_the_registry_and_a_file():
    names = re.findall(r"X\(\w+, (\w+)\)", (SOURCES / "registry.h").read_text())
    makers = {p.stem for p in SOURCES.glob("*.cc") if f"make_{p.stem}()" in p.read_text()}
    assert len(names) == len(makers) > 0 and set(names) == makers
    assert ("target", "plan", *names) == sources.NAMES
    assert {*names} - {"grammar"} <= sources.DRAFTERS.keys()


def test_a_kind_of_head_is_a_line_of_the_table_and_a_file():
    heads = CSRC / "heads"
    names = re.findall(r"X\((\w+)\)", (heads / "head.h").read_text())
    makers = {p.stem for p in heads.glob("*.cc") if f" {p.stem}_kind()" in p.read_text()}
    assert len(names) == len(makers) > 0 and set(names) == makers


@rule
def test_nothing_asks_for_the_kind_of_a_draft_model():
    """What differs is in the file of the kind, and in fields of DraftModel and HeadKind."""
    for path in below("csrc"):
        if found := re.search(r'\bkind\b\)?\s*[!=]=\s*"', without_comments(path.read_text())):
            yield path, found[0]


def test_headers_of_csrc_have_no_cycle():
    graph = {str(p.relative_to(CSRC)): includes(p)[0] for p in below("csrc") if p.suffix == ".h"}
    while graph:
        leaves = {header for header, needs in graph.items() if not needs & graph.keys()}
        assert leaves, f"a cycle among {sorted(graph)}"
        graph = {header: needs for header, needs in graph.items() if header not in leaves}


@rule
def test_library_never_prints_or_ends_the_process():
    words = r"std::(?:cout|cerr)|f?printf|f?puts|abort|_?exit|terminate|signal|sigaction"
    for path in NATIVE:
        if found := re.search(rf"\b(?:{words})\s*[(<]", without_comments(path.read_text())):
            yield path, found[0]


def module_file(module):
    """File of swiftk's module `module`, a dotted path; None if there is no such file."""
    path = ROOT / "swiftk" / module.replace(".", "/")
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)


def inside(found, package):
    """Path below swiftk of an import that imports() found in a module of `package` (a list); None if it is outside."""
    name = found.lstrip(".")
    level = len(found) - len(name)
    if level:
        return [*package[: len(package) - level + 1], *filter(None, name.split("."))]
    return found.split(".")[1:] if found.startswith("swiftk.") else None


def closure(module, seen):
    """Modules of the package that importing `module` reaches, by their dotted paths, and names that are no files."""
    if module in seen:
        return seen
    seen.add(module)
    path = module_file(module)
    if path is None:
        return seen
    package = list(path.relative_to(ROOT / "swiftk").parts[:-1])
    for found in imports(path):
        target = inside(found, package)
        for n in range(1, len(target or ()) + 1):
            seen = closure(".".join(target[:n]), seen)
    return seen


def test_the_closure_follows_packages():
    reached = closure("search.searches", set())
    assert {"search", "search.race", "search.sublayers", "draft.cost", "draft.draft_spec"} <= reached
    assert {"_core", "running.director"} <= closure("api", set())
    assert "_core" in closure("cli.run", set())


@rule
def test_policy_never_reaches_the_extension():
    """But for the names of drafters and special tokens, which READERS take from there."""
    pure = {*PURE}
    for module in PURE:
        path = module_file(module)
        assert path, f"there is no module {module}"
        pure |= {f"{module}.{p.stem}" for p in path.parent.glob("[!_]*.py") if path.name == "__init__.py"}
    for module in pure - READERS:
        found = {"_core", "api", "running.director"} & closure(module, {*READERS})
        yield from ((module_file(module), f"reaches {other}") for other in found)


@rule
def test_no_import_runs_upwards():
    """The package itself, which loads its exports lazily, stands above all."""
    for path in below("swiftk", PYTHON):
        module = path.relative_to(SWIFTK).with_suffix("").parts
        if module == ("__init__",):
            continue
        for found in imports(path):
            target = (inside(found, list(module[:-1])) or [""])[0]
            if target in SWIFTK_ROOMS and SWIFTK_ROOMS.index(target) > SWIFTK_ROOMS.index(module[0]):
                yield path, f"imports {'.'.join(inside(found, list(module[:-1])))}"


@rule
def test_only_files_knows_the_names_of_a_models_files():
    names = {hf_folder.CONFIG, hf_folder.GENERATION, *hf_folder.TOKENIZER_FILES, WEIGHTS, INDEX}
    for path in set(below("swiftk", PYTHON)) - set(below("swiftk/files", PYTHON)):
        words = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
        yield from ((path, f"names {word}") for word in names & words)


def test_every_room_of_swiftk_has_its_place():
    rooms = {path.stem for path in SWIFTK.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert rooms - {"__init__"} == {*SWIFTK_ROOMS}


@rule
def test_nothing_imports_tests():
    helpers = {p.stem for p in (ROOT / "tests" / "shared").glob("*.py")}
    assert "cases" in helpers
    for path in PYTHON:
        if path.is_relative_to(ROOT / "tests"):
            continue
        allowed = {"cases"} if path.is_relative_to(ROOT / "bench") else set()
        found = {m.split(".")[-1] if m.startswith("tests.") else m.split(".")[0] for m in imports(path)}
        yield from ((path, f"imports {m}") for m in found & (helpers - allowed | {"tests", "bench"}))


def test_modules_of_the_package_import_in_no_circle():
    """Wherever they do so: an import inside a function is a circle as well. The package itself loads lazily."""
    files = [p for p in PYTHON if p.is_relative_to(ROOT / "swiftk")]
    parts = {p: list(p.relative_to(ROOT / "swiftk").with_suffix("").parts) for p in files}
    graph = {}
    for path, names in parts.items():
        reached = (inside(found, names[:-1]) or () for found in imports(path))
        needs = {".".join(target[:n]) for target in reached for n in range(1, len(target) + 1)}
        graph[".".join(names).removesuffix(".__init__")] = needs
    while graph:
        done = {name for name, needs in graph.items() if not (needs - {name}) & graph.keys()}
        assert done, f"a circle among {sorted(graph)}"
        graph = {name: needs for name, needs in graph.items() if name not in done}


def test_no_export_has_the_name_of_a_module():
    modules = {p.stem for p in (ROOT / "swiftk").iterdir()}  # importing one would hide the export after it
    assert not modules & {*swiftk.__all__}


def test_kernels_is_no_package():
    assert not list((ROOT / "kernels").rglob("__init__.py"))  # `kernels` is somebody else's name


def test_import_is_light(tmp_path):
    heavy = ("torch", "transformers", "triton", "numpy", "swiftk._core")
    code = f"import sys, swiftk; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@rule
def test_package_needs_no_torch():
    for path in below("swiftk", PYTHON):
        allowed = {"triton"} if path.name == "pack_compile.py" else set()  # a process of its own, for kernels of GPUs
        if path.name == "hf.py":  # whose callers have both
            allowed = {"torch", "transformers"}
        if path.is_relative_to(TRAIN):
            allowed = {"torch"} if path.stem in WITH_TORCH else set()
        heavy = {m.split(".")[0] for m in imports(path)} & {"torch", "transformers", "triton"}
        yield from ((path, f"imports {module}") for module in heavy - allowed)


@rule
def test_nothing_in_the_package_imports_the_trainer():
    for path in set(below("swiftk", PYTHON)) - set(below("swiftk/train", PYTHON)):
        package = list(path.relative_to(ROOT / "swiftk").parts[:-1])
        yield from ((path, f"imports {m}") for m in imports(path) if (inside(m, package) or [""])[0] == "train")


def test_help_of_the_trainer_needs_neither_torch_nor_the_extension(tmp_path):
    code = (
        "import sys\nfrom swiftk.train.__main__ import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('torch', 'transformers', 'swiftk._core') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@rule
def test_a_header_has_a_file_of_its_own_or_several_that_include_it():
    """A header that exactly one file includes is a part of that file."""
    tests = [p for p in (ROOT / "tests").rglob("*") if p.suffix in SUFFIXES]
    count = Counter(header.split("/")[-1] for path in [*NATIVE, *tests] for header in includes(path)[0])
    for path in NATIVE:
        alone = path.suffix in {".h", ".cuh"} and not path.with_suffix(".cc").is_file()
        if alone and count[path.name] < 2 and path.name not in {*CONTRACT, "swiftk.h"}:
            yield path, f"is included {count[path.name]} times"


@rule
def test_files_say_what_they_are():
    for path in NATIVE + PYTHON:
        text = path.read_text()
        if path.suffix == ".py":
            if text.strip() and not ast.get_docstring(ast.parse(text)):
                yield path, "no docstring"
        elif not text.startswith(("//", "/*")) and (path.suffix == ".h" or not path.with_suffix(".h").is_file()):
            yield path, "no opening comment"


@rule
def test_functions_are_short():
    for path in PYTHON:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = node.end_lineno - node.lineno + 1
                if lines > LONGEST_FUNCTION:
                    yield path, f"{node.name} has {lines} lines"


def test_bits_do_not_depend_on_the_optimiser():
    flags = (ROOT / "CMakeLists.txt").read_text()
    assert "-ffp-contract=off" in flags
    assert not re.search(r"-ffast-math|-Ofast|-funsafe|-fassociative", flags)


ROOMS = ("swiftk", "swiftk/serve", "swiftk/train", "csrc", "kernels", "bench", "tests")
READMES = ["README.md", *(f"{room}/README.md" for room in ROOMS)]


def test_readmes_name_files_that_there_are():
    gone = []
    for readme in READMES:
        text = (ROOT / readme).read_text()
        paths = set(re.findall(r"(?<![\w/.-])((?:kernels|csrc|swiftk|tests|bench)/[\w./-]*\w(?:\.\w+)?/?)", text))
        gone += [(readme, path) for path in sorted(paths) if not (ROOT / path).exists()]
        links = re.findall(r"\]\(((?!https?:)[^)#]+)", text)
        gone += [(readme, link) for link in links if not ((ROOT / readme).parent / link).exists()]
    assert not gone


def test_maps_name_every_file():
    """Below a folder that has no map of its own."""
    missing = []
    for folder in ("csrc", "swiftk", "swiftk/serve", "swiftk/train", "bench"):
        own = {"csrc": CSRC_ROOMS, "swiftk": [*{*SWIFTK_ROOMS} - {"cli", "serve", "train"}]}.get(folder, ())
        suffixes = {".cc", ".h"} if folder == "csrc" else {".py"}
        words = set(re.findall(r"\w+", (ROOT / folder / "README.md").read_text()))
        paths = {*(ROOT / folder).glob("*"), *(p for room in own for p in (ROOT / folder / room).rglob("*"))}
        stems = {path.stem for path in paths if path.suffix in suffixes} - {*sources.NAMES}
        known = {stem for stem in stems if stem in words or stem.startswith(("_", "bind", "conftest"))}
        missing += [f"{folder}/{stem}" for stem in sorted(stems - known)]
    assert not missing
