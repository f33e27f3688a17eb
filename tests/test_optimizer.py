"""The optimizer on simulated ways of drafting: it finds the good one, cheaply, and sticks to it."""

import random

import pytest

from swiftk.cost import CostModel, Pacer, Round
from swiftk.gate import DraftRule, FixedGate
from swiftk.optimizer import Optimizer, Way, candidates
from swiftk.skip import SkipSet


def make(n):
    return Optimizer([Way(SkipSet.early_exit(i), CostModel(), FixedGate(DraftRule())) for i in range(n)])


def simulate(ways, tokens=3000, length=3, seed=0, change=None):
    """Plays ways given as (draft cost, acceptance). Returns (tokens per plain step, rounds of each way, pacer)."""
    rng, optimizer = random.Random(seed), make(len(ways))
    pacer = Pacer(optimizer.ways[0].costs)
    for way in optimizer.ways:
        way.costs.plain = pacer.costs.plain
    pacer.start()
    done = seconds = 0.0
    played = [0] * len(ways)
    while done < tokens:
        if change and done > tokens / 2:
            ways, change = change, None
        if pacer.draft_next():
            way = optimizer.next()
            pacer.switch(way.costs)
            index = optimizer.ways.index(way)
            played[index] += 1
            c, alpha = ways[index]
            accepted = 0
            while accepted < length and rng.random() < alpha:
                accepted += 1
            r = Round(c * length + 1.02, c * length, length, 1.02, length + 1, accepted + 1, accepted)
        else:
            r = Round(1.0, verify_seconds=1.0)
        if pacer.observe(r):
            pacer.settle(another=optimizer.give_up(), untried=optimizer.untried)
        if r.draft_steps:
            optimizer.observe(r.tokens, r.seconds)
        seconds += r.seconds
        done += r.tokens
    return done / seconds, played, pacer


@pytest.mark.parametrize("best", range(4))
@pytest.mark.parametrize("seed", range(3))
def test_finds_the_best_way(best, seed):
    ways = [(0.5, 0.6)] * 4
    ways[best] = (0.25, 0.85)
    rate, played, _ = simulate(ways, seed=seed)
    assert played[best] > 0.6 * sum(played)
    assert rate > 1.5


@pytest.mark.parametrize("seed", range(3))
def test_ways_that_all_lose_cost_little(seed):
    rate, _, pacer = simulate([(0.6, 0.3), (0.3, 0.05), (0.4, 0.1), (0.5, 0.1)], seed=seed)
    assert rate > 0.97
    assert "draft step costs" in pacer.reason_off


@pytest.mark.parametrize("seed", range(3))
def test_a_good_way_is_found_behind_a_bad_start(seed):
    rate, played, _ = simulate([(0.6, 0.2), (0.3, 0.0), (0.2, 0.9), (0.5, 0.1)], tokens=4000, seed=seed)
    assert played[2] > 0.7 * sum(played)
    assert rate > 1.4


def test_follows_a_change():
    _, played, _ = simulate([(0.2, 0.9), (0.2, 0.3)], tokens=12000, change=[(0.2, 0.1), (0.2, 0.9)])
    assert min(played) > 300


def test_a_short_text_sees_the_start_alone():
    optimizer = make(4)
    for _ in range(10):
        assert optimizer.next() is optimizer.ways[0]
        optimizer.observe(2, 1.5)
    assert optimizer.next() is optimizer.ways[1]


def test_one_way_is_played_for_ever():
    optimizer = make(1)
    for _ in range(50):
        optimizer.next()
        optimizer.observe(1, 9.0)
        assert not optimizer.give_up()
    assert optimizer.next() is optimizer.ways[0]


@pytest.mark.parametrize("layers", [1, 2, 3, 8, 16, 32, 80])
def test_candidates_fit_every_depth(layers):
    sets = candidates(layers)
    assert sets[0] == SkipSet.uniform(layers)
    assert len(set(sets)) == len(sets)
    for one in sets:
        one.check(layers)
