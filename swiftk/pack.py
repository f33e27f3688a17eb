"""Kernel packs: the GPU kernels of one architecture, model shape and dtype in one file.

Eight bytes of header length (little-endian), a JSON header, then the kernels' images; csrc/cuda/kernel_pack.h reads it.
Built ahead by `swiftk pack`, or when a model is first loaded on a GPU, and then cached.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import logging
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from . import _core
from .errors import CheckpointError, DeviceError, InvalidArgument
from .folders import cache_folder, kernel_sources

FORMAT, VERSION = "swiftk-kernels", 1
STUB = "stub"  # images are JSON that names the kernel and its constants: for a driver that emulates
Progress = Callable[[int, int], Any]

_log = logging.getLogger("swiftk")


def shape_of(folder: str | Path, dtype: str = "auto") -> dict[str, Any]:
    """What kernels for a checkpoint are compiled for; reads its config and the dtype of its weights, no more."""
    return _core.kernel_shape(str(folder), dtype)


def manifest() -> ModuleType:
    """kernels/triton/manifest.py, which needs no Triton."""
    spec = importlib.util.spec_from_file_location("swiftk_kernel_manifest", kernel_sources() / "manifest.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def hash_of(shape: dict[str, Any], arch: str) -> str:
    """Changes with anything that kernels are made from."""
    digest = hashlib.sha256()
    for source in sorted(kernel_sources().glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    digest.update(json.dumps([VERSION, shape, arch, compiler(arch)], sort_keys=True).encode())
    return digest.hexdigest()


def compiler(arch: str) -> str:
    """As "triton 3.6.0". Raises DeviceError where a compiler is needed and there is none."""
    if arch == STUB:
        return "none"
    try:
        return f"triton {metadata.version('triton')}"
    except metadata.PackageNotFoundError:
        raise DeviceError(
            "[pack] kernels for a GPU are built by Triton, which is not installed: pip install 'swiftk[cuda]', or give "
            "a pack built elsewhere (pack=, made by `swiftk pack`)"
        ) from None


def build(shape: dict[str, Any], arch: str, path: str | Path, progress: Progress | None = None) -> None:
    """Compiles every kernel for `arch` ("sm_90") and writes the pack: whole, or not at all."""
    if arch != STUB and not (arch.startswith("sm_") and arch[3:].isdigit()):
        raise InvalidArgument(f"[pack] arch is {arch!r}, want sm_80, sm_90, sm_100 or the like")
    built_with = compiler(arch)
    entries = manifest().entries(shape)
    compiled = _stub_images(entries, shape) if arch == STUB else _compile(entries, arch, progress)
    images, kernels = bytearray(), {}
    for entry, (image, facts) in zip(entries, compiled, strict=True):
        begin = len(images)
        images += image
        images += bytes(-len(images) % 16)
        constants = {name: int(value) for name, value in entry.constants.items() if isinstance(value, (bool, int))}
        kernels[entry.name] = {**facts, "warps": entry.warps, "constants": constants, "begin": begin, "end": begin + len(image)}
    header = {"format": FORMAT, "version": VERSION, "arch": arch, "hash": hash_of(shape, arch), "built_with": built_with}
    text = json.dumps({**header, "shape": shape, "kernels": kernels}).encode()
    _write(Path(path), struct.pack("<Q", len(text)) + text + bytes(images))


def ensure(shape: dict[str, Any], arch: str, progress: Progress | None = None) -> Path:
    """The cached pack of a shape, built first where there is none. Two processes do not build it twice."""
    key = hash_of(shape, arch)
    path = cache_folder() / "kernels" / f"{arch}-{key[:20]}.pack"
    if _cached(path, key):
        return path
    with _locked(path.with_suffix(".lock")):
        if not _cached(path, key):
            _log.info("building kernels for %s: %s", arch, path)
            build(shape, arch, path, progress)
    return path


def read_header(path: str | Path) -> dict[str, Any]:
    """The checked header of a pack. Raises CheckpointError naming the file and what is wrong."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"[pack] {path}: {error.strerror}") from error
    if len(data) < 8 or (length := struct.unpack_from("<Q", data)[0]) > len(data) - 8:
        raise CheckpointError(f"[pack] {path}: not a kernel pack, or truncated")
    try:
        header = json.loads(data[8 : 8 + length])
        fits = header["format"] == FORMAT
        ends = [kernel["end"] for kernel in header["kernels"].values()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"[pack] {path}: not a kernel pack") from error
    if not fits or header.get("version") != VERSION:
        raise CheckpointError(f"[pack] {path}: version is {header.get('version')!r}, want {VERSION}")
    if max(ends, default=0) > len(data) - 8 - length:
        raise CheckpointError(f"[pack] {path}: truncated")
    return header


def _stub_images(entries: list[Any], shape: dict[str, Any]) -> Iterator[tuple[bytes, dict[str, Any]]]:
    for entry in entries:
        constants = {**entry.constants, "DT": shape["dtype"]}
        yield json.dumps({"kernel": entry.function, "constants": constants}).encode(), {"symbol": entry.function, "shared": 0}


def _compile(entries: list[Any], arch: str, progress: Progress | None) -> list[tuple[bytes, dict[str, Any]]]:
    """Images and launch facts, compiled in as many processes as there are cores."""
    cores = len(os.sched_getaffinity(0))
    results: list[Any] = [None] * len(entries)
    with tempfile.TemporaryDirectory(prefix="swiftk-pack-") as folder, ThreadPoolExecutor(cores) as pool:
        # Neighbours in the list cost alike: dealt out in turns, all processes end at about the same time.
        shares = [range(i, len(entries), cores) for i in range(min(cores, len(entries)))]
        done = 0

        def tell() -> None:
            nonlocal done
            done += 1
            if progress:
                progress(done, len(entries))

        futures = [pool.submit(_compile_share, share, entries, arch, folder, tell) for share in shares]
        for future in as_completed(futures):
            for index, facts in future.result():
                results[index] = (Path(folder, f"{index}.cubin").read_bytes(), facts)
    return results


def _compile_share(
    share: range, entries: list[Any], arch: str, folder: str, tell: Callable[[], None]
) -> list[tuple[int, dict[str, Any]]]:
    jobs = [{"index": i, **asdict(entries[i])} for i in share]
    task = json.dumps({"sources": str(kernel_sources()), "arch": arch, "folder": folder, "jobs": jobs})
    command = [sys.executable, "-P", "-m", "swiftk.pack_compile"] if sys.version_info >= (3, 11) else [
        sys.executable, "-m", "swiftk.pack_compile"]  # fmt: skip
    found = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdin and run.stdout and run.stderr
        run.stdin.write(task)
        run.stdin.close()
        for line in run.stdout:
            result = json.loads(line)
            found.append((result.pop("index"), result))
            tell()
        complaint = run.stderr.read()
    if run.returncode:
        last = complaint.strip().splitlines()[-1:] or [f"exit status {run.returncode}"]
        raise DeviceError(f"[pack] compiling kernels for {arch} failed: {last[0]}")
    return found


def _cached(path: Path, key: str) -> bool:
    if not path.exists():
        return False
    try:
        if read_header(path).get("hash") == key:
            return True
        _log.warning("%s is not what its name says: kernels are built again", path)
    except CheckpointError as error:
        _log.warning("%s: kernels are built again", error)
    return False


def _write(path: Path, data: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(data)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise DeviceError(f"[pack] {path} cannot be written: {error.strerror}") from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise DeviceError(f"[pack] {path} cannot be written: {error.strerror}; SWIFTK_CACHE names another folder") from error
