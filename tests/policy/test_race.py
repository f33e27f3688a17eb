"""The racer and its three sources of candidates, on simulated texts: each source alone, what it proposes, what it is
asked, and how two candidates are told apart."""

import random
import re
from inspect import getsource
from types import SimpleNamespace

import numpy as np
import pytest

from simulated_text import CONFIG, LAYERS, PLAIN, PROMPT, Generation, SimulatedMeasured, World, model
from swiftk import _testing
from swiftk.draft.draft_spec import DraftSpec
from swiftk.options.swift_settings import SwiftSettings
from swiftk.search import tuned
from swiftk.search.base import DraftConfig, Here, Score, Window
from swiftk.search.budget import Budget
from swiftk.search.evidence import Evidence
from swiftk.search.exits import Exits, exits_to_score, pass_price
from swiftk.search.programs import Programs
from swiftk.search.race import Race
from swiftk.search.sublayers import SublayerPrices, skip_set, sublayers
from swiftk.search.swift import Moves, Sets

UNIFORM = DraftSpec.uniform(LAYERS)
CUT = np.concatenate([np.full(8, 1.2), np.full(16, 0.12)])  # harm of sublayers: best cut after the fourth layer
THIN = np.full(2 * LAYERS, 0.06)  # best thinned
THIN[[0, 1, 8, 9, 10, 11, -4, -3, -2, -1]] = 1.5
SOURCES = {
    "exits": lambda measured, prices: [Exits(LAYERS, measured, prices)],
    "dp": lambda measured, prices: [Programs(LAYERS)],
    "moves": lambda measured, prices: [Moves(LAYERS, 1)],
    "sets": lambda measured, prices: [Sets(LAYERS, SwiftSettings(bayes=False, max_score=1.0))],
}
KINDS = {"exits": {"exit"}, "dp": {"dp"}, "moves": {"move", "random"}, "sets": {"swap", "random"}}


def alone(name, first=UNIFORM):
    """A maker of races that this source alone feeds."""

    def make(n_layers, measured, prices):
        return Race(measured, prices, SOURCES[name](measured, prices), ("uniform", first))

    return make


def here(skip=UNIFORM, number=3, tokens=32):
    return Here(skip, SimpleNamespace(outcomes=0, matchness=0.0), Window(number, tokens, PROMPT + 200))


@pytest.mark.parametrize("name", SOURCES)
def test_each_source_alone_improves_what_drafts_and_keeps_the_budget(name):
    kind = CUT if name == "exits" else THIN
    g = Generation(World(lambda t: kind, 1), 1, make=alone(name)).run(2500)
    assert {one.kind for one in g.auto.trace} - {"uniform"} <= KINDS[name]
    assert g.auto.current.kind in KINDS[name]
    before, after = (g.world.rate(skip, g.generated + PROMPT) for skip in (UNIFORM, g.auto.current.skip))
    assert after > before and max(g.share) < 0.023


def test_all_have_their_turn_and_swifts_candidates_most():
    asked = []

    def source(name, turns):
        def propose(score, here):
            asked.append(name)
            return []

        return SimpleNamespace(turns=turns, cost=lambda here: 0.0, propose=propose, learn=None, reopen=lambda: None)

    g = Generation(World(lambda t: CUT))
    race = g.auto
    race._sources = [source("a", 1), source("b", 1), source("c", 3)]
    race._reopen_sources()
    race._windows = [Window(0, 20, PROMPT + 20)]
    assert race._fresh(g.world) is None
    assert asked[:13] == [*"abc", *"cccba", *"cccba"]


def test_where_no_source_has_anything_nothing_is_scored():
    g = Generation(World(lambda t: CUT), make=alone("sets"))
    g.auto._sources[0].cost = lambda here: None
    g.run(1500)
    assert g.world.scoring == 0 and not g.auto.trace


def test_exits_come_with_their_scores_and_the_one_that_drafts_among_them():
    world, planner = World(lambda t: CUT), _testing.Planner(model(), directed=True)
    exits = Exits(LAYERS, SimulatedMeasured(planner, world), world.prices)
    cost = exits.cost(here())
    layers = exits_to_score(LAYERS, world.price(DraftSpec.early_exit(0)))
    assert cost == 32 * pass_price(len(layers), world.price(DraftSpec.early_exit(0)))
    deep = DraftSpec.early_exit(11)
    found = exits.propose(world, here(deep))
    assert [(kind, skip) for kind, skip, _ in found] == [("exit", DraftSpec.early_exit(n)) for n in (*layers, 11)]
    assert all(score.rows == 32 for _, _, score in found)
    assert exits.cost(here()) is None and exits.cost(here(number=4)) == cost, "a window says the same again"


