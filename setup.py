"""Builds the extension with CMake: plumbing only. CMAKE_ARGS passes through; everything else is in pyproject.toml."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

from setuptools import Command, Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cmake_arguments() -> list[str]:
    """Configuration, with every path given anew: those of an isolated build are gone at the next one."""
    import pybind11

    arguments = [
        "-DSWIFTK_PYTHON=ON",
        "-DSWIFTK_INSTALL=OFF",
        f"-DPython_EXECUTABLE={sys.executable}",
        f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
    ]
    ninja = shutil.which("ninja")
    if ninja and "CMAKE_GENERATOR" not in os.environ:
        arguments += ["-GNinja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
    return arguments + shlex.split(os.environ.get("CMAKE_ARGS", ""))


class KernelCopy(build_py):
    """Puts the kernels that are compiled on the user's machine into the package; an editable one finds them here."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            package = Path(self.build_lib, "swiftk", "kernels")
            shutil.rmtree(package, ignore_errors=True)  # an earlier build's
            for folder in ("triton", "cuda"):
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / "kernels" / folder, package / folder, ignore=ignored)
            shutil.copy(ROOT / "kernels" / "gate_rule.h", package)


def build(target: str, component: str, prefix: Path) -> None:
    """Configures, builds a target, and installs its component below `prefix`."""
    folder = ROOT / "build" / f"cmake-{sys.implementation.cache_tag}"  # kept: a second install compiles little
    if not shutil.which("ninja") and (folder / "build.ninja").exists():
        shutil.rmtree(folder)  # configured for a generator that is not here any more
    subprocess.check_call(["cmake", "-S", ROOT, "-B", folder, *cmake_arguments()])
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(cores()))
    subprocess.check_call(["cmake", "--build", folder, "--target", target, "--config", "Release", "-j", jobs])
    subprocess.check_call(
        ["cmake", "--install", folder, "--config", "Release", "--component", component, "--prefix", prefix]
    )


class CMakeBuild(build_ext):
    """Builds the one target into the place setuptools wants it."""

    def build_extension(self, ext: Extension) -> None:
        build("_core", "python", Path(self.get_ext_fullpath(ext.name)).resolve().parent.parent)


class TestingBuild(Command):
    """Builds the extension that tests and benchmarks use besides, into build/testing/swiftk."""

    user_options: ClassVar[list[tuple[str, str, str]]] = []

    def initialize_options(self) -> None: ...

    def finalize_options(self) -> None: ...

    def run(self) -> None:
        build("_testing", "testing", ROOT / "build" / "testing")


setup(
    ext_modules=[Extension("swiftk._core", sources=[])],
    cmdclass={"build_ext": CMakeBuild, "build_py": KernelCopy, "build_testing": TestingBuild},
)
