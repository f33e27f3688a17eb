"""The public entry: load a checkpoint, generate from it. Only wires the parts together."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from . import _core
from .decoding import Parts, SessionScorer, decode
from .detokenizer import Detokenizer
from .device import place
from .errors import CheckpointError, InternalError, InvalidArgument
from .generation_config import Defaults, read_defaults
from .options import GenerateOptions, LoadOptions
from .policies import Policies
from .prompt import token_ids
from .result import Event, Result, TokenLogprobs
from .skip import SkipSet, resolve
from .sources import DRAFTERS
from .stats import Recorder, Stats
from .stops import Stopper
from .tokenizer import Tokenizer
from .trace import Trace

_log = logging.getLogger("swiftk")


def load(
    model_dir: str | Path,
    *,
    device: str = "auto",
    dtype: str = "auto",
    threads: int | None = None,
    context: int | None = None,
    isa: str | None = None,
    pack: str | Path | None = None,
    draft_weights: str | Sequence[str] = "auto",
    draft_memory: int | None = None,
    progress: Callable[[int, int], Any] | None = None,
) -> LM:
    """Loads a checkpoint directory. progress(done, total) is told bytes; returning False cancels.

    A GPU needs kernels for its architecture and the model's shape: `pack` names a file that `swiftk pack` made; without
    it they are built, which takes some ten seconds, and cached.

    Copies of the weights in fewer bits draft faster, for a quarter (int4) of the weights' memory; the upper bytes of
    float16 weights do, for none: see LoadOptions.
    """
    options = LoadOptions(device, dtype, threads, context, isa, pack, draft_weights, draft_memory)
    folder = Path(model_dir).expanduser()
    if not folder.is_dir():
        raise CheckpointError(f"[load] {folder} is not a directory, want one with config.json and model.safetensors")
    defaults = read_defaults(folder)
    copies = options.draft_weights
    chosen, kernels = place(folder, options.device, options.dtype, options.pack, draft_weights=copies)
    model = _core.Model(
        str(folder),
        dtype=options.dtype,
        isa=options.isa or "",
        threads=options.threads or 0,
        device=chosen,
        pack=kernels,
        draft_weights=copies,
        draft_memory=options.draft_memory or 0,
        progress=progress,
    )
    lm = LM(folder, model, _core.Session(model, context=options.context or 0), Tokenizer(folder), defaults)
    _log.info(
        "loaded %s: %s, %d layers, %s weights %.0f MB%s, %s kernels, %d threads, context %d",
        folder,
        model.config["model_type"],
        model.config["num_layers"],
        model.dtype,
        model.weight_bytes / 1e6,
        "".join(f", {name} {size / 1e6:.0f} MB" for name, size in model.copies.items()),
        model.isa,
        model.threads,
        lm.context,
    )
    return lm


def generate(model_dir: str | Path, prompt: Any, **options: Any) -> Result | Stream:
    """Loads and generates once. For more than one text, keep what load() returns."""
    names = {field.name for field in fields(LoadOptions)} | {"progress"}
    loading = {name: options.pop(name) for name in list(options) if name in names}
    GenerateOptions.parse(options)  # a wrong option shows before minutes of loading
    return load(model_dir, **loading).generate(prompt, **options)


class Stream:
    """Events of a text as they are committed. Closing it early, or dropping it, frees the model for the next call."""

    def __init__(self, events: Iterator[Event]) -> None:
        self._events = events
        self._result: Result | None = None

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Event:
        try:
            return next(self._events)
        except StopIteration as end:
            self._result = end.value if end.value is not None else self._result
            raise StopIteration from None

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._events.close()  # type: ignore[attr-defined]

    @property
    def result(self) -> Result:
        """The finished text; an error before the last event."""
        if self._result is None:
            raise InvalidArgument("[stream] the text is not finished; read all events first")
        return self._result


class LM:
    """A loaded model with one session. Its cache carries over from call to call, as far as prompts agree."""

    def __init__(self, folder: Path, model: Any, session: Any, tokenizer: Tokenizer, defaults: Defaults) -> None:
        self.folder, self.model, self.session = folder, model, session
        self.tokenizer, self.defaults = tokenizer, defaults
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._told: set[str] = set()
        self.policies = Policies(folder, model)

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.model.config)

    @property
    def context(self) -> int:
        """Most tokens of prompt and text together."""
        return int(self.session.context)

    def generate(self, prompt: Any, *, stream: bool = False, **options: Any) -> Result | Stream:
        """A Result, or with stream=True an iterator of Events. The prompt is text, token ids, or chat messages."""
        asked = GenerateOptions.parse({**options, "stream": stream}).filled(self.defaults)
        if asked.seed is None:
            asked = replace(asked, seed=secrets.randbits(48))
        skip = resolve(_early_exit(asked), self.model.config["num_layers"], self.model.copies)
        ids = token_ids(prompt, self.tokenizer, self.model.config["vocab_size"], self.context)
        self._check(asked)
        events = Stream(self._run(ids, asked, skip))
        if stream:
            return events
        for _ in events:
            pass
        return events.result

    def encode(self, text: str) -> list[int]:
        """Token ids of a prompt, BOS included where the checkpoint adds one."""
        return self.tokenizer.encode(text)

    def decode(self, tokens: Any) -> str:
        return self.tokenizer.decode([int(t) for t in tokens])

    def cancel(self) -> None:
        """From another thread: the phase under way raises Cancelled."""
        self.session.cancel()

    def forget(self) -> None:
        """Drops what was learned about drafting with this model, and what drafters remember of texts; the next text
        starts from what is on disk."""
        with self._lock:
            self.policies.forget()
            self.session.forget_sources()

    def _check(self, o: GenerateOptions) -> None:
        if o.stop and not self.tokenizer.available:
            raise InvalidArgument(
                f"[generate] stop={list(o.stop)!r} needs a tokenizer, and {self.folder} has none; use stop_token_ids"
            )
        vocab = self.model.config["vocab_size"]
        outside = [t for t in o.stop_token_ids if t >= vocab]
        if outside:
            raise InvalidArgument(f"[generate] stop_token_ids has {outside[0]}, want 0..{vocab - 1}")

    def _run(self, ids: np.ndarray, o: GenerateOptions, skip: SkipSet | None) -> Iterator[Event]:
        """Events, then the Result as the generator's value. Holds the model while it lives."""
        me = threading.get_ident()
        if self._owner == me and self._lock.locked():
            raise InvalidArgument(
                "[generate] this model is still streaming in the same thread; read that stream to its end "
                "or close() it first"
            )
        with self._lock:
            self._owner = me
            try:
                result = yield from self._once(ids, o, skip)
                if o.verify:
                    self._compare(result, ids, o)
                return result
            finally:
                self._owner = None

    def _once(self, ids: np.ndarray, o: GenerateOptions, skip: SkipSet | None) -> Iterator[Event]:
        session = self.session
        session.clear_cancel()
        session.set_sampling(
            temperature=o.temperature,
            top_k=min(o.top_k, self.model.config["vocab_size"]),
            top_p=o.top_p,
            min_p=o.min_p,
            repetition_penalty=o.repetition_penalty,
            seed=o.seed,
            acceptance=o.acceptance,
        )
        session.set_logprobs(o.logprobs or 0)
        session.set_kvq(o.kvq)
        session.set_recall(o.recall)
        session.set_sources(**o.sources.arguments())
        parts = self._parts(ids, o, skip)
        tried = parts.optimizer.trim()
        events: list[Event] = []
        text: list[str] = []
        for event in decode(session, ids, parts):
            events.append(event)
            text.append(event.text)
            yield event
        self.policies.keep(o, parts.optimizer)
        self._tell_fallbacks()
        return Result(
            text="".join(text),
            tokens=[e.token for e in events],
            finish_reason=parts.stopper.finish,
            logprobs=None if o.logprobs is None else [TokenLogprobs(e.token, e.logprob, e.top) for e in events],
            stats=self._stats(o, skip, parts),
            seed=o.seed,
            prompt_tokens=ids.tolist(),
            drafted=[e.drafted for e in events],
            sources=[e.source for e in events],
            trace=Trace(
                self.folder.name,
                self.model.config["num_layers"],
                tuple(text),
                tuple(parts.recorder.rounds),
                tuple(parts.optimizer.trace),
                tried,
            ),
        )

    def _parts(self, ids: np.ndarray, o: GenerateOptions, skip: SkipSet | None) -> Parts:
        stop_ids = {*o.stop_token_ids, *(() if o.ignore_eos else self.defaults.eos_token_ids)}
        detokenizer = Detokenizer(self.tokenizer.decode, ids.tolist()) if self.tokenizer.available else None
        room = self.context - len(ids)
        budget = room if o.max_new_tokens is None else min(o.max_new_tokens, room)
        pacer, optimizer, guesser = self.policies.get(o, skip)
        return Parts(
            Stopper(budget, stop_ids, o.stop, detokenizer),
            optimizer,
            pacer,
            Recorder(),
            SessionScorer(self.session),
            o.logprobs is not None,
            guesser=guesser,
        )

    def _stats(self, o: GenerateOptions, skip: SkipSet | None, parts: Parts) -> Stats:
        reason = parts.pacer.reason_off
        if o.speculate is False:
            reason = "speculate=False"
        elif skip is None and parts.guesser is None:
            reason = "skip=None: nothing is skipped, so a draft step would cost as much as a target step"
        elif not parts.recorder.spec and reason is None:
            reason = "the text ended before drafting began"
        return parts.recorder.finish(
            self.policies.plain.value if self.policies.plain.count else None,
            reason_off=reason,
            skip=str(parts.optimizer.current.skip) if skip is not None and DRAFTERS[o.drafter_name].plan else None,
            extra_memory_bytes=int(self.session.workspace_bytes) + sum(self.model.copies.values()),
            draft_weight_bytes=sum(self.model.copies.values()),
        )

    def _tell_fallbacks(self) -> None:
        """Once each."""
        for line in self.session.fallbacks.splitlines():
            if line not in self._told:
                self._told.add(line)
                _log.warning("slower than it could be: %s", line)

    def _compare(self, result: Result, ids: np.ndarray, o: GenerateOptions) -> None:
        again: list[int] = [e.token for e in self._once(ids, replace(o, speculate=False, verify=False), None)]
        for i, (drafted, plain) in enumerate(zip(result.tokens, again, strict=False)):
            if drafted != plain:
                raise InternalError(f"[verify] token {i}: {drafted} with drafts, {plain} without")
        if len(again) != len(result.tokens):
            raise InternalError(f"[verify] {len(result.tokens)} tokens with drafts, {len(again)} without")


def _early_exit(o: GenerateOptions) -> Any:
    by_number = isinstance(o.assistant_early_exit, int)
    return SkipSet.early_exit(o.assistant_early_exit) if by_number else o.skip