@pytest.mark.parametrize("layers", [1, 2, 3, 12, 20])
def test_dynamic_programming_is_asked_for_sizes_that_fit(layers):
    asked = []

    def propose(most):
        asked.append(most)
        return [skip_set(range(2, 2 + n), layers) for n in range(1, most + 1)]

    programs, now = Programs(layers), here(DraftSpec.uniform(layers))
    if layers < 3:
        assert programs.cost(now) is None
        return
    assert programs.cost(now) > 0
    found = programs.propose(SimpleNamespace(propose=propose), now)
    sizes = [len(sublayers(skip, layers)) for _, skip, _ in found]
    assert asked == [max(sizes)] and max(sizes) <= min(tuned.DP_WIDTH, 2 * layers - 4)
    assert sizes == sorted(sizes, reverse=True), "the cheapest draft first"
    assert programs.propose(SimpleNamespace(propose=lambda most: []), now) == [], "the text gave its memory up"


def test_sets_have_one_size_and_end_as_the_paper_says():
    sets = Sets(LAYERS, SwiftSettings(bayes=False, max_steps=40, tolerance=10))
    found = [sets.propose(None, here())[0] for _ in range(9)]
    assert {kind for kind, _, _ in found} == {"random", "swap"}
    assert {len(sublayers(skip, LAYERS)) for _, skip, _ in found} == {sets.count}
    for kept in [False] * 11:
        assert sets.cost(here()) == 0.0
        sets.learn(UNIFORM, 0.5, kept)
    assert sets.cost(here()) is None and sets.stopped == "11 steps without gain"
    sets.reopen()
    assert sets.cost(here()) == 0.0
    right = SimpleNamespace(outcomes=500, matchness=0.99)
    assert sets.cost(Here(UNIFORM, right, here().window)) is None, "there is nothing to gain"
    assert sets.cost(here()) == 0.0


@pytest.fixture
def evidence():
    planner = _testing.Planner(model(), directed=True)
    measured, prices = SimulatedMeasured(planner, World(lambda t: CUT)), SublayerPrices(CONFIG)
    return Evidence(DraftConfig(UNIFORM), measured, prices.price, measured.forecast)


def scored(share, rows=32):
    rank = np.where(np.arange(rows) < round(share * rows), 0, -1).astype(np.int32)
    return Score(np.full(rows, 0.9, np.float32), rank, PLAIN)


@pytest.mark.parametrize(("mine", "theirs", "verdict"), [(0.95, 0.5, True), (0.8, 0.95, False), (0.9, 0.89, None)])
def test_two_are_judged_on_the_same_tokens(evidence, mine, theirs, verdict):
    one, windows = (
        DraftConfig(DraftSpec([2, 4, 6, 8, 10], [2, 4, 6, 8, 10])),
        [here(number=n).window for n in (1, 2)],
    )
    evidence.learn(one, windows[0], scored(mine, 128))
    evidence.enter(one)
    assert evidence.judge(one) is None, "however well it does, on other tokens"
    assert evidence.missing(windows) == (evidence.incumbent, windows[0])
    evidence.learn(evidence.incumbent, windows[0], scored(theirs, 128))
    assert evidence.judge(one) is verdict
    assert evidence.missing(windows) == (one, windows[1])


def test_a_full_field_drops_the_last(evidence):
    rng = random.Random(2)
    for share in (0.9, 0.3, 0.8, 0.85):
        one = DraftConfig(skip_set(rng.sample(range(2, 22), 10), LAYERS))
        evidence.learn(one, here().window, scored(share))
        assert evidence.enter(one) is None
    bad = min(evidence.field, key=lambda one: one.promise)
    other = DraftConfig(skip_set([2, 3], LAYERS))
    evidence.learn(other, here().window, scored(0.95))
    assert evidence.enter(other) in (bad, other) and len(evidence.field) == tuned.FIELD


def test_what_was_disproved_is_believed_less(evidence):
    one = DraftConfig(DraftSpec.early_exit(4))
    evidence.learn(one, here(number=1).window, scored(0.95))
    promised = one.promise
    one.kept = 0.5
    evidence.learn(one, here(number=2).window, scored(0.95))
    assert one.promise < 0.6 * promised
    one.forget()
    assert one.kept == 1.0, "of another text nothing is known"


def test_a_budget_earns_its_share_and_learns_what_scores_cost():
    budget = Budget(left=1.0)
    assert budget.affords(16.0, plain_seconds=1.0) and not budget.affords(17.0, plain_seconds=1.0)
    budget.spend(10.0, scoring=0.5, whole=0.7)
    assert budget.left == pytest.approx(0.3)
    assert budget.affords(4.0, plain_seconds=1.0) and not budget.affords(7.0, plain_seconds=1.0)


def test_the_tuned_numbers_are_few_and_each_says_what_set_it():
    lines = [line for line in getsource(tuned).splitlines() if re.match(r"[A-Z_, ]+ =", line)]
    names = [name for line in lines for name in line.partition("=")[0].replace(" ", "").split(",")]
    assert len(names) <= 20 and all("  # " in line for line in lines)
    assert {name for name in vars(tuned) if name.isupper()} == set(names)
