"""Kernel packs: the GPU kernels of one architecture, model shape and dtype in one file.

Eight bytes of header length (little-endian), a JSON header, then the kernels' images; csrc/cuda/kernel_pack.h reads it.
Built ahead by `swiftk pack`, or when a model is first loaded on a GPU, and then cached.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from .. import _core
from ..errors import CheckpointError, DeviceError, InvalidArgument, UnsupportedModel
from ..files.folders import cache_folder, kernel_sources, load_source, typed, write_whole
from . import debug, pack_cuda
from .pack_compile import Image, compile_kernels

FORMAT, VERSION = "swiftk-kernels", 1
STUB = "stub"  # images are JSON that names the kernel and its constants: for a driver that emulates
OLDEST = 80  # the first architecture with bfloat16 in its tensor cores
OVERLAPPING = 90  # the first on which a kernel may start before the one before it has ended
Progress = Callable[[int, int], Any]
_T = TypeVar("_T")

_FIELDS = {"arch": str, "hash": str, "digest": str, "built_with": str, "shape": dict, "kernels": dict}
_SIZES, _FLAGS = ("D", "H", "KV", "HD", "F", "V"), ("qk_norm", "qkv_bias", "o_bias", "mlp_bias")
_ALIGNMENT = 64  # images begin at multiples of so many bytes
_STUB_SHARED = 1 << 16  # more than a kernel gets unasked, as the tiles of a real one
_log = logging.getLogger("swiftk")


def shape_of(folder: str | Path, dtype: str = "auto") -> dict[str, Any]:
    """What kernels for a checkpoint are compiled for: by its config.json and, for "auto", the header of its weights."""
    config = _core.read_config(str(folder))
    if not config["like_llama"]:
        kind = config["model_type"]
        raise UnsupportedModel(f"[pack] a GPU has no kernels for layers of a {kind}; device 'cpu' runs it")
    return _core.kernel_shape(str(folder), dtype)


def shapes_of_drafter(drafter: str | Path, folder: str | Path, dtype: str = "auto") -> list[dict[str, Any]]:
    """The same for a drafter of the checkpoint in `folder`, which is loaded in that dtype: of most kinds one."""
    return _core.drafter_kernel_shapes(str(drafter), str(folder), dtype)


def copies_of_drafter(shape: dict[str, Any], draft_weights: str) -> str:
    """What of them it reads: a model its own in few bits, a head none."""
    return "own" if "linears" in shape else draft_weights


def manifest() -> ModuleType:
    """kernels/triton/manifest.py, which needs no Triton."""
    return load_source(kernel_sources() / "manifest.py")


def chosen_matmuls(matmuls: str | None = None) -> str | None:
    """ "cuda" for those in CUDA C++, "triton", or None: nobody chose, and SWIFTK_DEBUG did not either."""
    chosen = matmuls or debug.value("matmuls")
    if chosen not in ("", "triton", "cuda"):
        raise InvalidArgument(f"[pack] matmuls is {chosen!r}, want 'triton' or 'cuda'")
    return chosen or None


def _by_preference(shape: dict[str, Any], matmuls: str | None, make: Callable[[str], _T]) -> _T:
    """What `make` makes of the matmuls that were chosen; else of those in CUDA C++, or of Triton's where it cannot.
    Heads that draft have Triton's."""
    chosen = "triton" if "linears" in shape else chosen_matmuls(matmuls)
    if chosen:
        return make(chosen)
    try:
        return make("cuda")
    except pack_cuda.Unavailable as error:
        reason = str(error)  # a record that is kept shall not keep frames
    made = make("triton")
    _log.warning("matmuls are Triton's, which are slower: %s", reason)
    return made


def _check_arch(arch: str) -> None:
    if arch != STUB and not re.fullmatch(r"sm_\d{2,3}", arch):
        raise InvalidArgument(f"[pack] arch is {arch!r}, want sm_80, sm_90, sm_100 or the like")
    if arch != STUB and int(arch[3:]) < OLDEST:
        raise DeviceError(f"[pack] there are no kernels for {arch} (supported: sm_{OLDEST} and newer)")


def _triton() -> str:
    """What compiles most kernels, as "triton 3.6.0"."""
    from importlib import metadata  # slow to import, and a CPU needs none of it

    try:
        return f"triton {metadata.version('triton')}"
    except metadata.PackageNotFoundError:
        raise pack_cuda.Unavailable(
            "[pack] kernels for a GPU are built by Triton, which is not installed: pip install 'swiftk[cuda]', or give "
            "a pack built elsewhere (pack=, made by `swiftk pack`)"
        ) from None


