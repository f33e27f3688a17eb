"""Ways of writing a text, side by side: each in a lane of its own, a few tokens at a time in turn, since the
bandwidth of a machine drifts within seconds; ratios are of summed seconds, and every text is compared with plain
decoding's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import swiftk
from swiftk import LM, DraftSpec, Result, TreeRule

from .spread import error
from .texts import Text

os.environ.setdefault("SWIFTK_LEARNED", "0")  # what earlier runs learned is not part of a study

BLOCK = 2  # tokens that a lane goes on before the next one does: a machine's slow spells last about ten
GREEDY, SAMPLED = {"temperature": 0.0}, {"temperature": 0.6, "top_p": 0.95}


@dataclass(frozen=True, slots=True)
class Way:
    """How texts are written, as options of generate(), and what load() is told beside what the study says."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    loading: dict[str, Any] = field(default_factory=dict)


PLAIN = Way("plain", {"speculate": False})
DEFAULT = Way("default")
AUTO = Way("auto", {"drafter": "plan"})  # what costs no draft step is for sources.py
WITHOUT_COPIES = Way("without copies", loading={"draft_weights": "own"})
INT3 = Way("default, int3", loading={"draft_weights": "int3"})


def swift(name: str = "swift", gate: Any = "swift", **settings: Any) -> Way:
    """The paper's search as the engine runs it: within a budget of time, and drafts rest where they do not pay."""
    return Way(name, {"optimizer": "swift", "gate": gate, "swift": settings})


def paper_swift(name: str = "swift (paper)", gate: Any = "swift", **settings: Any) -> Way:
    """By the paper's own schedule: a score after every round while the search lasts, and drafts in every round."""
    return Way(name, {**swift(name, gate, opt_interval=1, **settings).options, "speculate": "always"})


def fixed(name: str, skip: DraftSpec, gate: Any = "swift", **options: Any) -> Way:
    """One skip set in every round."""
    return Way(name, {"skip": skip, "optimizer": None, "gate": gate, "speculate": "always", **options})


def by_time(name: str, skip: Any) -> Way:
    """One skip set where it pays, as far and wide as it pays."""
    return Way(name, {"skip": skip, "optimizer": None})


def self_sd(skip: DraftSpec, name: str = "self-sd") -> Way:
    """A set that was searched before, and Self-SD's gate: chains, whose least confidence follows their acceptance."""
    return Way(name, {"skip": skip, "optimizer": "self-sd", "speculate": "always"})


def chain(length: int) -> TreeRule:
    """So many steps, without siblings."""
    return TreeRule(confidence=0.0, max_draft=length, width=(1, 1, 1, 1))


class Models:
    """A model for each way, by its name, made when it is first asked for: what one learned stays its own. Ways that
    load alike read the same weights."""

    def __init__(self, folder: Path, **loading: Any) -> None:
        self._folder, self._loading = folder, loading
        self._loaded: dict[tuple[Any, ...], LM] = {}
        self._all: dict[str, LM] = {}

    def of(self, way: Way) -> LM:
        if way.name not in self._all:
            loading = {**self._loading, **way.loading}
            key = tuple(sorted((name, str(value)) for name, value in loading.items()))
            if key in self._loaded:
                one = self._loaded[key]
                self._all[way.name] = LM(one.files, one.model, one.tokenizer, one.defaults)
            else:
                self._all[way.name] = self._loaded[key] = swiftk.load(self._folder, **loading)
        return self._all[way.name]

    @property
    def plain(self) -> LM:
        return self.of(PLAIN)

    def forget(self) -> None:
        for lm in self._all.values():
            lm.forget()

    def close(self) -> None:
        for lm in self._all.values():
            lm.close()


class Lane(Protocol):
    """What goes on with its text, or its texts, when it is told to."""

    def go_on(self, tokens: int) -> bool:
        """Until there are so many tokens of each, in the mean; False at the end."""


def in_turn(lanes: Iterable[Lane], block: int = BLOCK) -> None:
    """To the end of all. A lane meets the caches of the one before it, so the order goes round: turned back and forth,
    the lanes at its ends would follow on themselves, and those between would not."""
    running, done = list(lanes), 0
    while running:
        done += block
        running = [lane for lane in running if lane.go_on(done)]
        running = running[1:] + running[:1]


