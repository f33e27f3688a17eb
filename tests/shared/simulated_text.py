"""A machine and a text without a model: what a draft gets right follows from the sublayers it leaves out. The clock
is simulated, too."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np

from swiftk import _core, _testing
from swiftk.draft.cost import Round
from swiftk.draft.draft_spec import DraftSpec
from swiftk.running.director import EngineMeasured
from swiftk.search import searches
from swiftk.search.base import Optimizer, Progress, Score
from swiftk.search.sublayers import SublayerPrices, skip_set, sublayers
from swiftk.testing import make_tiny

LAYERS, PROMPT, ROW, PLAIN = 12, 50, 0.01, 0.05  # PLAIN: seconds of a plain step
SCORED = 0.05  # plain steps that scoring a token costs a plan of a plain step's price
CONFIG = {"num_layers": LAYERS, "hidden_size": 64, "vocab_size": 500, "head_dim": 16, "num_heads": 4}
CONFIG |= {"num_kv_heads": 4, "ffn": 200}


@cache
def model(layers=LAYERS):
    """Whose shape alone counts: plans of it are what the planner chooses among."""
    return _core.Model(str(make_tiny(tempfile.mkdtemp(), "llama3", layers=layers)), threads=1)


def play(rule, outcome):
    """One round of a chain with siblings as csrc/phases/draft.cc grows it; rule: as _testing.Planner says it;
    outcome(i): of the draft's i-th step. Returns (tokens, draft steps, rows, outcomes that verification reports)."""
    worth, alive, steps = 1.0, True, 0
    leaves, received, tokens = [], [], 1
    while steps < rule["max_draft"]:
        confidence, rank = outcome(steps)
        b = int(np.searchsorted(rule["edges"], confidence))
        steps += 1
        if alive:
            received.append((confidence, rank))
            tokens += rank == 0
        leaves += [(worth * p, alive and rank == r + 1) for r, p in enumerate(rule["p_rank"][b])]
        alive = alive and rank == 0
        worth *= rule["p_top1"][b]
        if worth < rule["min_step_gain"]:
            break
    leaves.sort(key=lambda leaf: -leaf[0])
    price = rule["row_price"]
    room = max(0, min(63, len(price) - 1) - steps)
    gains = np.cumsum([w - (price[steps + 1 + i] - price[steps + i]) for i, (w, _) in enumerate(leaves[:room])])
    take = int(gains.argmax()) + 1 if gains.size and gains.max() > 0 else 0
    tokens += sum(right for _, right in leaves[:take])
    return tokens, steps, 1 + steps + take, received


class World:
    """Texts of kinds that weigh sublayers differently. kind(t) -> harm [2 LAYERS] of leaving a sublayer out at token t;
    logits of being right fall by the harm of all that is left out."""

    def __init__(self, kind, seed=0):
        rng = np.random.default_rng(seed)
        self.kind, self.clock, self.scoring = kind, 0.0, 0.0
        self.ease, self.luck = rng.normal(0, 1.5, 20000), rng.random(20000)
        self.prices = SublayerPrices(CONFIG)
        self.liars = {}  # skip set: how much easier its scores make it look

    def outcome(self, skip, t, bonus=0.0):
        harm = sum(self.kind(t)[s] for s in sublayers(skip, LAYERS))
        confidence = 1 / (1 + np.exp(harm - 3.0 - bonus - self.ease[t % 20000]))
        left = self.luck[t % 20000] - confidence
        return confidence, 0 if left < 0 else 1 if left < 0.5 * confidence * (1 - confidence) else -1

    def price(self, skip):
        return self.prices.price(skip)

    def rate(self, skip, t):
        """True tokens per plain step with this set in text like that at token t."""
        seen, always = _core.AcceptanceRates(thinned=True), World(lambda _: self.kind(t))
        seen.add([always.outcome(skip, i) for i in range(4000)])
        return _core.forecast(seen, self.price(skip), [ROW] * 12)[0]

    def __call__(self, skip, window, end=None):
        """optimizers.base.Scorer."""
        return self._score(skip, window, end, SCORED * PLAIN * window * self.price(skip))

    def exits(self, layers, window, end=None):
        """A pass, and a head after each layer."""
        heads = (len(layers) - 1) * self.price(DraftSpec.early_exit(0))
        seconds = SCORED * PLAIN * window * (1 + heads) / len(layers)
        return [self._score(DraftSpec.early_exit(layer), window, end, seconds) for layer in layers]

    def _score(self, skip, window, end, seconds):
        rows = [self.outcome(skip, t, self.liars.get(skip, 0.0)) for t in range(end - window + 1, end + 1)]
        self.clock += seconds
        self.scoring += seconds
        return Score(np.array([c for c, _ in rows], np.float32), np.array([r for _, r in rows], np.int32), seconds)

    def propose(self, most):
        """The least harmful inner sublayers here."""
        self.clock += 0.3 * most * SCORED * PLAIN
        self.scoring += 0.3 * most * SCORED * PLAIN
        order = sorted(range(2, 2 * LAYERS - 2), key=lambda s: self.kind(self.at)[s])
        return [skip_set(order[:n], LAYERS) for n in range(1, most + 1)]

    at = PROMPT


class SimulatedMeasured(EngineMeasured):
    def __init__(self, planner, world):
        super().__init__(lambda: planner)
        self.world = world

    @property
    def now(self):
        return self.world.clock


@dataclass
class Generation:
    """One text, drafted by an optimizer as director.py would."""

    world: World
    seed: int = 0
    make: Callable[..., Optimizer] | None = None  # (layers, measured, prices); None: the default optimizer
    together: int = 1  # texts of a round
    share: list = field(default_factory=list)  # of decoding time that scoring took, by tokens
    drafted: list = field(default_factory=list)  # whether each token's round drafted
    woken: int = 0

    def __post_init__(self):
        self.planner = _testing.Planner(model(), directed=True)
        make = self.make or partial(searches.auto, seed=self.seed)
        self.auto = make(LAYERS, SimulatedMeasured(self.planner, self.world), SublayerPrices(CONFIG))
        self.start()

    def start(self, prompt=range(PROMPT)):
        """Another text, as long after the one before."""
        if self.share:
            self.auto.finish()
        self.generated = 1
        self.planner.start_text()
        self.auto.start(prompt)
        return self

    def run(self, tokens):
        while self.generated < tokens:
            self._round()
        return self

    def _round(self):
        world, planner, auto = self.world, self.planner, self.auto
        at = world.at = PROMPT + self.generated - 1
        skip, draft, steps, rows, received, n = auto.next().skip, 0.0, 0, 1, [], 1
        rule = planner.next(_core.DraftSpec(**skip.arguments()))
        if rule["drafts"]:
            n, steps, rows, received = play(rule, lambda i: world.outcome(skip, at + 1 + i))
            draft = world.price(skip) * steps * PLAIN
        verify = PLAIN * (1 + ROW * (rows - 1))
        r = Round(draft + verify, draft, steps, verify, rows, n, n - 1)
        world.clock += r.seconds
        self.generated += r.tokens
        given_up = planner.learn(n, rows=rows, draft_steps=steps, draft=draft, verify=verify, outcomes=received)
        if given_up and auto.give_up(planner.lost_rate):
            planner.go_on()
        plain = planner.plain_seconds
        if steps and plain:
            auto.observe(r, plain)
        if auto.step(world, Progress(PROMPT, self.generated, world.clock, plain, together=self.together)):
            planner.wake()
            self.woken += 1
        self.share += [world.scoring / world.clock] * r.tokens
        self.drafted += [bool(steps)] * r.tokens
