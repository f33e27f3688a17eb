"""The numbers of SWIFT's search (arXiv 2410.06916), and those that its paper gives each size of model."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from ..errors import InvalidArgument

# Tables 2-7: layers, parameters in billions, r. LLaMA-2-13B, CodeLlama-34B, Yi-34B, DeepSeek-Coder-33B, LLaMA-2-70B,
# LLaMA-3-70B.
_PAPER = ((40, 13.0, 0.45), (48, 33.7, 0.5), (60, 34.4, 0.45), (62, 33.3, 0.5), (80, 69.0, 0.5), (80, 70.6, 0.4))


def paper_ratio(n_layers: int, parameters: float) -> float:
    """r of the paper's model that is nearest by layers and parameters; small ones have that of the smallest."""

    def distance(model: tuple[int, float, float]) -> float:
        layers, billions, _ = model
        return abs(log(max(n_layers, 1) / layers)) + abs(log(max(parameters, 1.0) / (1e9 * billions)))

    return min(_PAPER, key=distance)[2]


@dataclass(frozen=True, slots=True)
class SwiftSettings:
    """The paper's numbers, and when candidates are scored: `opt_interval` 1 is the paper's schedule, None a budget of
    time (timed_swift.py)."""

    opt_interval: int | None = None  # rounds from one candidate to the next; None: as many as a budget of time allows
    max_steps: int = 1000  # S
    bayes_interval: int = 25  # beta: every so many steps a Bayesian suggestion is scored
    window: int = 32  # gamma: tokens of context that a score looks at; under the budget, at most
    tolerance: int = 300  # steps without a better set that end the search
    max_score: float = 0.95  # matchness that ends it
    skip_ratio: float | None = None  # r; None: that of the paper's model of nearest size
    bayes: bool = True
    wait: bool | None = None  # decoding waits for Bayesian suggestions; None: under the paper's schedule
    alpha: float = 1e-2  # of the Gaussian process: variance of a score's noise
    kappa: float = 2.5  # of its upper confidence bound
    seed: int = 0

    def __post_init__(self) -> None:
        big = 1 << 31
        integers = {"max_steps": (0, big), "bayes_interval": (1, big), "window": (1, 4096), "tolerance": (1, big)}
        if self.opt_interval is not None:
            integers["opt_interval"] = (1, big)
        for name, (low, high) in integers.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise InvalidArgument(f"[swift] {name}={value!r}, want an integer in {low}..{high}")
        for name, most in (("max_score", 1.0), ("skip_ratio", 1.0), ("alpha", 1e6), ("kappa", 1e6)):
            value = getattr(self, name)
            if value is None and name == "skip_ratio":
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= most:
                raise InvalidArgument(f"[swift] {name}={value!r}, want a number in (0, {most:g}]")
        for name, allowed in (("bayes", (True, False)), ("wait", (True, False, None))):
            if not any(getattr(self, name) is one for one in allowed):
                want = ", ".join(map(str, allowed))
                raise InvalidArgument(f"[swift] {name}={getattr(self, name)!r}, want one of {want}")

    @property
    def waits(self) -> bool:
        return self.opt_interval is not None if self.wait is None else self.wait

    def skipped(self, n_layers: int, parameters: float) -> int:
        """Sublayers left out, of the 2 (L - 2) between the first and the last layer."""
        ratio = self.skip_ratio if self.skip_ratio is not None else paper_ratio(n_layers, parameters)
        return int(2 * max(0, n_layers - 2) * ratio)