def forms_of(draft_weights: str) -> tuple[str, ...]:
    """Copies of the weights that kernels are built for, by LoadOptions.draft_weights."""
    forms = {"auto": ("int4",), "own": ()}.get(draft_weights, tuple(sorted(draft_weights.split(","))))
    for form in forms:
        if form not in manifest().FORMS:
            raise InvalidArgument(f"[pack] draft_weights has {form!r}, kernels read {', '.join(manifest().FORMS)}")
    return forms


def hash_of(shape: dict[str, Any], arch: str, matmuls: str | None = None, draft_weights: str = "own") -> str:
    """Changes with anything that kernels are made from, and not with what compiles them.

    So a pack that was prepared on another machine is found, also where no compiler is, and an update of a compiler
    costs nobody a build. The order of every sum is the sources', so that what a compiler decides is speed; which it was
    is in the header (built_with). To have kernels from another one, the cached pack is removed.
    """
    _check_arch(arch)
    matmuls = chosen_matmuls(matmuls) or ("cuda" if pack_cuda.supports(shape) else "triton")
    made = [VERSION, shape, arch, matmuls, forms_of(draft_weights)]
    return _digest(made, [*kernel_sources().glob("*.py"), *pack_cuda.source_files()])


def _digest(made: list[Any], sources: list[Path]) -> str:
    digest = hashlib.sha256(json.dumps(made, sort_keys=True).encode())
    for source in sorted(sources, key=lambda source: source.name):
        digest.update(f"\0{source.name}\0".encode() + source.read_bytes())
    return digest.hexdigest()


def build(
    shape: dict[str, Any],
    arch: str,
    path: str | Path,
    progress: Progress | None = None,
    matmuls: str | None = None,
    draft_weights: str = "own",
) -> None:
    """Compiles every kernel for `arch` ("sm_90") and writes the pack: whole, or not at all.

    `matmuls`: "cuda" for those in CUDA C++ (16-bit weights; needs NVRTC or nvcc), "triton", or None: "cuda" where that
    can be, else "triton". Bits differ between the two.
    `draft_weights`: what drafts may read beside the model's own, as in LoadOptions; its matmuls are always Triton's.
    """
    _check_arch(arch)
    _by_preference(shape, matmuls, lambda chosen: _build(shape, arch, Path(path), progress, chosen, draft_weights))


def _build(
    shape: dict[str, Any], arch: str, path: Path, progress: Progress | None, matmuls: str, draft_weights: str
) -> None:
    header: dict[str, Any] = {"format": FORMAT, "version": VERSION, "arch": arch}
    header["hash"] = hash_of(shape, arch, matmuls, draft_weights)
    early = arch == STUB or int(arch.removeprefix("sm_")) >= OVERLAPPING
    entries, own = manifest().entries(shape, early, forms_of(draft_weights)), []
    if matmuls == "cuda":
        if not pack_cuda.supports(shape):
            raise pack_cuda.Unavailable("[pack] matmuls in CUDA C++ want 16-bit weights with rows of multiples of 8")
        own, header["layouts"] = pack_cuda.entries(shape, arch, early)
        names = {entry.name for entry in own}
        entries = [entry for entry in entries if entry.name not in names]
    if arch == STUB:
        found = [(entry, _stub(entry, shape["dtype"])) for entry in (*entries, *own, pack_cuda.gate())]
        header["built_with"] = "none"
    else:
        found, facts = _compile(own, entries, arch, progress)
        header |= facts
    kernels, data = _lay_out(found)
    header |= {"digest": hashlib.sha256(data).hexdigest(), "shape": shape, "kernels": kernels}
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    write_whole(path, struct.pack("<Q", len(text)) + text + data)


def _compile(
    own: list[Any], entries: list[Any], arch: str, progress: Progress | None
) -> tuple[list[tuple[Any, Image]], dict[str, str]]:
    """Entries in CUDA C++, the gate and Triton's, with their images; and what the header says about their making."""
    names, images, total = [_triton()], [], len(own) + 1 + len(entries)
    if own:
        images, name = pack_cuda.compile_entries(own, arch, _part(progress, 0, total))
        names.append(name)
    found, facts = list(zip(own, images, strict=True)), {}
    try:
        image, name = pack_cuda.gate_image(arch)
        found.append((pack_cuda.gate(), image))
        names += [name] if name not in names else []
    except pack_cuda.Unavailable as error:
        _log.warning("drafts on this GPU will wait for the host at every step: %s", str(error))
        facts, total = {"no_gate": str(error)} if pack_cuda.compilers() else {}, total - 1
    images = compile_kernels(kernel_sources(), entries, arch, _part(progress, len(found), total))
    return [*found, *zip(entries, images, strict=True)], {**facts, "built_with": ", ".join(names)}


