"""Recognises what is given as a model. A Hugging Face folder is returned. Anything else is a typed error that says what
was found and what to do instead. The tables list what people have; find() is the rule."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from .. import _core
from ..errors import CheckpointError, InvalidOption, SwiftkError, UnsupportedModel
from .hf_folder import CONFIG
from .safetensors_io import INDEX, WEIGHTS

WANT = "want a Hugging Face folder with config.json and model.safetensors (or its shards), or a GGUF file"
_WEIGHTS = (WEIGHTS, INDEX)
_NO_WEIGHTS = ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth", "scaler.pt")  # of trainers
_ORIGINAL = "Get the original checkpoint: `hf download {origin} --local-dir DIR`, where ORG made the model."
_SAVE = {  # how weights that transformers or torch reads become safetensors, of a model and of a drafter
    "model": "AutoModelForCausalLM.from_pretrained({folder!r}).save_pretrained(DIR)",
    "drafter": "safetensors.torch.save_file(torch.load({file!r}, weights_only=True), 'model.safetensors')",
}


@dataclass(frozen=True, slots=True)
class Format:
    """Files of one kind."""

    found: str
    files: tuple[str, ...]  # patterns of names; the first ones are what a folder is known by
    instead: str
    magic: bytes | None = None  # how such files begin, whatever their name


FORMATS = (
    Format("GGUF, which is one file", ("*.gguf",), "Give that file: {file}."),
    Format("GGML, an old format", ("*.ggml", "*ggml*.bin"), _ORIGINAL, b"lmgg"),
    Format(
        "Meta's own format",
        ("consolidated.*.pth", "consolidated*.pt"),
        "Get the same model as transformers has it: `hf download {origin} --local-dir DIR`, without original/*.",
    ),
    Format(
        "PyTorch weights (pickle)",
        ("pytorch_model*.bin", "*.bin", "*.pt", "*.pth", "*.ckpt"),
        "Convert them: {save}.",
        b"PK\x03\x04",
    ),
    Format("ONNX", ("*.onnx", "*.onnx_data"), _ORIGINAL),
    Format("MLX weights (npz)", ("*.npz",), _ORIGINAL),
    Format("OpenVINO", ("openvino_model*.xml", "*.xml"), _ORIGINAL),
    Format("TensorFlow or Flax weights", ("*.h5", "*.msgpack"), "Convert them: {save}, with from_tf or from_flax."),
    Format("a TensorRT engine", ("*.engine", "*.plan"), _ORIGINAL),
    Format("Core ML", ("*.mlmodel", "*.mlpackage", "*.mlmodelc"), _ORIGINAL),
    Format("an archive", ("*.zip", "*.tar", "*.tar.*", "*.tgz", "*.7z"), "Unpack it, and give the folder."),
)

# Names of repositories that say what is inside, and of config.json's quantization_config.quant_method.
_QUANTISED = r"GGUF|AWQ|GPTQ|EXL2|MLX|ONNX|HQQ|AQLM|FP8|NVFP4|MXFP4|INT[48]|W[48]A(?:8|16)|bnb|[2-8]-?bit|quantized"
_HUB = r"[\w.-]+/[\w.-]+"
_SUFFIX = re.compile(rf"(?:[-_.](?:bnb-)?(?:{_QUANTISED}|I?Q\d\w*|BF16|F16|F32|\d+-of-\d+))+$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Name:
    """A name that is no path here, and means something elsewhere."""

    pattern: str  # of the whole; its group `repo` is a repository of the Hub
    found: str
    instead: str
    error: type[SwiftkError] = CheckpointError


NAMES = (
    Name(
        r"(?:https?://|hf://)?(?:www\.)?(?:huggingface|hf)\.co/(?P<repo>[\w.-]+/[\w.-]+)(?:[/:?#].*)?",
        "a Hub address",
        "",
    ),
    Name(r"hf://(?P<repo>[\w.-]+/[\w.-]+).*", "a Hub address", ""),
    Name(r"\w+://.*", "an address", "Download it, and give the folder."),
    Name(
        r"(?:[\w.-]+/)*[\w.-]+:[\w.-]+",
        "a name as Ollama and llama.cpp have them",
        "Download the GGUF file, and give its path: `hf download ORG/NAME-GGUF FILE.gguf --local-dir DIR`.",
    ),
    Name(rf"(?P<repo>{_HUB})", "not a directory; it looks like a repository of the Hub", ""),
)


def find(given: Any, function: str = "load", role: str = "model") -> Path:
    """The folder of a model, or of a drafter (role), or its GGUF file. CheckpointError: it is missing, or not whole;
    UnsupportedModel: it is in a format that is not read. Both say what to do."""
    if not isinstance(given, (str, os.PathLike)):
        raise InvalidOption(f"[{function}] {role}={given!r}, want the path of a folder or of a GGUF file")
    path = Path(given).expanduser()
    what = f"[{function}] {'drafter ' if role == 'drafter' else ''}{path if os.path.exists(path) else given}"
    if os.path.isdir(path):
        problem = _in_folder(path, role)
    elif os.path.exists(path):
        problem = _file(path, role)
    else:
        problem = _nothing(str(given), path)
    if problem is None:
        return path
    kind, found, instead = problem
    raise kind(" ".join(f"{what} {found}; {WANT}. {instead}".split()))


def check_config(folder: Path, function: str = "load") -> None:
    """UnsupportedModel: weights that are compressed in a way that nothing here reads, by config.json."""
    if found := _quantised(_config(folder)):
        raise UnsupportedModel(f"[{function}] {folder} {found}; want {', '.join(_core.compressions())}, or none")


Problem = tuple[type[SwiftkError], str, str]  # what to raise, what was found, what to do instead


def _in_folder(path: Path, role: str) -> Problem | None:
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except OSError as error:
        return CheckpointError, f"cannot be read: {error.strerror}", ""
    config = _config(path)
    origin = _origin(config.get("_name_or_path"), path.name)
    if found := _quantised(config):
        return UnsupportedModel, found, _ORIGINAL.format(origin=origin)
    pointers = [name for name in names if name.endswith(".safetensors") and _is_pointer(path / name)]
    if pointers:
        fetch = "`git lfs pull` in it gets them, or `hf download`"
        return CheckpointError, f"has pointers of Git LFS in place of the weights ({pointers[0]})", f"{fetch}."
    if is_model(path):
        return None
    if "adapter_config.json" in names:
        base = _json(path / "adapter_config.json").get("base_model_name_or_path", "a model")
        merge = f"peft.AutoPeftModelForCausalLM.from_pretrained({str(path)!r}).merge_and_unload().save_pretrained(DIR)"
        return UnsupportedModel, f"is an adapter (LoRA) for {base}", f"Merge it into that model: {merge}."
    if near := list(dict.fromkeys(_near(path))):
        return CheckpointError, f"has {_missing(names)}", f"A model is in {_listed(near)}: give that folder."
    weights = [name for name in names if name not in _NO_WEIGHTS]
    for one in FORMATS:
        if file := next((name for p in one.files for name in weights if fnmatch(name.lower(), p)), None):
            return UnsupportedModel, f"has {file}: {one.found}", _advice(one, path / file, role, config)
    if any(path.glob(".cache/huggingface/download/**/*.incomplete")):
        return CheckpointError, f"has {_missing(names)}: a download did not end", "Run `hf download` again."
    other = next((name for name in names if name.endswith(".safetensors") and name not in _WEIGHTS), None)
    found = f"has {_missing(names)}" + (f", only {other}" if other else "")
    return CheckpointError, found, f"`hf download ORG/NAME --local-dir {path}` gets all files of a model."


def _file(path: Path, role: str) -> Problem | None:
    folder = path.parent
    if _begins(path).startswith(b"GGUF"):
        return None
    if path.suffix == ".gguf":
        return CheckpointError, "does not begin as a GGUF file does", "It may be damaged, or a pointer of Git LFS."
    if path.name == CONFIG or path.suffix in (".safetensors", ".json"):
        instead = f"Give its folder: {folder}." if is_model(folder) else "One file is no model: config.json is needed."
        return CheckpointError, "is a file", instead
    begins = _begins(path)
    named = [one for one in FORMATS if any(fnmatch(path.name.lower(), p) for p in one.files)]
    for one in named or [one for one in FORMATS if one.magic and begins.startswith(one.magic)]:
        return UnsupportedModel, f"is a file: {one.found}", _advice(one, path, role, {})
    return CheckpointError, "is a file", ""


def _nothing(given: str, path: Path) -> Problem:
    for one in NAMES if not path.is_absolute() else ():
        if match := re.fullmatch(one.pattern, given):
            repo = match.groupdict().get("repo")
            return _hub(repo, one) if repo else (one.error, f"is {one.found}", one.instead)
    siblings = [entry.name for entry in _folders(path.parent)]
    near = difflib.get_close_matches(path.name, siblings, n=1)
    return CheckpointError, "is not a directory", f"Did you mean {path.parent / near[0]}?" if near else ""


def _hub(repo: str, name: Name) -> Problem:
    """A repository of the Hub, which may be here already."""
    if inside := re.search(rf"(?:^|[-_./])({_QUANTISED})(?=$|[-_.])", repo, re.IGNORECASE):
        origin = _origin(None, repo.split("/")[1])
        if inside[1].upper() == "GGUF":
            fetch = f"`hf download {repo} FILE.gguf --local-dir DIR` gets one of its files"
            return CheckpointError, f"is {name.found}", f"{fetch}: give its path."
        format = f"{inside[1]}, which is not read"
        return UnsupportedModel, f"is {name.found} in {format}", _ORIGINAL.format(origin=origin)
    cached = list(_snapshots(_hub_cache() / f"models--{repo.replace('/', '--')}"))
    have = f"It is downloaded already: {_listed(cached)}." if cached else ""
    return CheckpointError, f"is {name.found}", have or f"`hf download {repo} --local-dir DIR` gets it from the Hub."


def is_model(folder: Path) -> bool:
    return os.path.isfile(folder / CONFIG) and any(os.path.isfile(folder / name) for name in _WEIGHTS)


def _near(path: Path) -> Iterator[Path]:
    """Folders of models around one that is none: snapshots of a cache of the Hub's, what lies below, the one above."""
    above = list(path.resolve().parents[:2])
    for folder in (path, *above):
        yield from _snapshots(folder)
    level = [path]
    for _ in range(3):
        level = [child for folder in level[:64] for child in _folders(folder)]
        for folder in level:
            yield from _snapshots(folder)
        yield from filter(is_model, level)
    yield from filter(is_model, above)


