"""The public entry: load a checkpoint, generate from it. Only wires the parts together."""

from __future__ import annotations

import logging
import secrets
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from . import _core
from .draft.draft_spec import DRAFTER_NAMES, TRIMMED, DraftSpec, resolve
from .draft.sources import DRAFTERS, numbers
from .draft.tree_rule import MAX_DRAFT
from .errors import InternalError, InvalidArgument, InvalidOption
from .files.converted import in_cache
from .files.folders import write_whole
from .files.model_files import ModelFiles, open_model_files
from .files.model_folder import check_config, find
from .files.safetensors_io import WEIGHTS
from .gpu.device import drafter_kernels, place
from .options.drafting import Draft
from .options.fields import SAMPLER, TO_THE_END
from .options.generate_options import GenerateOptions, LoadOptions, names, resolve_names, show_options
from .options.generation_config import Defaults, read_defaults
from .running.director import Director, EngineMeasured, native
from .running.engine import Engine
from .running.policies import Policies, Policy
from .running.prefix_files import PrefixFiles
from .running.result import Result
from .running.stats import Stats
from .running.stream import Stream
from .running.trace import Trace
from .running.transcript import Transcript
from .search.used_tokens import UsedTokens, draft_tokens
from .text.corpus import Corpora
from .text.detokenizer import Detokenizer
from .text.grammar import Grammar, Grammars
from .text.prompt import known_ids, token_ids
from .text.stops import Stopper
from .text.tokenizer import Tokenizer

_log = logging.getLogger("swiftk")
Prepared = tuple[np.ndarray, GenerateOptions, tuple[DraftSpec, ...], Grammar | None]  # a text that may start
# Options of a text that say how its prompt is read.
_PROMPT = (
    *("parse_special", "add_special_tokens"),
    *("add_generation_prompt", "continue_final_message", "chat_template_kwargs"),
)
_REPORT = 2.0  # seconds between two lines of the log about a load


def load(model_dir: str | Path, *, progress: Callable[[int, int], Any] | None = None, **options: Any) -> LM:
    """Loads a Hugging Face folder. progress(done, total) receives bytes, those of copies included; if it returns
    False, the load is cancelled. Where a model is converted first (help(swiftk.LoadOptions), memory), the counts begin
    anew after that; a progress with a method stage(words) is told so.

    A GPU needs kernels for its architecture and the model's shape. `pack` is a file that `swiftk pack` made. Without it
    the kernels are built, which takes some ten seconds, and cached.

    Drafts read a few-bit copy of the weights, which takes a quarter (int4) of their memory. The upper bytes of float16
    weights serve as a copy that takes none. help(swiftk.LoadOptions) explains each option.
    """
    chosen = LoadOptions(**resolve_names(LoadOptions, options))
    return _load(open_model_files(find(model_dir)), chosen, progress)


def load_tensors(folder: Path, tensors: Mapping[str, Any], owner: Any, options: Mapping[str, Any]) -> LM:
    """A model whose config.json is in the folder, and whose weights are in memory: (dtype, shape, address, bytes) by
    name, which last as long as `owner`. options: load()'s."""
    check_config(folder, "hf")
    return _load(open_model_files(folder), LoadOptions(**resolve_names(LoadOptions, options)), None, tensors, owner)


