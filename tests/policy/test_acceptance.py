"""How often the word of a plan comes true, learned from verified text, and what drafting is worth by it."""

import numpy as np
import pytest

import swiftk
from swiftk import _core

RANKS = 10
STEPS, STAGES = 60, 12  # csrc/planner/forecast.h
EDGES = np.array([0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.87, 0.92, 0.95, 0.975, 0.99])
BUCKETS = 16
LOW, HIGH = np.append(0.0, EDGES), np.append(EDGES, 1.0)


def rates(*outcomes):
    found = _core.AcceptanceRates(thinned=True)
    found.add(list(outcomes))
    return found


def odds(found):
    """(weight [buckets], p_top1 [buckets], p_rank [buckets, ranks - 1])"""
    weight, p_top1, p_rank = map(np.array, found.odds)
    return weight, p_top1, p_rank.T


def truth(power=1.0, scale=1.0, second=0.4):
    """Odds of a draft that is right with scale * confidence ** power."""
    weight = np.linspace(1, 3, BUCKETS)
    p_top1 = np.clip(scale * ((LOW + HIGH) / 2) ** power, 0, 1)
    ranks = (1 - p_top1)[:, None] * second * 0.5 ** np.arange(RANKS - 1)
    return weight / weight.sum(), p_top1, ranks


def outcomes(tables, n, seed=0):
    weight, p_top1, p_rank = tables
    rng = np.random.default_rng(seed)
    chances = np.cumsum(np.concatenate([p_top1[:, None], p_rank], 1), 1)
    for b, u, v in zip(rng.choice(BUCKETS, n, p=weight), rng.random(n), rng.random(n), strict=True):
        rank = int(np.searchsorted(chances[b], u))
        yield LOW[b] + (HIGH[b] - LOW[b]) * (1 - v), rank if rank < RANKS else -1


def learned(tables, n, seed=0, into=None):
    found = into or rates()
    found.add(list(outcomes(tables, n, seed)))
    return found


