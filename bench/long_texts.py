"""Engines that go on after long texts: their documents, the ways that they draft, and llama.cpp beside them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from swiftk import LM, DraftSpec

from .as_gguf import Missing, gguf
from .documents import Prefixes, documents
from .harness import Study
from .lanes import DEFAULT, Way, chain, fixed
from .process import Ended, Peer

CONTEXTS = (1024, 2048, 4096, 8192, 16384, 32768)  # tokens of a text at its end
VIEWS: Mapping[str, Mapping[str, Any]] = {  # what a draft's attention sees: fields of its DraftSpec
    "all": {},
    "last 512": {"window": 512},
    "last 1024": {"window": 1024},
    "last 512, heavy": {"window": 512, "heavy": 1},
}
DRAFTED = 4  # tokens of a chain
SIZES, AT_ONCE = (1, 4, 8), 4096  # texts at a time, and the tokens of each at its end


class LongTexts:
    """The study's documents and engines, and llama.cpp, which has one text."""

    def __init__(self, study: Study) -> None:
        self.study = study
        most = study.files.config["max_position_embeddings"]
        wanted = study.given.contexts or ((512, 1024) if study.quick else CONTEXTS)
        self.sizes = study.given.sizes if study.given.sizes is not None else ((1, 2) if study.quick else SIZES)
        count, longest = max([1, study.count, *self.sizes]), min(max(wanted), most)
        self.documents = documents(study.given.document, study.lm.tokenizer, study.prompts.chat, count, longest)
        has = min(len(one.tokens) for one in self.documents[: study.count])
        self.sizes_of = sorted({n for n in wanted if n <= min(most, has)})
        if short := sorted({n for n in wanted if has < n <= most}):
            told = ", ".join(map(str, short))
            study.results.notes.append(f"left out: contexts of {told}, the text has {has} tokens; --document FILE")
        if not self.sizes_of:
            raise SystemExit(f"[contexts] no context of {min(wanted)} tokens: want at most {min(most, has)}")
        room = most - 2 * study.tokens  # a text may be ahead of the others
        self.at_once = min([AT_ONCE, room, longest, *(len(one.tokens) for one in self.documents)])
        self.prefixes = Prefixes(study.lm.model, max(self.at_once, self.sizes_of[-1]))
        self._read: dict[str, tuple[int, float]] = {}  # this round's document by engine: tokens, seconds
        self._number = 0  # that document's
        self.peer: Peer | None = None
        self.warm: list[LM] = []  # models whose weights and kernels are in memory and in use

    def turn_to(self, number: int) -> None:
        """A round's document. It is computed anew, also where an earlier round had it among several."""
        if number != self._number:
            self._number, self._read = number, {}
            self.prefixes.forget()

    def llama(self, stack: ExitStack, **options: Any) -> Peer | None:
        """llama.cpp on the same GGUF file, or with the weights in f16; None: it is not there."""
        study, python = self.study, self.study.given.python_llama
        try:
            path = str(study.folder) if self._same_file else gguf(study.folder, "f16", python)
            return stack.enter_context(
                Peer("llama_cpp", python, threads=study.threads, path=path, flash=True, **options)
            )
        except (Missing, Ended, SystemExit) as error:
            if (note := f"left out: llama.cpp ({error})") not in study.results.notes:
                study.results.notes.append(note)
            return None

    @property
    def _same_file(self) -> bool:
        return self.study.folder.is_file() and "dtype" not in self.study.asked

    @property
    def peer_name(self) -> str:
        return f"llama.cpp, {'same file' if self._same_file else 'f16'}"

    def ways(self, context: int) -> list[Way]:
        study, every = self.study, [DEFAULT]
        for copy in study.given.copies or [study.copy]:
            loading = {} if copy in study.lm.model.copies else {"draft_weights": copy}
            for name, view in VIEWS.items():
                if view.get("window", 0) < context:
                    way = fixed(f"{copy}, {name}", DraftSpec(weights=copy, **view), chain(DRAFTED))
                    every.append(Way(way.name, way.options, loading))
        return every

    def read(self, name: str, tokens: int, seconds: float) -> tuple[int, float]:
        """Tokens of this round's prompt that an engine has computed, and in how many seconds: by now, after so many
        more."""
        before = self._read.get(name, (0, 0.0))
        if tokens > before[0]:
            self._read[name] = tokens, before[1] + seconds
        return self._read[name]
