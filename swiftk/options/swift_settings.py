"""The numbers of SWIFT's search (arXiv 2410.06916), and those that its paper gives each size of model."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import log
from typing import ClassVar

from ..errors import InvalidArgument
from .fields import described, option, read_all
from .values import LEAST, Flag, Integer, Number

# Tables 2-7: layers, parameters in billions, r. LLaMA-2-13B, CodeLlama-34B, Yi-34B, DeepSeek-Coder-33B, LLaMA-2-70B,
# LLaMA-3-70B.
_PAPER = ((40, 13.0, 0.45), (48, 33.7, 0.5), (60, 34.4, 0.45), (62, 33.3, 0.5), (80, 69.0, 0.5), (80, 70.6, 0.4))


def paper_ratio(n_layers: int, parameters: float) -> float:
    """r of the paper's model that is nearest by layers and parameters; small ones have that of the smallest."""

    def distance(model: tuple[int, float, float]) -> float:
        layers, billions, _ = model
        return abs(log(max(n_layers, 1) / layers)) + abs(log(max(parameters, 1.0) / (1e9 * billions)))

    return min(_PAPER, key=distance)[2]


_BIG = 1 << 31


@described
@dataclass(frozen=True, slots=True)
class SwiftSettings:
    """Numbers of SWIFT's search (arXiv 2410.06916). generate(optimizer="swift") has these defaults. optimizer=
    "swift-paper" has opt_interval=1. Sections are the paper's. A step scores one skip set on tokens that are there."""

    function: ClassVar[str] = "swift"
    opt_interval: int | None = option(
        None,
        Integer(1, _BIG),
        "Rounds of drafting from one step to the next; the paper has 1 (section 4.1). None: as many as a budget of "
        "time allows, 2 % of the decoding time.",
    )
    max_steps: int = option(1000, Integer(0, _BIG, also=()), "S, steps after which the search ends (appendix B.2).")
    bayes_interval: int = option(
        25,
        Integer(1, _BIG, also=()),
        "Beta, steps from one Bayesian suggestion to the next; the others are random (section 4.1, appendix B.2).",
    )
    window: int = option(
        32,
        Integer(1, 4096, also=()),
        "Gamma, tokens of context that a step scores (section 4.1, appendix B.2; table 9 varies it). Under a budget of "
        "time: at most so many, and 32.",
    )
    tolerance: int = option(
        300, Integer(1, _BIG, also=()), "Steps without a better set after which the search ends (appendix B.2)."
    )
    max_score: float = option(
        0.95, Number(LEAST, 1), "Matchness, a share of tokens, above which the search ends (appendix B.2)."
    )
    skip_ratio: float | None = option(
        None,
        Number(LEAST, 1),
        "r, share of the sublayers between the first and the last layer that a set leaves out (appendix B.2). None: "
        "that of the paper's model of nearest size, .4 to .5 (tables 2 to 7).",
    )
    bayes: bool = option(True, Flag(), "Whether Bayesian optimisation suggests sets (section 4.1), or all are random.")
    wait: bool | None = option(
        None,
        Flag(optional=True),
        "Whether decoding waits for a Bayesian suggestion, as the paper's does (section 4.1). None: with opt_interval.",
    )
    alpha: float = option(
        1e-2, Number(LEAST, 1e6), "Variance of a score's noise in the Gaussian process (equation 2; the authors' code)."
    )
    kappa: float = option(
        2.5,
        Number(LEAST, 1e6),
        "Standard deviations in the upper confidence bound (equation 2; the authors' code).",
    )
    seed: int = option(0, Integer(-_BIG, _BIG, also=()), "Seed of the random sets. The paper does not name one.")

    def __post_init__(self) -> None:
        read_all(self)
        for one in fields(self):
            if getattr(self, one.name) is None and one.default is not None:
                raise InvalidArgument(f"[swift] {one.name}=None, want a value such as {one.default!r}")

    @property
    def waits(self) -> bool:
        return self.opt_interval is not None if self.wait is None else self.wait

    def skipped(self, n_layers: int, parameters: float) -> int:
        """Sublayers left out, of the 2 (L - 2) between the first and the last layer."""
        ratio = self.skip_ratio if self.skip_ratio is not None else paper_ratio(n_layers, parameters)
        return int(2 * max(0, n_layers - 2) * ratio)