@pytest.mark.parametrize("power", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("seed", range(2))
def test_odds_come_to_the_truth(power, seed):
    want = truth(power)
    weight, p_top1, p_rank = odds(learned(want, 5000, seed))
    assert p_top1 == pytest.approx(want[1], abs=0.13)  # 300 outcomes are remembered: four standard errors
    assert np.abs(p_top1 - want[1]).mean() < 0.03
    assert np.abs(p_rank[:, 0] - want[2][:, 0]).mean() < 0.03
    assert np.abs(p_rank - want[2]).mean() < 0.01
    assert weight.sum() == pytest.approx(1, abs=1e-6)


def test_how_often_a_confidence_occurs_is_learned_before_memory_is_full():
    want = truth()
    assert odds(learned(want, 2000))[0] == pytest.approx(want[0], abs=0.03)


def test_a_few_outcomes_already_report_a_good_draft_from_a_bad_one():
    good, bad = (odds(learned(truth(scale=s), 40))[1].mean() for s in (1.0, 0.3))
    assert good > bad + 0.15


def test_the_past_is_forgotten():
    found = learned(truth(scale=0.3), 12000, 1, learned(truth(scale=1.0), 6000))
    assert np.abs(odds(found)[1] - truth(scale=0.3)[1]).mean() < 0.06


@pytest.mark.parametrize("n", [0, 1, 7, 60, 3000])
def test_odds_are_always_complete(n):
    weight, p_top1, p_rank = odds(learned(truth(), n))
    for table in (weight, p_top1, p_rank):
        assert np.isfinite(table).all() and (table > 0).all() and (table < 1).all()
    assert weight.sum() == pytest.approx(1)
    assert (p_top1 + p_rank.sum(1) <= 1 + 1e-9).all()


def test_before_anything_was_seen_odds_are_in_order():
    weight, p_top1, p_rank = odds(rates())
    assert (np.diff(p_top1) > 0).all(), "the surer, the more often right"
    assert (np.diff(p_rank, axis=1) < 0).all(), "the further behind, the more seldom right"
    assert (np.diff(p_rank[:, 0]) < 0).all(), "others of a sure draft are seldom needed"
    assert np.ptp(weight) == pytest.approx(0)


def test_what_was_seen_of_one_confidence_completes_the_others():
    def chances(*seen):
        p_top1 = odds(rates(*seen * 60))[1]
        return p_top1 / (1 - p_top1)

    assert (chances((0.3, 0)) > chances()).all()
    assert (chances((0.3, -1)) < 0.3 * chances()).all()


def test_merging_is_having_seen_both():
    a, b = learned(truth(), 90, 1), learned(truth(3.0), 70, 2)
    both = rates(*outcomes(truth(), 90, 1), *outcomes(truth(3.0), 70, 2))
    a.merge(b)
    cells = BUCKETS * (RANKS + 1)
    assert a.counts[:cells] == both.counts[:cells]
    assert odds(a)[0] == pytest.approx(odds(both)[0], abs=0.02)  # the latest weigh most, and those of a came first
    assert a.outcomes == 160 and b.outcomes == 70
    assert a.matchness == pytest.approx(sum(both.counts[: cells : RANKS + 1]) / 160)
    assert (rates().matchness, rates().outcomes) == (0.0, 0.0)


def test_what_is_seldom_is_not_thought_usual_after_many_outcomes():
    """One outcome of a hundred is sure. Each bucket remembers only so many, so that the rows of a long run are alike; a
    forecast from these took the sure one for usual, and promised too much."""
    found = rates(*([(0.02, -1)] * 99 + [(0.995, 0)]) * 100)
    weight = odds(found)[0]
    assert weight[0] > 0.9
    assert weight[-1] < 0.03
    again = rates()
    again.restore(found.counts)
    assert odds(again)[0] == pytest.approx(weight)


def test_counts_that_are_none_are_refused():
    found = learned(truth(), 90)
    again = rates()
    again.restore(found.counts)
    assert again.counts == found.counts
    for counts in ([1.0], [-1.0] * len(found.counts), [float("nan")] * len(found.counts)):
        with pytest.raises(swiftk.InvalidArgument, match="counts"):
            again.restore(counts)
    assert again.counts == found.counts


def rate_of(tables, reach, draft_cost, row_cost, rate, rounds=4000, seed=0):
    """Tokens per plain step of chains with siblings that are drafted while worth `reach`, 25 steps at most. Rows are
    taken where they bring more than they cost at `rate`. Confidences are drawn; acceptance counts by its mean."""
    weight, p_top1, p_rank = tables
    rng = np.random.default_rng(seed)
    chances = np.concatenate([p_top1[:, None], p_rank], 1)
    worth, tokens, cost = np.ones(rounds), rounds * 1.0, rounds * 1.0
    for _ in range(STEPS):
        worth = worth[worth >= reach]
        b = rng.choice(BUCKETS, len(worth), p=weight / weight.sum())
        leaves = worth[:, None] * chances[b]
        taken = leaves > rate * row_cost
        tokens += leaves[taken].sum()
        cost += draft_cost * len(worth) + row_cost * taken.sum()
        worth = worth * p_top1[b]
    return tokens / cost


def forecast(found, draft_cost, row_cost):
    return _core.forecast(found, draft_cost, [row_cost] * STAGES)


@pytest.mark.parametrize("scale", [0.2, 0.9])
def test_a_pace_is_no_promise_of_a_plan(scale):
    """What comes by other means sets the rule, not what a plan is said to bring: of two slow ones, one is better."""
    found = learned(truth(scale=scale), 4000)
    rate, reach = forecast(found, 0.1, 0.02)
    at_pace, dearer = _core.forecast(found, 0.1, [0.02] * STAGES, pace=1.5 * rate)
    assert at_pace == pytest.approx(rate, abs=1e-3)
    assert dearer > reach


CASES = {
    "honest": learned(truth(), 4000),
    "overconfident": learned(truth(3.0, 0.9, 0.8), 4000),
    "poor": learned(truth(1.0, 0.5), 4000),
    "nearly sure": learned(truth(0.05, 0.97, 0.3), 4000),
    "little seen": learned(truth(), 300),
}


@pytest.mark.parametrize("found", CASES.values(), ids=CASES)
@pytest.mark.parametrize(("draft_cost", "row_cost"), [(0.05, 0.005), (0.25, 0.01), (0.55, 0.02), (0.3, 0.1)])
def test_the_forecast_is_the_best_that_playing_reaches(found, draft_cost, row_cost):
    rate, reach = forecast(found, draft_cost, row_cost)
    reaches = np.append(np.geomspace(0.02, 1.0, 40), 1.5)
    played = [rate_of(odds(found), one, draft_cost, row_cost, rate) for one in reaches]
    own = rate_of(odds(found), reach, draft_cost, row_cost, rate)
    assert rate == pytest.approx(max(played), rel=0.012)
    assert own >= 0.99 * max(played)


@pytest.mark.parametrize(("scale", "draft_cost"), [(0.02, 0.3), (0.5, 1.5), (1.0, 3.0)])
def test_where_nothing_pays_nothing_is_drafted(scale, draft_cost):
    rate, reach = forecast(learned(truth(scale=scale, second=0.01), 4000), draft_cost, 0.02)
    assert reach > 1
    assert rate == pytest.approx(1.0)


def test_dearer_is_never_better():
    found = learned(truth(), 4000)
    by_step = [forecast(found, c, 0.01) for c in np.linspace(0.02, 1.0, 15)]
    by_row = [forecast(found, 0.2, c) for c in np.linspace(0, 0.3, 15)]
    for rated in (by_step, by_row):
        assert (np.diff([rate for rate, _ in rated]) <= 2e-3).all()  # Newton's method stops at a thousandth
        assert all(rate >= 1 for rate, _ in rated)
    assert (np.diff([reach for _, reach in by_step]) >= -2e-3).all()


@pytest.mark.parametrize("draft_cost", [0.0, 1e-9, 0.3, 100.0])
@pytest.mark.parametrize("row_cost", [0.0, 0.02, 50.0])
def test_a_forecast_from_nothing_is_finite(draft_cost, row_cost):
    rate, reach = forecast(rates(), draft_cost, row_cost)
    assert np.isfinite([rate, reach]).all()
    assert rate >= 1 and reach >= 0