def _load(
    files: ModelFiles,
    options: LoadOptions,
    progress: Callable[[int, int], Any] | None,
    tensors: Mapping[str, Any] | None = None,
    owner: Any = None,
) -> LM:
    if not (progress is None or callable(progress)):
        raise InvalidOption(f"[load] progress={progress!r}, want a function of (done, total)")
    defaults, folder = read_defaults(files), files.path
    copies = options.draft_weights
    chosen, kernels = place(folder, options.device, options.dtype, options.pack, draft_weights=copies)
    drafters = [find(one, role="drafter") for one in options.drafter]
    made = () if options.drafter_pack else drafters
    built = [drafter_kernels(one, folder, options.dtype, chosen, draft_weights=copies) for one in made]
    beside = options.drafter_pack or list(chain.from_iterable(built))
    tokenizer = Tokenizer(options.tokenizer or files, options.chat_template)
    if options.memory:
        tokenizer.keep()
    used = UsedTokens(files)
    progress = progress or LoggedProgress("loading", folder)
    trimmed = draft_tokens(options.draft_vocab, chosen, used, tokenizer, defaults.eos_token_ids)
    loading = native_options(options, drafters, trimmed)
    source = folder
    if chosen == "cpu" and not tensors:
        source = _in_reach(files, options, loading, progress)
    model = _core.Model(
        str(source),
        **loading,
        device=chosen,
        pack=kernels,
        drafter_packs=beside,
        progress=progress,
        tensors=dict(tensors or {}),
        owner=owner,
    )
    most = model.config["max_position"]
    if options.context and options.context > most:
        raise InvalidArgument(f"[load] context is {options.context}, want 2..{most} (the model's)")
    if options.tokenizer and (size := len(tokenizer.vocabulary())) > (most := model.config["vocab_size"]):
        raise InvalidArgument(f"[load] the tokenizer of {options.tokenizer} has {size} tokens, the model {most}")
    lm = LM(files, model, tokenizer, defaults, options, used)
    lm.source = source
    lm.open_prefixes(Path(kernels) if kernels else None)
    for kind, drafter in zip(model.drafters, drafters, strict=True):
        if kind == "model":
            lm.tokenizer.must_equal(Tokenizer(drafter))
    _log.info("loaded %s: %s", folder, _words(lm))
    return lm


def _words(lm: LM) -> str:
    """A model that was loaded, in a line of the log."""
    model = lm.model
    streamed = model.memory["streamed"]
    words = [
        f"{model.config['model_type']}, {model.config['num_layers']} layers",
        f"{model.dtype} weights {model.weight_bytes / 1e6:.0f} MB",
        *(f"{name} {size / 1e6:.0f} MB" for name, size in model.copies.items()),
        *([f"head trimmed to {model.draft_tokens} tokens"] if model.draft_tokens else []),
        *([f"drafter ({', '.join(model.drafters)}) {model.drafter_bytes / 1e6:.0f} MB"] if model.drafters else []),
        f"{model.isa} kernels, {model.threads} threads, context {lm.context}",
    ]
    if streamed:
        kept = (model.weight_bytes - streamed) / 1e6
        words.insert(2, f"of these {kept:.0f} MB in memory and {streamed / 1e6:.0f} MB read from disk for each pass")
    return ", ".join(words)


def native_options(options: LoadOptions, drafters: Sequence[Path], draft_tokens: Sequence[int]) -> dict[str, Any]:
    """What _core.Model and _core.survey take of options. drafters: folders that find() accepted; draft_tokens: of a
    trimmed head."""
    return {
        "dtype": options.dtype,
        "kv_dtype": options.kv_dtype,
        "isa": options.isa or "",
        "threads": options.threads or 0,
        "draft_weights": options.draft_weights,
        "draft_tokens": draft_tokens,
        "draft_memory": options.draft_memory or 0,
        "drafters": [str(one) for one in drafters],
        "memory": options.memory or 0,
        "kv_memory": options.kv_memory or 0,
        "context": options.context or 0,
        "sequences": options.max_sequences,
    }


def _in_reach(files: ModelFiles, options: LoadOptions, loading: dict[str, Any], progress: Any) -> Path:
    """Where the weights are loaded from: where they do not fit into memory, a converted model, which is made first.
    `loading` then changes as that model wants it."""
    found = _core.survey(str(files.path), **loading)
    plan = found["memory"]
    needs = sum(size for part, size in plan.items() if part not in ("limit", "streamed"))
    if not plan["streamed"] or found["converted"] or needs > plan["limit"]:  # the last is an error of the load
        return files.path

    def make(path: Path, copies: str) -> None:
        kept = {"dtype": options.dtype, "threads": options.threads, "isa": options.isa}
        _stage(progress, f"converting {files.path.name}")
        convert(files.path, path, progress=progress, draft_weights=copies, **kept)
        _stage(progress, f"loading {files.path.name}")

    path = in_cache(files, options.dtype, found, make)
    loading["dtype"] = loading["draft_weights"] = "auto"
    if not found["config"]["tied_head"]:
        loading["draft_tokens"] = ()  # the rows of its head are in panels
    return path


