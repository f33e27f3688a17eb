"""The C ABI as a host sees it: installed by CMake, found by find_package, built and run; and under AddressSanitizer."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import stub_cuda
import swiftk
from building import call, find_cmake
from debug_words import ask
from patience import PATIENCE
from streamed import ALONE, least
from swiftk.gpu import pack
from swiftk.testing import make_tiny

ROOT = Path(__file__).resolve().parents[2]
HOSTS = ROOT / "tests" / "embedding"
ISA = "baseline"  # one instruction set builds fastest; the others are compared with it elsewhere
PROMPT = [5, 9, 2, 7, 7, 1, 30, 12]


class Tree:
    """A build tree of the library, and its installations."""

    def __init__(self, folder, sanitizer):
        self.folder, self.sanitizer = folder, sanitizer
        self.cmake = find_cmake()
        if self.cmake is None:
            pytest.skip("needs CMake, which the test extra brings")

    def configure(self, source, build, **options):
        if ninja := shutil.which("ninja"):
            options |= {"CMAKE_GENERATOR": "Ninja", "CMAKE_MAKE_PROGRAM": ninja}
        call(self.cmake, "-S", source, "-B", build, *(f"-D{name}={value}" for name, value in options.items()))

    def build(self, build, *targets):
        call(self.cmake, "--build", build, "-j", len(os.sched_getaffinity(0)), *targets)

    def install(self, prefix, shared="OFF"):
        build, options = self.folder / "library", {"SWIFTK_WERROR": "ON", "SWIFTK_ISAS": ISA}
        if self.sanitizer:
            # -O1 with asserts: every check in the runtime is on, and it compiles in half the time.
            options |= {"CMAKE_BUILD_TYPE": "Debug", "CMAKE_CXX_FLAGS_DEBUG": "-O1"}
            options["SWIFTK_SANITIZE"] = self.sanitizer
        elif built := extension_tree():
            build, options = built, {"SWIFTK_PYTHON": "OFF", "SWIFTK_INSTALL": "ON"}
        self.configure(ROOT, build, BUILD_SHARED_LIBS=shared, **options)
        self.build(build, "--target", "swiftk")
        call(self.cmake, "--install", build, "--component", "library", "--prefix", self.folder / prefix)
        return self.folder / prefix


def extension_tree():
    """Where the extension was built last, of the same objects as the library; None if that was elsewhere."""
    built = sorted(ROOT.glob("build/*/_core*.so"), key=lambda path: path.stat().st_mtime)
    return built[-1].parent if built and (built[-1].parent / "build.ninja").is_file() else None


@pytest.fixture(
    scope="module", params=["", pytest.param("address", marks=pytest.mark.exhaustive)], ids=["plain", "address"]
)
def tree(request, tmp_path_factory):
    return Tree(tmp_path_factory.mktemp("embedding"), request.param)


@pytest.fixture(scope="module")
def installed(tree):
    return tree.install("static")


@pytest.fixture(scope="module")
def hosts(tree, installed):
    tree.configure(HOSTS, tree.folder / "hosts", CMAKE_PREFIX_PATH=installed)
    tree.build(tree.folder / "hosts")
    return tree.folder / "hosts"


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("tiny"), family="llama3", layers=4)


def run(host, *arguments):
    """Sanitizers report on standard error and by the exit status."""
    command = [str(a) for a in (host, *arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0.8, "seed": 11}, {"temperature": 1.3, "seed": 5}], ids=["greedy", "warm", "hot"]
)
@pytest.mark.parametrize(
    ("drafts", "by"),
    [
        ({}, None),
        ({"skip": "1,2"}, "plan"),
        ({"weights": "int4"}, "plan"),
        ({"weights": "upper", "dtype": "float16"}, "plan"),
        ({"vocab": ",".join(str(token) for token in range(300) if token % 3)}, "plan"),
        ({"drafter": "recycle"}, "recycle"),
    ],
    ids=str,
)
def test_tokens_of_python(hosts, model_dir, options, drafts, by):
    lm = swiftk.load(model_dir, isa=ISA, dtype=drafts.get("dtype", "auto"))
    expected = lm.generate(PROMPT, max_new_tokens=48, speculate=False, **options)
    asked = {"tokens": ",".join(map(str, PROMPT)), "max": 48, "isa": ISA, **drafts, **options}
    done = run(hosts / "generate", model_dir, *(f"{name}={value}" for name, value in asked.items()))
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [int(line[0]) for line in lines] == list(expected.tokens)
    assert ("stop" in lines[-1]) == (expected.finish_reason == "stop")
    assert {line[2] for line in lines if line[1] == "drafted"} == ({by} if by else set())


def test_weights_from_disk(hosts, model_dir, tmp_path, monkeypatch):
    ask(monkeypatch, ALONE)
    made = swiftk.convert(model_dir, tmp_path / "made", draft_weights="int4", isa=ISA)
    need = least(made, draft_weights="int4", isa=ISA, context=0)
    assert swiftk.load(made, memory=need, max_sequences=1, draft_weights="int4", isa=ISA).model.memory["streamed"] > 0
    expected = swiftk.load(made, isa=ISA).generate(PROMPT, max_new_tokens=48, speculate=False)
    asked = ["tokens=" + ",".join(map(str, PROMPT)), "max=48", "weights=int4", f"isa={ISA}"]
    done = run(hosts / "generate", made, *asked, f"memory={need}")
    assert done.returncode == 0, done.stderr
    assert [int(line.split()[0]) for line in done.stdout.splitlines()] == list(expected.tokens)
    less = run(hosts / "generate", made, *asked, f"memory={need - 1}")
    assert (less.returncode, less.stderr.split(":")[0]) == (1, "out of memory")
    assert f"want at least {need} bytes" in less.stderr


def test_on_a_gpu(tree, hosts, model_dir, tmp_path, tmp_path_factory, monkeypatch):
    """Under sanitizers host and stub driver are both instrumented: a stray access on either side ends the run."""
    base = tmp_path if tree.sanitizer else tmp_path_factory.getbasetemp()
    ask(monkeypatch, f"driver={stub_cuda.library(base / 'stub_cuda', tree.sanitizer)}")
    kernels = tmp_path / "kernels.pack"
    pack.build(pack.shape_of(model_dir), "stub", kernels)
    arguments = (model_dir, f"tokens={','.join(map(str, PROMPT))}", "max=48", "device=cuda", f"pack={kernels}")
    plain, fast = (run(hosts / "generate", *arguments, f"skip={skip}") for skip in ("", "1,2"))
    assert (plain.returncode, fast.returncode) == (0, 0), plain.stderr + fast.stderr
    ids = [[line.split()[0] for line in done.stdout.splitlines()] for done in (plain, fast)]
    assert ids[0] == ids[1]
    assert "drafted" in fast.stdout
    nowhere = run(hosts / "generate", model_dir, "tokens=1", "device=cuda:7", f"pack={kernels}")
    assert (nowhere.returncode, nowhere.stderr.split(":")[0]) == (1, "device")


def test_an_unknown_word_for_developers_is_a_status(hosts, model_dir, monkeypatch):
    ask(monkeypatch, "slow")
    done = run(hosts / "generate", model_dir, "tokens=1", "max=1")
    assert done.returncode == 1 and "SWIFTK_DEBUG has 'slow', want some of isa=avx2" in done.stderr


@pytest.mark.parametrize("host", ["contract", "drafters", "engine", "misuse", "own_sampler", "sampling", "shared"])
def test_host(hosts, model_dir, host):
    done = run(hosts / host, model_dir, ISA)
    assert done.returncode == 0, done.stderr
    assert done.stdout == done.stderr == ""


@pytest.mark.parametrize("host", ["own_sampler", "sampling"])
def test_host_with_int8_keys_and_values(hosts, model_dir, host):
    """Sessions that are saved and loaded, branched and joined among it."""
    done = run(hosts / host, model_dir, ISA, "int8")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_errors_of_a_host(hosts, model_dir, tmp_path):
    missing = run(hosts / "generate", tmp_path, "tokens=1")
    assert missing.returncode == 1
    assert missing.stderr.startswith("checkpoint: ")
    assert str(tmp_path) in missing.stderr
    outside = run(hosts / "generate", model_dir, "tokens=1,999999")
    assert outside.returncode == 1
    assert "999999" in outside.stderr


C_ALONE = """\
cmake_minimum_required(VERSION 3.22)
project(alone LANGUAGES C)
find_package(swiftk REQUIRED)
add_executable(alone {source})
target_link_libraries(alone swiftk::swiftk pthread)
"""


def test_project_in_c_alone(tree, installed, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(C_ALONE.format(source=HOSTS / "generate.c"))
    tree.configure(tmp_path, tmp_path / "build", CMAKE_PREFIX_PATH=installed)
    tree.build(tmp_path / "build")
    assert "no/such" in run(tmp_path / "build" / "alone", "/no/such/model", "tokens=1").stderr


def test_a_c_compiler_and_pkg_config_are_enough(tree, installed, model_dir, tmp_path):
    """What the .pc file says links a static library without a C++ compiler."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    config = next(installed.rglob("swiftk.pc"))
    fields = dict(line.split(": ", 1) for line in config.read_text().splitlines() if ": " in line)
    variables = dict(line.split("=", 1) for line in config.read_text().splitlines() if re.match(r"\w+=", line))
    variables["pcfiledir"] = str(config.parent)

    def expand(text):
        while "${" in text:
            text = re.sub(r"\$\{(\w+)\}", lambda name: variables[name[1]], text)
        return text.split()

    host = tmp_path / "host"
    sanitizer = ["-fsanitize=address,undefined"] if tree.sanitizer else []  # as this library is built
    flags = [*expand(fields["Cflags"]), *expand(fields["Libs"])]
    call(compiler, HOSTS / "generate.c", "-o", host, *sanitizer, *flags)
    done = run(host, model_dir, "tokens=5,9", "max=4", f"isa={ISA}")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 4


