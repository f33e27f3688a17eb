"""Measuring: every text is generated plainly and under each way, by the same build in the same process. The machine's
bandwidth drifts within seconds, so all go through a text side by side, each in a session of its own, a few tokens at
a time in turn; ratios are of summed seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from pathlib import Path
from time import perf_counter
from typing import Any

import swiftk
from streams import Instance
from swiftk import LM, DraftRule, Result, SkipSet
from totals import Pair

SAMPLED = {"temperature": 0.6, "top_p": 0.95}
BLOCK = 2  # tokens that a lane goes on before the next one does: a machine's slow spells last about ten
NO_TREE = DraftRule(width=(1, 1, 1, 1))


@dataclass(frozen=True, slots=True)
class Way:
    """How texts are generated, as options of generate()."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


PLAIN = Way("plain", {"speculate": False})
AUTO = Way("auto", {"drafter": "plan"})  # sources that cost no step are bench/sources.py's


def swift(name: str = "swift", gate: Any = "swift", **settings: Any) -> Way:
    """The paper's search as the engine runs it: within a budget of time, and drafts rest where they do not pay."""
    return Way(name, {"optimizer": "swift", "gate": gate, "swift": settings})


def paper_swift(name: str = "swift (paper)", gate: Any = "swift", **settings: Any) -> Way:
    """By the paper's own schedule: a score after every round while the search lasts, and drafts in every round."""
    return Way(name, {**swift(name, gate, opt_interval=1, **settings).options, "speculate": "always"})


def fixed(name: str, skip: SkipSet, gate: Any = "swift") -> Way:
    """One skip set for ever."""
    return Way(name, {"skip": skip, "optimizer": None, "gate": gate, "speculate": "always"})


def self_sd(skip: SkipSet, name: str = "self-sd") -> Way:
    """A set that was searched before, and Self-SD's gate: chains, whose least confidence follows their acceptance."""
    return Way(name, {"skip": skip, "optimizer": "self-sd", "speculate": "always"})


def uniform(lm: LM, name: str = "uniform") -> Way:
    return fixed(name, SkipSet.uniform(lm.config["num_layers"]))


@dataclass(frozen=True, slots=True)
class Run:
    """One text and when each of its tokens was committed, in seconds of decoding behind the first."""

    way: Way
    result: Result
    times: list[float]

    @property
    def seconds(self) -> float:
        return self.times[-1]


class Lanes:
    """Models, made when they are first asked for: lane 0 decodes plainly, way i in lane 1 + i, where what it learned
    stays from text to text."""

    def __init__(self, load: Callable[[], LM]) -> None:
        self._load, self._lms = load, []

    def __getitem__(self, lane: int) -> LM:
        while len(self._lms) <= lane:
            self._lms.append(self._load())
        return self._lms[lane]

    def forget(self) -> None:
        for lm in self._lms:
            lm.forget()


def sessions(folder: Path, **loading: Any) -> Lanes:
    """Lanes that read the same weights: a copy for each of eight ways would not fit everywhere."""
    made: list[LM] = []

    def lane() -> LM:
        if made:
            one = made[0]
            return LM(one.folder, one.model, one.tokenizer, one.defaults)
        made.append(swiftk.load(folder, **loading))
        return made[0]

    return Lanes(lane)


def side_by_side(
    lanes: Lanes, ids: Sequence[int], ways: Sequence[Way], tokens: int, sampling: dict[str, Any]
) -> list[Run]:
    """One text under every way, the plain one first. Seconds are a lane's own: it stands still while others go on."""
    options = {"max_new_tokens": tokens, "ignore_eos": True, "seed": 1, **sampling}
    every = [PLAIN, *ways]
    with ExitStack() as stack:
        streams = [
            stack.enter_context(lanes[i].generate(list(ids), stream=True, **{**options, **way.options}))
            for i, way in enumerate(every)
        ]
        turns, done = [[s, 0] for s in streams], 0
        while turns:
            done += BLOCK
            for turn in list(turns):
                if not _advance(turn, done):
                    turns.remove(turn)
            turns.reverse()  # whoever goes first meets the caches of another
    return [Run(way, s.result, _times(s.result)) for way, s in zip(every, streams)]