def convert(
    model_dir: str | Path,
    out: str | Path,
    *,
    force: bool = False,
    progress: Callable[[int, int], Any] | None = None,
    **options: Any,
) -> Path:
    """Writes a model with its weights as they lie in memory once loaded, few-bit copies included, so that loading what
    was written packs nothing: processes that load it share its pages. Returns where it is.

    A GGUF file becomes a GGUF file, a folder a folder, with the same metadata and tokenizer. Only swiftk reads the
    result, and only a build whose panels are laid out alike; others say so. Matrices are packed and written one after
    another, so the model may be larger than memory. options: load()'s dtype, draft_weights and draft_memory, which
    later loads cannot change, threads and isa. Copies that draft_weights names are written even if they do not fit in
    memory; "auto" goes by the memory of this machine. progress: as load()'s, over the bytes of the file. Raises
    InvalidArgument where `out` is there already, unless `force` replaces it, and CheckpointError where the disk is full
    or cannot be written; no part of the weights is then left.
    """
    folder, target = find(model_dir), Path(out).expanduser()
    files = open_model_files(folder)
    chosen = LoadOptions(**resolve_names(LoadOptions, options))
    weights = target if folder.is_file() else target / WEIGHTS
    if target.exists() and target.samefile(folder):
        raise InvalidArgument(f"[convert] {target} is the model itself, want another place")
    if target.exists() and target.is_file() != folder.is_file():
        raise InvalidArgument(f"[convert] {target} is there, want {'a file' if folder.is_file() else 'a folder'}")
    if weights.exists() and not force:
        raise InvalidArgument(f"[convert] {weights} is there already; force replaces it")
    if folder.is_dir():
        for name, data in files.settings().items():
            write_whole(target / name, data)
    _core.convert(
        str(folder),
        str(target),
        dtype=chosen.dtype,
        draft_weights=chosen.draft_weights,
        draft_memory=chosen.draft_memory or 0,
        isa=chosen.isa or "",
        threads=chosen.threads or 0,
        progress=progress or LoggedProgress("converting", folder),
    )
    return target


def _stage(progress: Any, words: str) -> None:
    """Tells a progress, if it wants to know, that other work begins."""
    if stage := getattr(progress, "stage", None):
        stage(words)


class LoggedProgress:
    """Tells the log how far loading or converting has come, where it takes long."""

    def __init__(self, doing: str, folder: Path) -> None:
        self._reported = perf_counter()
        self.stage(f"{doing} {folder}, copies in few bits included")

    def stage(self, words: str) -> None:
        self._what = words

    def __call__(self, done: int, total: int) -> None:
        if perf_counter() - self._reported > _REPORT:
            self._reported = perf_counter()
            _log.info("%s: %.0f %%", self._what, 100 * done / total)


def generate(
    model_dir: str | Path,
    prompt: Any,
    *,
    stream: bool = False,
    n: int = 1,
    progress: Callable[[int, int], Any] | None = None,
    **options: Any,
) -> Any:
    """Loads a model and generates once. Takes the options of load() and of LM.generate(). For more than one text, keep
    the LM that load() returns."""
    loading = {name: options.pop(name) for name in names(LoadOptions) if name in options}
    GenerateOptions.parse(options)  # a wrong option shows before minutes of loading
    return load(model_dir, progress=progress, **loading).generate(prompt, stream=stream, n=n, **options)


