"""What prepare.sh makes ahead for a machine with a GPU, and where: packs of kernels, and a wheel of these sources."""

from __future__ import annotations

import hashlib
import sys
import tarfile
import zipfile
from pathlib import Path

import record

WORK = record.ROOT / "build" / "gpu"
PREPARED = WORK / "prepared"
PACKS = PREPARED / "packs.tar.xz"
_MODELS = "swiftk/models/"
_SOURCES = {".py", ".h", ".cc", ".cu", ".cuh", ".txt", ".toml"}


def digest() -> str:
    """Digest of what a wheel is made from."""
    found = hashlib.sha256()
    places = [record.ROOT / name for name in ("CMakeLists.txt", "setup.py", "pyproject.toml")]
    places += [path for folder in ("csrc", "kernels", "swiftk") for path in (record.ROOT / folder).rglob("*.*")]
    for path in sorted(path for path in places if path.suffix in _SOURCES and path.is_file()):
        found.update(f"{path.relative_to(record.ROOT)}\0".encode() + path.read_bytes())
    return found.hexdigest()


def without_models(wheel: Path) -> None:
    """Takes out of a wheel the models, which travel with the tree: what a borrowed machine is sent is limited."""
    light = wheel.with_suffix(".partial")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(light, "w", zipfile.ZIP_DEFLATED) as new:
        for item in old.infolist():
            if item.filename.startswith(_MODELS):
                continue
            data = old.read(item)
            if item.filename.endswith(".dist-info/RECORD"):
                lines = data.splitlines(keepends=True)
                data = b"".join(line for line in lines if not line.startswith(_MODELS.encode()))
            new.writestr(item, data)
    light.replace(wheel)


def wheels() -> list[Path]:
    """Those of these sources for this version of Python."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    made = PREPARED / "sources"
    same = made.is_file() and made.read_text() == digest()
    return sorted(PREPARED.glob(f"swiftk-*-{tag}-{tag}-*.whl")) if same else []


def place_packs(cache: Path) -> int:
    """Puts them where swiftk looks for packs; how many there are."""
    if not PACKS.is_file():
        return 0
    with tarfile.open(PACKS) as archive:
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # early patches of 3.10 and 3.11 lack it
        archive.extractall(cache / "kernels", **safely)
        return len(archive.getnames())


def pack_up(packs: list[Path]) -> None:
    """All in one stream: most kernels of two packs are much alike."""
    PREPARED.mkdir(parents=True, exist_ok=True)
    partial = PACKS.with_suffix(".partial")
    with tarfile.open(partial, "w:xz", preset=9) as out:
        for path in packs:
            out.add(path, path.name)
    partial.replace(PACKS)
