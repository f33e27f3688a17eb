"""Installs swiftk, from a wheel that was made ahead if there is one for this Python, else from its sources, into an
environment of its own that sees the packages of this Python. Nothing is downloaded."""

from __future__ import annotations

import argparse
import re
import shutil
import site
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

import ahead
import record

ENVIRONMENT = ahead.WORK / "venv"


def environment() -> Path:
    """Its interpreter. This Python may itself be of a virtual environment, whose packages a new one would not see."""
    venv.create(ENVIRONMENT, symlinks=True)
    inner = next(ENVIRONMENT.glob("lib/python*/site-packages"))
    lines = [f"import site; site.addsitedir({folder!r})" for folder in site.getsitepackages()]
    (inner / "outer.pth").write_text("\n".join(lines) + "\n")
    return ENVIRONMENT / "bin" / "python"


def sources() -> Path:
    """The source tree; for a setuptools older than 77, a copy that names the licence as it was done before."""
    if int(metadata.version("setuptools").partition(".")[0]) >= 77:
        return record.ROOT
    copy = ENVIRONMENT.with_name("source")
    unwanted = shutil.ignore_patterns("build", "shared", ".*", "__pycache__")
    shutil.copytree(record.ROOT, copy, ignore=unwanted, dirs_exist_ok=True)
    settings = copy / "pyproject.toml"
    text = re.sub(r'^license = (".*")$', r"license = { text = \1 }", settings.read_text(), flags=re.M)
    settings.write_text(re.sub(r"^license-files .*\n", "", text, flags=re.M))
    return copy


def install(python: Path, what: Path) -> str:
    """What the installed package says of itself. Raises SystemError with pip's last words."""
    command = [python, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index", "--no-cache-dir",
               "--force-reinstall", "--disable-pip-version-check", what]
    code = "import swiftk, swiftk._core as core; print(swiftk.__version__, *core.isas())"
    for step in (command, [python, "-c", code]):
        done = subprocess.run(step, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ENVIRONMENT,
                              check=False)
        if done.returncode:
            raise SystemError("\n".join(done.stdout.splitlines()[-60:]))
    return done.stdout.strip()


def place_models() -> None:
    """The bundled models, which a wheel that was made ahead leaves to the tree."""
    package = next(ENVIRONMENT.glob("lib/python*/site-packages/swiftk"))
    shutil.copytree(record.ROOT / "swiftk" / "models", package / "models", dirs_exist_ok=True)


def main() -> None:
    given = record.options(argparse.ArgumentParser(description=__doc__)).parse_args()
    with record.Part("build", given) as part:
        python = environment()
        for wheel in ahead.wheels():
            try:
                said = install(python, wheel)
                place_models()
                part.note(f"swiftk {said} from {wheel.name}, Python {sys.version.split()[0]}")
                return
            except SystemError as error:
                part.note(f"{wheel.name} does not serve here: {error}"[-400:])
        part.note(f"swiftk {install(python, sources())} from its sources, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
