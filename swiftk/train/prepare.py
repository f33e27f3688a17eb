"""All that comes before the first step: the folder of a run, its tokenizer, config.json and token file, each made once.

The folder is a Hugging Face checkpoint from the moment model.safetensors is in it; what training needs is in training/.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .. import _core
from ..errors import CheckpointError, InvalidArgument
from ..files.hf_folder import CONFIG, GENERATION, TOKENIZER_FILES
from ..files.model_files import open_model_files
from ..files.model_folder import find
from ..options.generation_config import read_defaults
from ..text.bpe import write_bpe
from . import texts, tokens
from .files import whole
from .settings import NEW_MODEL, Settings, flag
from .shape import Shape, new_config, read_shape


@dataclass(frozen=True, slots=True)
class Run:
    """A folder and what is trained there. Nothing in `settings` is left open but sizes a checkpoint decides."""

    folder: Path
    settings: Settings

    @property
    def training(self) -> Path:
        return self.folder / "training"

    @property
    def state(self) -> Path:
        return self.training / "state.safetensors"


def start(folder: Path, settings: Settings, threads: int, progress: tokens.Progress) -> Run:
    """A new run in a new folder, up to its first step. A mistake in what was asked leaves no folder behind."""
    if (folder / "training" / "run.json").is_file():
        raise InvalidArgument(f"[train] {folder} holds a run already, want --resume {folder} or another --out")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidArgument(f"[train] --out {folder} is there and not empty, want a new folder")
    texts.check([Path(name) for name in settings.data], texts.template_of(settings.field, settings.template))
    for f in fields(Settings):
        if settings.model and f.name in NEW_MODEL and getattr(settings, f.name) != f.default:
            raise InvalidArgument(f"[train] {flag(f)} is for a new model, want it left out with --model")
    run = Run(folder, _decided(settings, threads))
    _check_shape(run.settings)
    run.training.mkdir(parents=True)
    try:
        _write_json(run.training / "run.json", run.settings.to_dict())
        prepare(run, progress)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return run


def reopen(folder: Path, changes: dict[str, Any]) -> Run:
    """The run of a folder, perhaps with other settings of the machine."""
    path = folder / "training" / "run.json"
    if not path.is_file():
        raise CheckpointError(f"[resume] {folder} holds no run: {path} is missing, want the --out folder of one")
    try:
        settings = Settings.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"[resume] {path} cannot be read: {error}") from None
    return Run(folder, replace(settings, **changes))


def prepare(run: Run, progress: tokens.Progress) -> tuple[Shape, tokens.Tokens]:
    """Makes what is not there yet, in the order of what needs what, so that a killed run goes on where it was."""
    s = run.settings
    template = texts.template_of(s.field, s.template)
    files = [Path(name) for name in s.data]
    if not open_model_files(run.folder).has_tokenizer:
        _make_tokenizer(run, files, template)
    ends = read_defaults(s.model).eos_token_ids if s.model else ()
    encoder = tokens.Encoder.read(run.folder, ends[0] if ends else None)
    if not (run.folder / CONFIG).is_file():
        _make_config(run, encoder)
    shape = read_shape(run.folder, s.context)
    if encoder.size > shape.V:
        raise InvalidArgument(f"[train] the tokenizer has ids up to {encoder.size - 1}, want less than {shape.V}")
    where = run.training / "tokens"
    if not where.is_dir():
        texts.check(files, template)
        tokens.build(where, files, template, encoder, s.held_out, progress)
    return shape, tokens.read(where, s.context, s.held_out)


def _decided(s: Settings, threads: int) -> Settings:
    """What was left to depend on the model; paths absolute, as a run may resume elsewhere."""
    dtype, layers = "bfloat16", s.layers
    if s.model:
        find(s.model, "train")
        dtype = _core.kernel_shape(s.model)["dtype"]  # and any fault of config.json, by name
        layers = open_model_files(s.model).config["num_hidden_layers"]
    source = s.tokenizer or s.model
    if source and not open_model_files(source).has_tokenizer:
        raise InvalidArgument(f"[train] {source} has no tokenizer.json, want --tokenizer with a folder that has one")
    return replace(
        s,
        data=tuple(str(Path(name).resolve()) for name in s.data),
        model=s.model and str(Path(s.model).resolve()),
        tokenizer=s.tokenizer and str(Path(s.tokenizer).resolve()),
        layers=layers,
        rotation=s.rotation or (min(8, layers - 1) if s.model else layers - 1),
        dropout_schedule=s.dropout_schedule or ("constant" if s.model else "exp"),
        lr=(3e-5 if s.model else 1e-3) if s.lr is None else s.lr,
        threads=s.threads or threads,
        export_dtype=s.export_dtype or dtype,
    )


def _check_shape(s: Settings) -> None:
    """Before the data is read, which may take long."""
    if s.model:
        read_shape(Path(s.model), s.context)
        return
    with TemporaryDirectory() as name:
        (Path(name) / CONFIG).write_text(json.dumps(new_config(s, s.vocab, {})))
        read_shape(Path(name), s.context)


def _make_tokenizer(run: Run, files: list[Path], template: str) -> None:
    source = run.settings.tokenizer or run.settings.model
    if source is None:
        texts.check(files, template)
        write_bpe(run.folder, (p.text for path in files for p in texts.pieces(path, template)), run.settings.vocab)
        return
    settings = open_model_files(source).settings()
    for name in (one for one in TOKENIZER_FILES if one in settings):  # where the last one is there, all are
        with whole(run.folder / name) as partial:
            partial.write_bytes(settings[name])


def _make_config(run: Run, encoder: tokens.Encoder) -> None:
    s = run.settings
    if s.model:
        files = open_model_files(s.model)
        config = {**files.config, "torch_dtype": s.export_dtype}
        config.pop("dtype", None)
        generation = files.generation
    else:
        config = new_config(s, encoder.size, encoder.special)
        generation = {**encoder.special, "do_sample": False}
    if generation:
        _write_json(run.folder / GENERATION, generation)
    _write_json(run.folder / CONFIG, config)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    with whole(path) as partial:
        partial.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
