"""The searches that users name: which sources race, and what drafts at first."""

from __future__ import annotations

from ..draft.draft_spec import DraftSpec
from . import tuned
from .base import Measured, Rates
from .exits import Exits, chain_rate
from .programs import Programs
from .race import Race
from .sublayers import SublayerPrices
from .swift import Moves, Sets


def auto(n_layers: int, measured: Measured, prices: SublayerPrices, seed: int = 0) -> Race:
    """All sources: models trained with layer dropout are best cut, others best thinned."""
    sources = [Exits(n_layers, measured, prices), Programs(n_layers), Moves(n_layers, seed)]
    return Race(measured, prices, sources, ("uniform", DraftSpec.uniform(n_layers)))


def exits(n_layers: int, measured: Measured, prices: SublayerPrices, length: int | None = None) -> Race:
    """Early exits alone. length: of the chains that a fixed rule drafts; None: the planner draws them out as long as
    that is worth while."""

    def of_length(seen: Rates, price: float) -> float:
        return chain_rate(seen.matchness, price, measured.row, (length or 0,))

    first = ("exit", DraftSpec.early_exit(max(1, n_layers // 4)))
    return Race(measured, prices, [Exits(n_layers, measured, prices)], first, of_length if length else None)


def swift(measured: Measured, prices: SublayerPrices, sets: Sets) -> Race:
    """SWIFT's sets within a budget of time."""
    first = ("uniform", DraftSpec.uniform(sets.n_layers))
    return Race(measured, prices, [sets], first, window=min(tuned.WINDOW, sets.settings.window))