class LM:
    """A loaded model. Any number of texts may run at a time, from any thread. A text that begins like an earlier one
    reuses its keys and values."""

    def __init__(
        self,
        files: ModelFiles,
        model: Any,
        tokenizer: Tokenizer,
        defaults: Defaults,
        options: LoadOptions | None = None,
        used: UsedTokens | None = None,
    ) -> None:
        self.files, self.model = files, model
        self.source = files.path  # of the weights; else than these where a model was converted first
        self.tokenizer, self.defaults = tokenizer, defaults
        self._options = options or LoadOptions()
        self._engine = Engine(self._make_engine)
        self._session: Any = None
        self._reported: set[str] = set()
        self._layers = int(model.config["num_layers"])
        self._copy_bytes = sum(model.copies.values()) + model.trimmed_bytes
        loaded = zip(DRAFTER_NAMES, model.drafters, self._options.drafter or (), strict=False)
        self._drafter_words = {name: f"{name} ({kind}, {Path(path).name})" for name, kind, path in loaded}
        trimmed = (TRIMMED,) if model.draft_tokens else ()
        self._forms = (*model.copies, *DRAFTER_NAMES[: len(model.drafters)], *trimmed)
        self._used = used if model.trimming_pays and self._options.draft_vocab == "auto" else None
        if self._used:
            weakref.finalize(self, self._used.save)
        self.prefix_files: PrefixFiles | None = None
        self._corpora = Corpora(tokenizer)
        if self._options.corpus:
            self._corpora.of(self._options.corpus)
        self._grammars = Grammars(tokenizer, int(model.config["vocab_size"]), defaults.eos_token_ids)
        self.policies = Policies(
            files, model, EngineMeasured(lambda: self._engine.native), self._forms, self._options.drafter
        )

    def __repr__(self) -> str:
        if self.model is None:
            return f"<swiftk.LM {self.folder.name}, closed>"
        return (
            f"<swiftk.LM {self.folder.name}: {self.model.dtype} on {self.model.device or 'cpu'} ({self.model.isa}), "
            f"context {self.context}>"
        )

    def __enter__(self) -> LM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancels all texts and frees the model's memory."""
        if self.prefix_files:
            self.prefix_files.close()
        self._engine.close()
        if self._used:
            self._used.save()
        self._session = self.model = None

    @property
    def folder(self) -> Path:
        return self.files.path

    @property
    def config(self) -> dict[str, Any]:
        return dict(self._model.config)

    @property
    def context(self) -> int:
        """Maximum number of tokens of prompt and text together."""
        if self._options.context:
            return int(self._options.context)
        unbounded = self._model.device == "cpu" and not self._model.memory["limit"]
        return int(self._model.config["max_position"] if unbounded else self._engine.native.context)

    @property
    def drafters(self) -> list[Path]:
        """Folders of the heads and draft models that were loaded beside the model."""
        return list(self._options.drafter)

    @property
    def session(self) -> Any:
        """A native session, for programs that run the phases (prefill, draft, verify, commit) themselves."""
        if self._session is None:
            self._session = _core.Session(self._model, context=self._options.context or 0)
        return self._session

    def generate(self, prompt: Any, *, stream: bool = False, n: int = 1, **options: Any) -> Any:
        """Returns a Result, or with stream=True a Stream of Events. The prompt is text, token ids, or chat messages.
        With n > 1 it returns a list of n, whose seeds are seed, seed + 1, ...; they share the prompt's pass.

        max_new_tokens is by default what the model's generation_config.json says, else 256. Strings such as "</s>" in a
        text prompt stay text, unlike in transformers; parse_special=True makes them special tokens. In chat messages
        they always are. help(swiftk.GenerateOptions) explains each option."""
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise InvalidArgument(f"[generate] n={n!r}, want a number of texts, 1 or more")
        streams = self._submit([prompt] * n, [{}] * n, {**options, "stream": stream}, count=True)
        if stream:
            return streams[0] if n == 1 else streams
        results = _wait(streams)
        return results[0] if n == 1 else results

    def submit(self, prompt: Any, **options: Any) -> Stream:
        """Returns a Stream at once. Any number may be open, from any thread. A thread that waits for one of them
        computes the next step of all."""
        return self._submit([prompt], [{}], options)[0]

    def submit_many(self, prompts: Sequence[Any], each: Sequence[Mapping[str, Any]]) -> list[Stream]:
        """A Stream for each prompt. each: the options of each prompt. An error starts none of them."""
        return self._submit(prompts, each, {})

    def prepare(self, prompts: Sequence[Any], each: Sequence[Mapping[str, Any]]) -> list[Prepared]:
        """The first half of submit_many(): all that depends on what was asked for, and none of the engine. A prompt
        that is given several times is tokenised once. start() does the rest."""
        return self._prepare(prompts, each, {})

    def start(self, prepared: Sequence[Prepared]) -> list[Stream]:
        """A Stream of each text that prepare() made ready: all of them, or an error and none."""
        streams: list[Stream] = []
        try:
            begun: set[bytes] = set()
            for one in prepared:
                prompt = one[0].tobytes()
                streams.append(self._stream(*one, again=prompt in begun))
                begun.add(prompt)
        except BaseException:
            for one in streams:
                one.close()
            raise
        return streams

    def step(self) -> None:
        """Computes one round of all running texts, for programs that read many streams with Stream.poll()."""
        self._engine.step()

    @property
    def last_round(self) -> dict[str, Any]:
        """Figures of the engine's last round: texts, rows, tokens, seconds, and how many texts waited or gave way."""
        return self._engine.native.last

    @property
    def kv(self) -> dict[str, int]:
        """Memory of keys and values as of the last round: `bytes`, the most that they may take, `used_bytes` of texts
        under way, `resident_bytes`."""
        return dict(self._engine.native.kv)

    def generate_many(
        self, prompts: Sequence[Any], *, each: Sequence[Mapping[str, Any]] | None = None, **options: Any
    ) -> list[Result]:
        """A Result for each prompt; all run together. each: options for each prompt, which override the common ones."""
        if isinstance(prompts, str) or not isinstance(prompts, Iterable):
            raise InvalidArgument(f"[generate_many] got {type(prompts).__name__}, want a list of prompts")
        prompts = list(prompts)
        each = [{}] * len(prompts) if each is None else list(each)
        if len(each) != len(prompts) or not all(isinstance(its, Mapping) for its in each):
            raise InvalidArgument(
                f"[generate_many] each={each!r}, want {len(prompts)} mappings of options, one a prompt"
            )
        return _wait(self._submit(prompts, each, options))

    def _submit(
        self,
        prompts: Sequence[Any],
        each: Sequence[Mapping[str, Any]],
        common: Mapping[str, Any],
        count: bool = False,
    ) -> list[Stream]:
        """All prompts are looked at before the first is submitted: an error leaves nothing under way."""
        return self.start(self._prepare(prompts, each, common, count))

    def _prepare(
        self,
        prompts: Sequence[Any],
        each: Sequence[Mapping[str, Any]],
        common: Mapping[str, Any],
        count: bool = False,
    ) -> list[Prepared]:
        """With `count` the seeds count up from the first one's."""
        asked: list[Prepared] = []
        known: dict[tuple[Any, ...], np.ndarray] = {}  # token ids, by the prompt's identity and what they depend on
        for i, (prompt, its) in enumerate(zip(prompts, each, strict=True)):
            o = GenerateOptions.parse({**common, **its})
            if count and i > 0:
                o = replace(o, seed=((asked[0][1].seed or 0) + i) % 2**64)
            if o.seed is None:
                o = replace(o, seed=secrets.randbits(48))
            skips = self._skips(o)
            how = {name: getattr(o, name) for name in _PROMPT}
            key = (id(prompt), repr(how))
            if key not in known:
                known[key] = self.prompt_ids(prompt, **how)
            ids = known[key]
            self._check(o)
            if o.continued_tokens >= len(ids):
                raise InvalidArgument(
                    f"[generate] continued_tokens={o.continued_tokens}, want fewer than the prompt's {len(ids)} tokens"
                )
            grammar = self._grammars.of(o.response_format, _continued(ids, o))
            asked.append((ids, o.filled(self.defaults, len(ids) - o.continued_tokens), skips, grammar))
        return asked

    def prompt_ids(self, prompt: Any, parse_special: bool = False, **how: Any) -> np.ndarray:
        """Ids [n] int32 of a prompt, as generate() reads it with these options."""
        vocab, bos = self.config["vocab_size"], self.defaults.bos_token_id
        return token_ids(prompt, self.tokenizer, vocab, self.context, parse_special, bos, **how)

    def encode(self, text: str, parse_special: bool = False) -> list[int]:
        """Token ids of a prompt as generate() reads it, BOS included where the checkpoint adds one."""
        return self.tokenizer.encode(text, parse_special=parse_special)

    def decode(self, tokens: Any) -> str:
        """The text of token ids, without special tokens. An id that the model does not have is an InvalidArgument."""
        return self.tokenizer.decode(known_ids(tokens, self.config["vocab_size"], "decode").tolist())

    def cancel(self) -> None:
        """From any thread: all running texts end, and keep the tokens that they have."""
        self._engine.cancel()

    def give_back(self) -> None:
        """Returns memory of keys and values that no running text holds to the operating system, cached prefixes
        included. Without it half of the maximum stays for prompts that begin alike. A GPU keeps its memory."""
        if self._engine.started:
            self._engine.native.give_back()

    def forget_texts(self) -> None:
        """Drops cached keys and values of texts that have ended, and what sources remember of them. Statistics of
        drafting stay."""
        if self._engine.started:
            self._engine.native.forget_texts()

    def forget(self) -> None:
        """Drops the statistics of drafting with this model, what sources remember of texts, and cached keys and values.
        Running texts are cancelled."""
        self._engine.close()
        self.policies.forget()
        if self._used:
            self._used.forget()

    def open_prefixes(self, pack: Path | None) -> None:
        """Reads and writes the folder that the option prefix_cache names, from now on. pack: the GPU's kernels."""
        folder, most = self._options.prefix_cache, self._options.prefix_cache_size
        if folder is None:
            return
        of = [self.files.fingerprint.encode(), pack.read_bytes() if pack else b""]
        self.prefix_files = PrefixFiles(Path(folder), int(most), self._engine.native.model_digest(), of)
        weakref.finalize(self, self.prefix_files.close)

    @property
    def _model(self) -> Any:
        if self.model is None:
            raise InvalidArgument(f"[lm] {self.folder.name} is closed; load it again")
        return self.model

    def _make_engine(self) -> Any:
        o = self._options
        native = _core.Engine(
            self._model, context=o.context or 0, sequences=o.max_sequences, kv_memory=o.kv_memory or 0
        )
        self.policies.restore(native)
        return native

    def _check(self, o: GenerateOptions) -> None:
        if o.stop and not self.tokenizer.available:
            raise InvalidArgument(
                f"[generate] stop={list(o.stop)!r} needs a tokenizer, and {self.folder} has none; use stop_token_ids"
            )
        vocab = self.model.config["vocab_size"]
        for name, tokens in (("stop_token_ids", o.stop_token_ids), ("logit_bias", dict(o.logit_bias))):
            outside = [token for token in tokens if token >= vocab]
            if outside:
                raise InvalidArgument(f"[generate] {name} has {outside[0]}, want 0..{vocab - 1}")
        if o.features is not None and DRAFTER_NAMES.index(o.features) >= len(self.model.drafters):
            have = ", ".join(DRAFTER_NAMES[: len(self.model.drafters)]) or "none"
            raise InvalidArgument(f"[generate] features={o.features!r}, the model has {have}")

    def _skips(self, o: GenerateOptions) -> tuple[DraftSpec, ...]:
        """Of the plans that the options name, by what they leave out or read."""
        draft = o.draft
        if draft is None:
            return ()
        if not DRAFTERS[draft.drafter].beside:
            skip = resolve(draft.skip, self._layers, self._forms)
            return () if skip is None else (skip,)
        loaded = list(zip(DRAFTER_NAMES, self._model.drafters, strict=False))
        skips = tuple(DraftSpec(weights=name) for name, kind in loaded if kind == draft.drafter)
        if not skips:
            have = ", ".join(kind for _, kind in loaded) or "none"
            raise InvalidArgument(
                f"[generate] drafter={draft.drafter!r}, the model has {have}; load(..., drafter=FOLDER) loads one"
            )
        return skips

    def _spell(self, token: int) -> str:
        return repr(self.tokenizer.decode([token])) if self.tokenizer.available else str(token)

    def _transcript(self, ids: np.ndarray, o: GenerateOptions) -> Transcript:
        decode = partial(self.tokenizer.decode, skip_special_tokens=o.skip_special_tokens)
        kept = o.keep_special_tokens
        continued = _continued(ids, o)
        stopper = Stopper(
            self._budget(ids, o) + len(continued),
            self._stop_ids(o),
            o.stop,
            Detokenizer(decode, ids[: len(ids) - len(continued)].tolist()) if self.tokenizer.available else None,
            include_stop=o.include_stop_str_in_output,
            hidden=self.tokenizer.added(special=True) if o.skip_special_tokens and (o.stop or kept) else {},
            kept=kept,
            min_tokens=o.min_tokens,
        )
        for token in continued:
            stopper.push(token)
        text = Transcript(stopper, o.logprobs is not None)
        text.recorder.prompt_tokens = len(ids)
        return text

    def _stop_ids(self, o: GenerateOptions) -> set[int]:
        return {*o.stop_token_ids, *(() if o.ignore_eos else self.defaults.eos_token_ids)}

    def _budget(self, ids: np.ndarray, o: GenerateOptions) -> int:
        """Tokens that may follow."""
        room = self.context - len(ids)
        return room if o.max_new_tokens == TO_THE_END else max(0, min(o.max_new_tokens - o.continued_tokens, room))

    def _sampling(self, o: GenerateOptions) -> _core.Sampling:
        given = {name: getattr(o, name) for name in SAMPLER} | {"top_k": min(o.top_k, self.config["vocab_size"])}
        return _core.Sampling(**given, stop_ids=sorted(self._stop_ids(o)))

    def _stream(
        self,
        ids: np.ndarray,
        o: GenerateOptions,
        skips: tuple[DraftSpec, ...],
        grammar: Grammar | None,
        again: bool = False,
    ) -> Stream:
        """again: a text of the same prompt was submitted with it."""
        text, policy = self._transcript(ids, o), self.policies.take(o, skips)
        prefixes = self.prefix_files if o.prompt_logprobs is None else None
        end = len(ids) + max(self._budget(ids, o), 1)
        if prefixes:
            text.recorder.from_files = prefixes.fetch(self._engine.native, ids, end)
        ticket = self._engine.submit(self._request(o, policy, ids, grammar))
        optimizer = policy.optimizer
        tried = optimizer.trim() if optimizer else 0

        def finish() -> Result:
            engine = ticket.engine
            if policy.drafting != "off":
                self.policies.keep_planner(engine)
            if optimizer:
                optimizer.finish()
                self.policies.keep(o, optimizer)
            self.policies.give(policy)
            if prefixes and not again:
                prefixes.keep(engine, ids, text.recorder.cached, end)
            if self._used:
                self._used.add(chain(ids[text.recorder.cached :].tolist(), (e.token for e in text.events)))
            self._report_fallbacks(engine)
            candidates = tuple(optimizer.trace) if optimizer else ()
            pieces = tuple(e.text for e in text.events)
            rounds = tuple(text.recorder.rounds)
            trace = Trace(self.folder.name, self._layers, pieces, rounds, candidates, tried, self._drafter_words)
            return self._result(ids, o, text, self._stats(o, policy, text, engine, trace), trace)

        return Stream(ticket, text, finish, Director(policy, ids), self._spell if o.explain else None)

    def _request(self, o: GenerateOptions, policy: Policy, ids: np.ndarray, grammar: Grammar | None) -> _core.Request:
        draft = o.draft or Draft()
        corpus = self._corpus(draft) if o.draft else None  # plain decoding reads none
        return _core.Request(
            prompt=ids,
            sampling=self._sampling(o),
            max_new_tokens=max(self._budget(ids, o), 1),
            continued=o.continued_tokens,
            acceptance=o.acceptance,
            logprobs=o.logprobs or 0,
            prompt_logprobs=-1 if o.prompt_logprobs is None else o.prompt_logprobs,
            drafting=policy.drafting,
            plans=policy.plans,
            skips=[native(skip) for skip in policy.skips],
            rule=_core.TreeRule(**policy.rule.arguments()) if policy.rule else None,
            sources=numbers(draft.drafter, grammar=grammar is not None, corpus=corpus is not None),
            constraint=grammar,
            settings=_core.SourceSettings(**draft.sources.arguments(), corpus=corpus),
            recall=o.recall,
            max_draft=policy.rule.max_draft if policy.rule else draft.max_draft or MAX_DRAFT,
            always=draft.always,
            kvq=o.kvq,
            explain=o.explain,
            outcomes=policy.directed,
            reports=-1 if o.features is None else DRAFTER_NAMES.index(o.features),
        )

    def _corpus(self, draft: Draft) -> _core.sources.Corpus | None:
        path = draft.sources.corpus or self._options.corpus
        if path and draft.drafter in ("auto", "corpus"):
            return self._corpora.of(path)
        if draft.drafter == "corpus":
            raise InvalidArgument("[generate] drafter='corpus' has no text, want sources={'corpus': PATH}")
        return None

    def _stats(self, o: GenerateOptions, policy: Policy, text: Transcript, native: Any, trace: Trace) -> Stats:
        last = next((r.skip for r in reversed(text.recorder.rounds) if r.skip is not None), None)
        named = policy.skips[0] if len(policy.skips) == 1 else last
        drafted_by = policy.optimizer.current.skip if policy.optimizer else named
        return text.recorder.finish(
            native.plain_seconds or None,
            reason_off=_reason_off(o, policy, text),
            skip=str(drafted_by) if drafted_by else None,
            plans=trace.plans,
            extra_memory_bytes=int(native.workspace_bytes) + self._copy_bytes,
            draft_weight_bytes=self._copy_bytes,
        )

    def _result(
        self,
        ids: np.ndarray,
        o: GenerateOptions,
        text: Transcript,
        stats: Stats,
        trace: Trace,
    ) -> Result:
        events = text.events
        result = Result(
            text="".join(trace.texts),
            tokens=[e.token for e in events],
            finish_reason=text.stopper.finish or "cancelled",
            logprobs=None if o.logprobs is None else [e.reported for e in events],
            prompt_logprobs=None if o.prompt_logprobs is None else text.prompt,
            stats=stats,
            seed=o.seed,
            prompt_tokens=ids.tolist(),
            drafted=[e.drafted for e in events],
            sources=[e.source for e in events],
            trace=trace,
        )
        if o.verify and result.finish_reason != "cancelled":
            self._compare(result, ids, o)
        return result

    def _report_fallbacks(self, native: Any) -> None:
        """Once each."""
        for line in native.fallbacks.splitlines():
            if line not in self._reported:
                self._reported.add(line)
                _log.warning("slower than it could be: %s", line)

    def _compare(self, result: Result, ids: np.ndarray, o: GenerateOptions) -> None:
        plain = replace(o, draft=None, verify=False)
        again = self._stream(ids, plain, (), self._grammars.of(o.response_format, _continued(ids, o))).wait().tokens
        for i, (drafted, plain) in enumerate(zip(result.tokens, again, strict=False)):
            if drafted != plain:
                raise InternalError(f"[verify] token {i}: {drafted} with drafts, {plain} without")
        if len(again) != len(result.tokens):
            raise InternalError(f"[verify] {len(result.tokens)} tokens with drafts, {len(again)} without")


def _reason_off(o: GenerateOptions, policy: Policy, text: Transcript) -> str | None:
    if o.draft is None:
        return "draft=None or speculate=False"
    if policy.drafting == "off":
        return "skip=None: nothing is skipped, so a draft step would cost as much as a target step"
    if not text.recorder.spec:
        return text.why_off or "the text ended before drafting began"
    return text.why_off or None


def _continued(ids: np.ndarray, o: GenerateOptions) -> list[int]:
    """Tokens of the prompt that are the text's own."""
    return ids[len(ids) - o.continued_tokens :].tolist()


def _wait(streams: Sequence[Stream]) -> list[Result]:
    """All of them, or none."""
    try:
        return [stream.wait() for stream in streams]
    except BaseException:
        for stream in streams:
            stream.close()
        raise


show_options(load, LoadOptions)
show_options(generate, GenerateOptions, LoadOptions)
for _function in (LM.generate, LM.submit, LM.generate_many):
    show_options(_function, GenerateOptions)