def test_installed_files(installed):
    names = {str(p.relative_to(installed)) for p in installed.rglob("*") if p.is_file()}
    assert "include/swiftk.h" in names
    assert [n for n in names if n.startswith("include/")] == ["include/swiftk.h"]
    for name in ("libswiftk.a", "pkgconfig/swiftk.pc", "cmake/swiftk/swiftkConfig.cmake"):
        assert any(n.endswith(name) for n in names), f"{name} is not among {sorted(names)}"


def test_header_is_c99_and_needs_nothing_else(tmp_path):
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    source = tmp_path / "only.c"
    source.write_text('#include "swiftk.h"\nint main(void) { return 0; }\n')
    strict = ["-std=c99", "-pedantic-errors", "-Wall", "-Wextra", "-Werror"]
    call(compiler, *strict, "-I", ROOT / "csrc" / "c", "-fsyntax-only", source)


def test_shared_library_exports_the_abi_alone(tree):
    library = next((tree.install("shared", shared="ON")).rglob("libswiftk.so"))
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("needs nm")
    symbols = {line.split()[-1] for line in call(nm, "-D", "--defined-only", library).splitlines() if " T " in line}
    assert symbols == set(re.findall(r"\b(swiftk_\w+)\(", (ROOT / "csrc" / "c" / "swiftk.h").read_text()))
    header = (ROOT / "csrc" / "c" / "swiftk.h").read_text()
    version = re.search(r"#define SWIFTK_ABI_VERSION (\d+)", header)[1]
    assert os.readlink(library).startswith(f"libswiftk.so.{version}")
