"""Measuring: every text is generated plainly and under each way, by the same build in the same process. The machine's
bandwidth drifts within minutes, so a plain run lies next to each drafted one, and ratios are of summed seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from time import perf_counter
from typing import Any

from streams import Instance
from swiftk import LM, DraftRule, Result, SkipSet
from swiftk.cost import equation_6

SAMPLED = {"temperature": 0.6, "top_p": 0.95}
NO_TREE = DraftRule(width=(1, 1, 1, 1))


@dataclass(frozen=True, slots=True)
class Way:
    """How texts are generated, as options of generate()."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


PLAIN = Way("plain", {"speculate": False})
AUTO = Way("auto")


def swift(name: str = "swift", gate: Any = "swift", **settings: Any) -> Way:
    """The paper's method, which drafts in every round. Settings are those of its search."""
    options = {"optimizer": "swift", "gate": gate, "speculate": "always"}
    return Way(name, {**options, "swift": settings} if settings else options)


def fixed(name: str, skip: SkipSet, gate: Any = "swift") -> Way:
    """One skip set for ever."""
    return Way(name, {"skip": skip, "optimizer": None, "gate": gate, "speculate": "always"})


def uniform(lm: LM, name: str = "uniform") -> Way:
    return fixed(name, SkipSet.uniform(lm.config["num_layers"]))


@dataclass(frozen=True, slots=True)
class Pair:
    """One text under a way, and what the plain run beside it took. Everything behind the first token."""

    way: str
    stream: str
    instance: int
    turn: int
    tokens: int
    seconds: float
    plain_seconds: float
    steps: int  # target passes
    drafted: int  # draft steps
    accepted: int
    draft_seconds: float
    optimizer_seconds: float
    same: bool  # the output is plain decoding's, token by token
    off: str | None  # why drafting rested


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over texts."""

    tokens: int
    seconds: float
    plain_seconds: float
    length: float  # M: tokens per target pass
    alpha: float  # accepted per draft step
    cost: float  # c: a draft step in plain steps of the run beside it
    optimizer_seconds: float
    same: bool

    @classmethod
    def of(cls, pairs: Iterable[dict[str, Any]]) -> Totals:
        p = list(pairs)
        drafted, steps = sum(x["drafted"] for x in p), sum(x["steps"] for x in p)
        plain_steps = sum(x["drafted"] * x["plain_seconds"] / x["tokens"] for x in p)  # seconds, had drafts cost one
        return cls(
            tokens=sum(x["tokens"] for x in p),
            seconds=sum(x["seconds"] for x in p),
            plain_seconds=sum(x["plain_seconds"] for x in p),
            length=sum(x["tokens"] for x in p) / steps,
            alpha=sum(x["accepted"] for x in p) / drafted if drafted else 0.0,
            cost=sum(x["draft_seconds"] for x in p) / plain_steps if drafted else 0.0,
            optimizer_seconds=sum(x["optimizer_seconds"] for x in p),
            same=all(x["same"] for x in p),
        )

    @property
    def speedup(self) -> float:
        return self.plain_seconds / self.seconds

    @property
    def expected(self) -> float:
        """Equation 6 at the measured M, alpha and c; 1 where nothing was drafted."""
        return equation_6(self.length, self.alpha, self.cost) if self.alpha else 1.0

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds

    @property
    def plain_rate(self) -> float:
        return self.tokens / self.plain_seconds

    @property
    def optimizer_share(self) -> float:
        return self.optimizer_seconds / self.seconds


COLUMNS = ["M", "alpha", "c", "speed-up", "E(Spd.)", "realised / E", "tokens/s", "output"]


def cells(t: Totals) -> list[str]:
    """A way's row under COLUMNS."""
    return [
        f"{t.length:.2f}",
        f"{t.alpha:.2f}",
        f"{t.cost:.2f}",
        f"{t.speedup:.3f}",
        f"{t.expected:.3f}",
        f"{t.speedup / t.expected:.3f}",
        f"{t.rate:.1f}",
        "same" if t.same else "DIFFERS",
    ]


def plain_cells(t: Totals) -> list[str]:
    """The row of the plain runs beside it."""
    return ["1.00", "", "", "1.000", "", "", f"{t.plain_rate:.1f}", ""]


@dataclass(frozen=True, slots=True)
class Run:
    """One text and when each of its tokens was committed, in seconds behind the first."""

    way: Way
    result: Result
    times: list[float]

    @property
    def seconds(self) -> float:
        return self.result.stats.total_seconds - self.result.stats.time_to_first_token


def of_way(pairs: Iterable[dict[str, Any]], way: str, stream: str | None = None) -> list[dict[str, Any]]:
    return [p for p in pairs if p["way"] == way and stream in (None, p["stream"])]


def run(lm: LM, ids: Sequence[int], way: Way, tokens: int, sampling: dict[str, Any]) -> Run:
    options = {"max_new_tokens": tokens, "ignore_eos": True, "seed": 1, **sampling, **way.options}
    times = []
    with lm.generate(list(ids), stream=True, **options) as events:
        for _ in events:
            times.append(perf_counter())
    return Run(way, events.result, [t - times[0] for t in times])


def order(ways: Sequence[Way], backwards: bool) -> list[list[Way]]:
    """Groups in which a plain run lies between two drafted ones: next to both, and so the measure of both."""
    groups = [[*ways[at : at + 1], PLAIN, *ways[at + 1 : at + 2]] for at in range(0, len(ways), 2)]
    return [group[::-1] for group in groups[::-1]] if backwards else groups


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
    lm: LM,
    instances: Sequence[Instance],
    ways: Sequence[Way],
    tokens: int,
    *,
    sampling: dict[str, Any] | None = None,
    part: Part,
    watch: Callable[[Instance, Run, Run], Any] = lambda *_: None,
) -> list[dict[str, Any]]:
    """Pairs, as plain values. Each way keeps what it learned from text to text; the order turns round with each
    instance. The part's deadline holds between instances; watch() sees (instance, drafted, plain)."""
    pairs: list[dict[str, Any]] = []
    run(lm, instances[0].turns[0], PLAIN, 8, {})  # cold caches are nobody's
    for at, instance in enumerate(instances):
        if pairs and not part.go_on():
            break
        history: list[int] = []
        for number, turn in enumerate(instance.turns):
            ids = [*history, *turn]
            for group in order(ways, backwards=at % 2 == 1):
                runs = []
                for way in group:
                    runs.append(run(lm, ids, way, tokens, {"seed": at + 1, **(sampling or {})}))
                    part.tick()
                plain = next(r for r in runs if r.way is PLAIN)
                for one in runs:
                    if one is not plain:
                        pairs.append(_plain_values(_pair(instance, number, one, plain)))
                        watch(instance, one, plain)
            history = [*ids, *plain.result.tokens]
    return pairs


def count(instances: Sequence[Instance], ways: Sequence[Way]) -> int:
    """Runs that measure() makes."""
    return sum(len(i.turns) for i in instances) * sum(map(len, order(ways, False)))


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
        drafted=s.num_draft_tokens,
        accepted=s.num_accepted_draft_tokens,
        draft_seconds=s.draft_seconds,
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
