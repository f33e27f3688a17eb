"""Installs swiftk into an environment of its own that sees the packages of this Python. Nothing is downloaded."""

from __future__ import annotations

import argparse
import site
import subprocess
import sys
import venv
from pathlib import Path

import record

ENVIRONMENT = record.ROOT / "build" / "gpu" / "venv"


def environment() -> Path:
    """Its interpreter. This Python may itself be of a virtual environment, whose packages a new one would not see."""
    venv.create(ENVIRONMENT, symlinks=True)
    inner = next(ENVIRONMENT.glob("lib/python*/site-packages"))
    lines = [f"import site; site.addsitedir({folder!r})" for folder in site.getsitepackages()]
    (inner / "outer.pth").write_text("\n".join(lines) + "\n")
    return ENVIRONMENT / "bin" / "python"


def main() -> None:
    given = record.options(argparse.ArgumentParser(description=__doc__)).parse_args()
    with record.Part("build", given) as part:
        python = environment()
        install = [python, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index", "--no-cache-dir",
                   "--disable-pip-version-check", record.ROOT]
        done = subprocess.run(install, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            raise SystemError("\n".join(done.stdout.splitlines()[-60:]))
        code = "import swiftk, swiftk._core as core; print(swiftk.__version__, *core.isas())"
        said = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, cwd=ENVIRONMENT)
        part.note(f"swiftk {said.stdout.strip()}, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
