"""Early exits by time, as in DEL (arXiv 2504.05598): one pass of the target says what every exit would have proposed
for the last tokens; the exit that promises most tokens per time drafts, chosen again as the text goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ..draft.cost import Round
from ..draft.draft_spec import DraftSpec
from .base import Candidate, DraftConfig, Measured, Optimizer, Progress, Rates, Score, Scorer
from .budget import UNMEASURED, Budget
from .race import PAYS
from .sublayers import LOOK_EVERY, SublayerPrices

_DEEPEST = 0.75  # share of the layers: an exit after more of them costs too much, however right it is
_HEADS = 1.0  # passes of the target that the heads after exits may cost together
LENGTHS = range(19)  # of chains, as DEL has them

_FIRST, _WINDOW = 16, 32  # new tokens that a score waits for, and those that it looks at most
_KEEP = 0.7  # weight that what was seen keeps when a window is added
_CLOSE = 3  # exits whose promises are worked out
_LEAD = 1.03  # over the exit that drafts, on the same tokens


def chain_rate(held: float, draft: float, row: float, lengths: Iterable[int] = LENGTHS) -> float:
    """Tokens per plain step of chains of the best of these lengths, a draft token being right `held` of the times:
    DEL's TPL, at the prices of the clock."""
    n = np.array(list(lengths), float)
    tokens = n + 1 if held >= 1 else (1 - held ** (n + 1)) / (1 - held)
    return float((tokens / (1 + n * (draft + row))).max())


def exits_to_score(n_layers: int, head: float) -> list[int]:
    """Every exit that may pay; evenly fewer where a head costs so much of a pass that all of them would be dear."""
    every = range(1, max(1, int(_DEEPEST * n_layers)) + 1) if n_layers > 1 else range(0)
    most = min(len(every), max(4, int(_HEADS / max(head, 1e-6))))
    return [every[round((i + 0.5) * len(every) / most - 0.5)] for i in range(most)]


def pass_price(exits: int, head: float) -> float:
    """Price of a pass with so many heads, in passes of the target."""
    return 1 + (exits - 1) * head


def most_promising(
    seen: Mapping[int, tuple[float, float]], price: Callable[[DraftSpec], float], row: float, most: int = _CLOSE
) -> list[int]:
    """Exits that the best chains draft with, best first, by (times right, tokens seen) of each."""

    def rate(layer: int) -> float:
        right, tokens = seen[layer]
        return chain_rate((right + 1) / (tokens + 2), price(DraftSpec.early_exit(layer)), row)

    return sorted(seen, key=rate, reverse=True)[:most]


class Exits(Optimizer):
    """Drafts with an early exit and nothing else skipped."""

    def __init__(self, n_layers: int, measured: Measured, prices: SublayerPrices, length: int | None = None) -> None:
        """length: of the chains that a fixed rule drafts; None: the planner draws them out as long as that pays."""
        self.n_layers, self.prices, self._length = n_layers, prices, length
        self._configs: dict[int, DraftConfig] = {}
        self._layer = max(1, n_layers // 4)  # that drafts, until the first score says better
        self._seen: dict[int, Rates] = {}  # of every exit that was scored
        super().__init__(self._config(self._layer), measured)
        self._budget = Budget()
        self._rate = 0.0  # seconds of scoring a token, in a pass of the price 1
        self._total, self._rounds = 0, 0
        self._thinking = 0.0  # seconds of judging what a score says
        self._scored = 0  # position after the last token that a score has looked at
        self._kept = 1.0  # share of what an exit had promised that it brought when it was given up

    def start(self, prompt: Sequence[int]) -> None:
        self._budget.start()
        self._scored, self._kept = len(prompt), 1.0

    def observe(self, r: Round, plain_seconds: float) -> None:
        Optimizer.observe(self, r, plain_seconds)
        if self._rounds % LOOK_EVERY == 0:
            self.prices.observe(self.current.skip, self.measured.price(self.current.skip))
        self._rounds += 1

    def give_up(self, rate: float) -> bool:
        """Others are believed by as much as this one keeps of what it had promised."""
        if self._layer not in self._seen:
            return False
        self._kept = min(1.0, rate / max(self._promise(self._layer), 1e-6))
        others = {layer: self._promise(layer) for layer in self._close() if layer != self._layer}
        best = max(others, key=others.__getitem__, default=None)
        if best is None or self._kept * others[best] < PAYS:
            return False
        self._adopt(best)
        return True

    def step(self, score: Scorer, progress: Progress) -> bool:
        self._total += self._budget.follow(progress)
        end = progress.prompt + progress.generated - 1
        rows = min(_WINDOW, end - self._scored)
        head = self.prices.price(DraftSpec.early_exit(0))
        exits = sorted({*exits_to_score(self.n_layers, head), self._layer})
        cost = rows * pass_price(len(exits), head)
        scoring = cost * (self._rate or UNMEASURED * progress.plain_seconds)
        if rows < _FIRST or scoring + self._thinking > self._budget.left:
            return False
        began = self.measured.now
        found = score.exits(exits, rows, end)
        seconds = sum(one.seconds for one in found)
        self._rate += (seconds / cost - self._rate) * (0.2 if self._rate else 1.0)
        self._scored = end
        self._learn(dict(zip(exits, found, strict=True)))
        better = self._choose(seconds)
        self._thinking += (self.measured.now - began - seconds - self._thinking) / 4
        self._budget.spend(max(seconds, self.measured.now - began))
        return better

    def _learn(self, found: Mapping[int, Score]) -> None:
        for layer, score in found.items():
            seen = self._seen.setdefault(layer, self.measured.no_rates(DraftSpec.early_exit(layer)))
            seen.scale(_KEEP)
            seen.add(score.outcomes)

    def _choose(self, seconds: float) -> bool:
        """By the same tokens for all. Returns whether drafting may begin again by it."""
        promises = {layer: self._promise(layer) for layer in {*self._close(), self._layer}}
        best = max(promises, key=promises.__getitem__)
        changed = promises[best] > _LEAD * promises[self._layer]
        for layer, promise in promises.items():
            kept = changed and layer == best
            matchness = self._seen[layer].matchness
            one = Candidate(self._total, "exit", DraftSpec.early_exit(layer), matchness, promise, kept, seconds)
            self.trace.append(one)
            seconds = 0.0
        if changed:
            self._adopt(best)
        return changed and self._kept * promises[best] > PAYS

    def _close(self) -> list[int]:
        seen = {layer: (one.matchness * one.outcomes, one.outcomes) for layer, one in self._seen.items()}
        return most_promising(seen, self.prices.price, self.measured.row)

    def _promise(self, layer: int) -> float:
        """Tokens per plain step."""
        seen, price = self._seen[layer], self.prices.price(DraftSpec.early_exit(layer))
        if self._length is not None:
            return chain_rate(seen.matchness, price, self.measured.row, (self._length,))
        return self.measured.forecast(seen, price)

    def _adopt(self, layer: int) -> None:
        """What scores have shown is what is known of it, unless it has drafted before."""
        self._layer, self.current = layer, self._config(layer)
        if self.measured.rates(self.current.skip).outcomes == 0:
            self.measured.learned(self.current.skip, self._seen[layer])

    def _config(self, layer: int) -> DraftConfig:
        if layer not in self._configs:
            self._configs[layer] = DraftConfig(DraftSpec.early_exit(layer), "exit")
        return self._configs[layer]