def _snapshots(repo: Path) -> Iterator[Path]:
    """Those of models--ORG--NAME in a cache of the Hub's, the one that is `main` first."""
    heads = {head.read_text().strip() for head in (repo / "refs").glob("main")}
    found = [folder for folder in _folders(repo / "snapshots") if is_model(folder)]
    yield from sorted(found, key=lambda folder: (folder.name not in heads, folder.name))


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(entry for entry in path.iterdir() if os.path.isdir(entry) and not entry.name.startswith("."))
    except OSError:
        return []


def _hub_cache() -> Path:
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub").expanduser()


def _config(folder: Path) -> Mapping[str, Any]:
    return _json(folder / CONFIG)


def _json(path: Path) -> Mapping[str, Any]:
    """An object of a file; what is none is left to whoever reads it in earnest."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _quantised(config: Mapping[str, Any]) -> str | None:
    how = config.get("quantization_config")
    read = isinstance(how, dict) and how.get("quant_method") in _core.compressions()
    how = how or config.get("compression_config")
    if isinstance(how, dict) and not read:
        bits = how.get("bits") or next((n for n in (4, 8) if how.get(f"load_in_{n}bit")), None)
        return f"has weights that are packed by {how.get('quant_method', 'something')}" + (
            f" ({bits} bits)" if bits else ""
        )
    mlx = config.get("quantization")
    if isinstance(mlx, dict) and "group_size" in mlx:
        return f"has weights that are packed by MLX ({mlx.get('bits')} bits)"
    return None


def _is_pointer(path: Path) -> bool:
    return _begins(path).startswith(b"version https://git-lfs")


def _begins(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(32)
    except OSError:
        return b""


def _missing(names: list[str]) -> str:
    lacks = [] if CONFIG in names else [CONFIG]
    lacks += [] if set(names) & set(_WEIGHTS) else [WEIGHTS]
    return "no " + " and no ".join(lacks)


def _listed(paths: list[Path]) -> str:
    return ", ".join(map(str, paths[:3])) + (f", and {len(paths) - 3} more" if len(paths) > 3 else "")


def _origin(known: Any, name: str) -> str:
    """The repository of the checkpoint that something was made of, as far as names show."""
    if isinstance(known, str) and re.fullmatch(_HUB, known) and not _SUFFIX.search(known):
        return known
    name = _SUFFIX.sub("", re.sub(r"^models--[\w.-]+?--", "", name))
    return f"ORG/{name or 'NAME'}"


def _advice(one: Format, file: Path, role: str, config: Mapping[str, Any]) -> str:
    its = {"folder": str(file.parent), "file": str(file), "name": file.name}
    origin = _origin(config.get("_name_or_path"), file.stem if one.files[0] == "*.gguf" else file.parent.name)
    return one.instead.format(**its, origin=origin, save=_SAVE[role].format(**its))