def _advance(turn: list[Any], tokens: int) -> bool:
    """Reads a stream up to so many tokens; false at its end."""
    stream, read = turn
    while read < tokens:
        if next(stream, None) is None:
            return False
        read += 1
    turn[1] = read
    return True


def _times(result: Result) -> list[float]:
    times = [0.0]
    for one in result.trace.rounds:
        times += [one.clock] * one.round.tokens
    return times


@dataclass(slots=True)
class Part:
    """What the work on a part is told: how long it may take, and how to say that one more run is done."""

    deadline: float | None  # by perf_counter()
    tick: Callable[[], Any]
    stopped: Callable[[], bool]  # by the user

    def go_on(self) -> bool:
        return not self.stopped() and (self.deadline is None or perf_counter() < self.deadline)

    def share(self, of: float) -> Part:
        """For one of `of` equal pieces of the time that is left."""
        if self.deadline is None:
            return self
        now = perf_counter()
        return Part(now + max(0.0, self.deadline - now) / of, self.tick, self.stopped)


def measure(
    lanes: Lanes,
    instances: Sequence[Instance],
    ways: Sequence[Way],
    tokens: int,
    *,
    sampling: dict[str, Any] | None = None,
    part: Part,
    watch: Callable[[Instance, Run, Run], Any] = lambda *_: None,
) -> list[dict[str, Any]]:
    """Pairs, as plain values. The part's deadline holds between instances; watch() sees (instance, drafted, plain)."""
    pairs: list[dict[str, Any]] = []
    side_by_side(lanes, instances[0].turns[0], [PLAIN] * len(ways), 8, {})  # cold caches
    for at, instance in enumerate(instances):
        if pairs and not part.go_on():
            break
        history: list[int] = []
        for number, turn in enumerate(instance.turns):
            ids = [*history, *turn]
            plain, *drafted = side_by_side(lanes, ids, ways, tokens, {"seed": at + 1, **(sampling or {})})
            for one in drafted:
                pairs.append(_plain_values(_pair(instance, number, one, plain)))
                watch(instance, one, plain)
                part.tick()
            history = [*ids, *plain.result.tokens]
    return pairs


def count(instances: Sequence[Instance], ways: Sequence[Way]) -> int:
    """Pairs that measure() makes."""
    return sum(len(i.turns) for i in instances) * len(ways)


def _plain_values(pair: Pair) -> dict[str, Any]:
    return {key: round(v, 6) if isinstance(v, float) else v for key, v in asdict(pair).items()}


def _pair(instance: Instance, turn: int, one: Run, plain: Run) -> Pair:
    s = one.result.stats
    return Pair(
        way=one.way.name,
        stream=instance.stream,
        instance=instance.number,
        turn=turn,
        tokens=s.generated_tokens - 1,
        seconds=one.seconds,
        plain_seconds=plain.seconds,
        steps=s.num_steps,
        draft_steps=s.num_draft_steps,
        drafted=s.num_draft_tokens,
        accepted=s.num_accepted_draft_tokens,
        draft_seconds=s.draft_seconds,
        verify_seconds=s.verify_seconds,
        commit_seconds=s.commit_seconds,
        optimizer_seconds=s.optimizer_seconds,
        same=one.result.tokens == plain.result.tokens,
        off=s.reason_off,
    )


class Steps:
    """Optimisation steps of each way: watch() of measure()."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[Any, ...]] = {}

    def __call__(self, _: Instance, one: Run, __: Run) -> None:
        self.found[one.way.name] = one.result.trace.candidates  # over the optimizer's life

    def best(self, way: str) -> list[float]:
        """Best matchness so far, step by step."""
        return [round(top, 4) for top in accumulate((c.matchness for c in self.found.get(way, ())), max)]