def _lay_out(found: list[tuple[Any, Image]]) -> tuple[dict[str, Any], bytes]:
    """The header's "kernels", and what they point to: equal images are stored once."""
    begins: dict[bytes, int] = {}
    kernels, data = {}, bytearray()
    for entry, image in found:
        if image.code not in begins:
            begins[image.code] = len(data)
            data += image.code
            data += bytes(-len(data) % _ALIGNMENT)
        begin = begins[image.code]
        kernels[entry.name] = {
            "symbol": image.symbol,
            "warps": entry.warps,
            "shared": image.shared,
            "constants": {name: int(value) for name, value in entry.constants.items() if isinstance(value, int)},
            "begin": begin,
            "end": begin + len(image.code),
        }
    return kernels, bytes(data)


def _part(progress: Progress | None, before: int, total: int) -> Progress | None:
    """Progress of a part as progress of the whole."""
    return progress and (lambda done, _: progress(before + done, total))


def _stub(entry: Any, dtype: str) -> Image:
    facts = {"kernel": entry.function, "warps": entry.warps, "constants": {**entry.constants, "DT": dtype}}
    return Image(json.dumps(facts).encode(), entry.function, _STUB_SHARED if entry.stages > 1 else 0)


def ensure(
    shape: dict[str, Any],
    arch: str,
    progress: Progress | None = None,
    matmuls: str | None = None,
    draft_weights: str = "own",
) -> Path:
    """The cached pack of a shape, built first where there is none. Two processes do not build it twice."""
    return _by_preference(shape, matmuls, lambda chosen: _cached(shape, arch, progress, chosen, draft_weights))


def _cached(shape: dict[str, Any], arch: str, progress: Progress | None, matmuls: str, draft_weights: str) -> Path:
    key = hash_of(shape, arch, matmuls, draft_weights)
    path = cache_folder() / "kernels" / f"{arch}-{key[:20]}.pack"
    if not _is_good(path, key):
        with _locked(path.parent):
            if not _is_good(path, key):  # still: another process may have built it meanwhile
                _log.info("building kernels for %s: %s", arch, path)
                _build(shape, arch, path, progress, matmuls, draft_weights)
    return path


def read_header(path: str | Path) -> dict[str, Any]:
    """The header of a pack. Raises CheckpointError naming the file and what is wrong, if only one bit of an image."""

    def want(there: bool, what: str) -> None:
        if not there:
            raise CheckpointError(f"[pack] {path}: {what}")

    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise CheckpointError(f"[pack] {path}: {error.strerror}") from error
    end = 8 + int.from_bytes(data[:8], "little")
    want(len(data) >= 8 and len(data) >= end, "not a kernel pack, or truncated")
    try:
        header = json.loads(data[8:end])
    except ValueError:
        header = None
    want(isinstance(header, dict) and header.get("format") == FORMAT, "not a kernel pack")
    want(header.get("version") == VERSION, f"version is {header.get('version')!r}, want {VERSION}")
    for name, kind in _FIELDS.items():
        want(isinstance(header.get(name), kind), f"{name} is missing or no {kind.__name__}")
    shape = header["shape"]
    for name in (*_SIZES, *_FLAGS, "dtype", "eps"):
        want(name in shape, f"shape.{name} is missing")
    images = data[end:]
    for name, kernel in header["kernels"].items():
        begin, stop = kernel.get("begin"), kernel.get("end")
        inside = isinstance(begin, int) and isinstance(stop, int) and 0 <= begin < stop <= len(images)
        want(inside, f"kernel {name} lies outside the file, which may be truncated")
    want(hashlib.sha256(images).hexdigest() == header["digest"], "the images are damaged")
    return header


def _is_good(path: Path, key: str) -> bool:
    """Whether a cached pack is there and whole, and has the gate if that can be built now."""
    if not path.exists():
        return False
    try:
        header = read_header(path)
    except CheckpointError as error:
        _log.warning("%s: kernels are built again", error)
        return False
    if header["hash"] != key:
        _log.warning("%s is not what its name says: kernels are built again", path)
        return False
    return "gate" in header["kernels"] or "no_gate" in header or not _can_build()


def _can_build() -> bool:
    with suppress(pack_cuda.Unavailable):
        return bool(_triton() and pack_cuda.compilers())
    return False


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Alone in a folder, among all processes: two builds at once would only share the cores."""
    with typed(folder):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    try:
        with typed(folder):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)  # and the lock with it
