"""What texts took under a way of drafting beside plain decoding, and sums of that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Pair:
    """One text under a way, and what the plain lane beside it took. Everything behind the first token."""

    way: str
    stream: str
    instance: int
    turn: int
    tokens: int
    seconds: float
    plain_seconds: float
    steps: int  # target passes
    draft_steps: int
    drafted: int  # places of the text that the plan drafted
    accepted: int  # of these
    draft_seconds: float
    verify_seconds: float
    commit_seconds: float
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
    alpha: float  # accepted, of the places that the plan drafted
    drafts: float  # draft steps a target pass
    cost: float  # c: a draft step in plain steps of the lane beside it
    verify: float  # v: a target pass, over the rows of its tree, in the same
    optimizer_seconds: float
    same: bool

    @classmethod
    def of(cls, pairs: Iterable[dict[str, Any]]) -> Totals:
        p = list(pairs)
        drafted, drafts = sum(x["drafted"] for x in p), sum(x["draft_steps"] for x in p)
        steps = sum(x["steps"] for x in p)
        plain = [x["plain_seconds"] / x["tokens"] for x in p]  # seconds of a plain step
        as_plain = sum(x["draft_steps"] * one for x, one in zip(p, plain))  # seconds, had each cost a plain step
        passes = sum(x["steps"] * one for x, one in zip(p, plain))
        return cls(
            tokens=sum(x["tokens"] for x in p),
            seconds=sum(x["seconds"] for x in p),
            plain_seconds=sum(x["plain_seconds"] for x in p),
            length=sum(x["tokens"] for x in p) / steps,
            alpha=sum(x["accepted"] for x in p) / drafted if drafted else 0.0,
            drafts=drafts / steps,
            cost=sum(x["draft_seconds"] for x in p) / as_plain if drafts else 0.0,
            verify=sum(x["verify_seconds"] for x in p) / passes,
            optimizer_seconds=sum(x["optimizer_seconds"] for x in p),
            same=all(x["same"] for x in p),
        )

    @property
    def speedup(self) -> float:
        return self.plain_seconds / self.seconds

    @property
    def expected(self) -> float:
        """M over what a pass and its draft steps cost: Equation 6, if all drafts are the plan's, one place a step."""
        return self.length / (1 + self.cost * self.drafts)

    @property
    def expected_of_rows(self) -> float:
        """The same with a target pass at its measured v, which Equation 6 takes for 1."""
        return 1 / (1 / self.expected + (self.verify - 1) / self.length)

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds

    @property
    def plain_rate(self) -> float:
        return self.tokens / self.plain_seconds

    @property
    def optimizer_share(self) -> float:
        return self.optimizer_seconds / self.seconds


COLUMNS = ["M", "alpha", "c", "v", "speed-up", "E(Spd.)", "realised / E", "/ E at v", "tokens/s", "output"]


def cells(t: Totals) -> list[str]:
    """A way's row under COLUMNS."""
    return [
        f"{t.length:.2f}",
        *([f"{t.alpha:.2f}", f"{t.cost:.2f}"] if t.cost else ["", ""]),  # no draft steps, no shares of them
        f"{t.verify:.2f}",
        f"{t.speedup:.3f}",
        f"{t.expected:.3f}",
        f"{t.speedup / t.expected:.3f}",
        f"{t.speedup / t.expected_of_rows:.3f}",
        f"{t.rate:.1f}",
        "same" if t.same else "DIFFERS",
    ]


def plain_cells(t: Totals) -> list[str]:
    """The row of the plain runs beside it."""
    return ["1.00", "", "", "", "1.000", "", "", "", f"{t.plain_rate:.1f}", ""]


def of_way(pairs: Iterable[dict[str, Any]], way: str, stream: str | None = None) -> list[dict[str, Any]]:
    return [p for p in pairs if p["way"] == way and stream in (None, p["stream"])]