class _Stream:
    """The lane of a text that generate() streams. Its seconds are its own: the clock stands while others go on."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._read = stream, 0

    def go_on(self, tokens: int) -> bool:
        while self._read < tokens:
            if next(self._stream, None) is None:
                return False
            self._read += 1
        return True


@dataclass(frozen=True, slots=True)
class Pair:
    """A text under a way, and as it was written plainly beside it."""

    way: str
    text: Text
    result: Result
    plain: Result

    @property
    def same(self) -> bool:
        return self.result.tokens == self.plain.tokens

    @property
    def copies(self) -> set[str]:
        """Of the weights, that drafts read."""
        return {form for turn in self.result.trace.rounds if turn.skip for form in turn.skip.forms - turn.skip.drafters}

    @property
    def seconds(self) -> float:
        return _decoding(self.result)

    @property
    def plain_seconds(self) -> float:
        return _decoding(self.plain)

    @property
    def speedup(self) -> float:
        return self.plain_seconds / self.seconds


def _decoding(result: Result) -> float:
    """Seconds after the first token."""
    return result.stats.total_seconds - result.stats.time_to_first_token


def write(
    lms: Sequence[LM],
    prompt: Sequence[int],
    ways: Sequence[Way],
    tokens: int,
    beside: Iterable[Lane] = (),
    **sampling: Any,
) -> list[Result]:
    """One text under every way, each on a model of its own. beside: lanes that take turns with them."""
    common = {"max_new_tokens": tokens, "ignore_eos": True, "seed": 1, **GREEDY, **sampling, "stream": True}
    with ExitStack() as stack:
        streams = [
            stack.enter_context(lm.generate(list(prompt), **{**common, **way.options}))
            for lm, way in zip(lms, ways, strict=True)
        ]
        in_turn([*map(_Stream, streams), *beside])
        return [stream.result for stream in streams]


def measure(
    models: Models, texts: Iterable[Text], ways: Sequence[Way], tokens: int, cold: bool = False, **sampling: Any
) -> Iterator[list[Pair]]:
    """Text by text, its pairs; cold: each begins with nothing learned. Turns of a conversation follow on the plain
    answers. A turn whose plain answer is a single token has no time that could be compared, and is left out."""
    every = [PLAIN, *ways]
    lms = list(map(models.of, every))
    for number, text in enumerate(texts):
        if not number:
            write(lms, text.prompt, [PLAIN] * len(every), 8)  # warms caches up
        if cold:
            models.forget()
        history, pairs = [], []
        for turn in text.turns:
            history += turn
            plain, *others = write(lms, history, every, tokens, **{"seed": number + 1, **sampling})
            if len(plain.tokens) > 1:
                pairs += [Pair(way.name, text, one, plain) for way, one in zip(ways, others, strict=True)]
            history += plain.tokens[: -1 if plain.finish_reason == "stop" else None]  # a later turn begins with its end
        yield pairs


COLUMNS = {
    "M": "M:.2f",
    "alpha": "alpha:.2f",
    "c": "c:.2f",
    "v": "v:.2f",
    "speed-up": "speedup:.3f",
    "±": "error:.3f",
    "worst text": "worst:.2f",
    "E(Spd.)": "E:.3f",
    "realised / E": "of_E:.3f",
    "/ E at v": "of_E_at_v:.3f",
    "tokens/s": "rate:.1f",
    "copy": "copy",
    "output equal": "same",
}
ABOUT_COLUMNS = (
    "M: tokens per target pass. alpha: accepted share of the plan's draft tokens. c, v: time of a draft step, and of a "
    "target pass over all rows of its tree, where a plain step takes 1. E(Spd.): M over the time of a pass and its "
    "draft steps (Equation 6 if only the plan drafts). at v: with the measured v, which Equation 6 sets to 1. Time "
    "counts from the first token. ±: standard error of the speed-up, by the bootstrap over texts. copy: of the "
    "weights, in few bits, that drafts read; flattered: it has as many bits as the file that the weights were decoded "
    "from, and agrees with them by construction."
)


def summary(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Sums of a way over texts, by the keys of COLUMNS."""
    stats = [pair.result.stats for pair in pairs]

    def total(of: Callable[[Any], float]) -> float:
        return sum(map(of, stats))

    tokens, passes = total(lambda s: s.generated_tokens - 1), total(lambda s: s.num_steps)
    drafts, drafted = total(lambda s: s.num_draft_steps), total(lambda s: s.num_draft_tokens)
    seconds, plain = sum(p.seconds for p in pairs), sum(p.plain_seconds for p in pairs)
    step = [p.plain_seconds / (len(p.plain.tokens) - 1) for p in pairs]  # of the lane beside each
    as_plain = sum(one * s.num_draft_steps for one, s in zip(step, stats))
    texts = list(_by_text(pairs).values())
    length, search = tokens / passes, total(lambda s: s.optimizer_seconds)
    cost = total(lambda s: s.draft_seconds) / as_plain if drafts else None
    verify = total(lambda s: s.verify_seconds) / sum(one * s.num_steps for one, s in zip(step, stats))
    expected = length / (1 + (cost or 0.0) * drafts / passes)
    return {
        "texts": len(texts),
        "tokens": tokens,
        "seconds": seconds,
        "M": length,
        "alpha": total(lambda s: s.num_accepted_draft_tokens) / drafted if drafted else None,
        "c": cost,
        "v": verify,
        "speedup": plain / seconds,
        "error": error([plain for plain, _ in texts], [drafted for _, drafted in texts]),
        "worst": min(plain / drafted for plain, drafted in texts),
        "copy": ", ".join(sorted(set().union(*(pair.copies for pair in pairs)))) or None,
        "E": expected,
        "of_E": plain / seconds / expected,
        "of_E_at_v": plain / seconds * (1 / expected + (verify - 1) / length),
        "rate": tokens / seconds,
        "without_search": plain / (seconds - search),
        "search": search / seconds,
        "same": all(pair.same for pair in pairs),
    }


def _by_text(pairs: Sequence[Pair]) -> dict[int, tuple[float, float]]:
    """Plain seconds and its own of each text, all turns together."""
    found: dict[int, tuple[float, float]] = {}
    for pair in pairs:
        plain, own = found.get(id(pair.text), (0.0, 0.0))
        found[id(pair.text)] = plain + pair.plain_seconds, own + pair.seconds
    return found


def plain_summary(pairs: Sequence[Pair]) -> dict[str, Any]:
    """The row of the plain lane beside a way."""
    tokens = sum(len(pair.plain.tokens) - 1 for pair in pairs)
    return {
        "texts": len(_by_text(pairs)),
        "M": 1.0,
        "speedup": 1.0,
        "rate": tokens / sum(p.plain_seconds for p in pairs),
    }
