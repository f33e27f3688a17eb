"""What outcomes teach, and what drafting is worth by it: against the truth behind simulated outcomes and texts."""

import numpy as np
import pytest

from swiftk.calibration import BUCKETS, EDGES, RANKS, Calibration, forecast

LOW, HIGH = np.append(0.0, EDGES), np.append(EDGES, 1.0)


def truth(power=1.0, scale=1.0, runner_up=0.4):
    """(weight, hold, runner_up) of a draft that is right with scale * confidence ** power."""
    weight = np.linspace(1, 3, BUCKETS)
    hold = np.clip(scale * ((LOW + HIGH) / 2) ** power, 0, 1)
    ranks = (1 - hold)[:, None] * runner_up * 0.5 ** np.arange(RANKS - 1)
    return weight / weight.sum(), hold, ranks


def outcomes(tables, n, seed=0):
    weight, hold, runner_up = tables
    rng = np.random.default_rng(seed)
    chances = np.cumsum(np.concatenate([hold[:, None], runner_up], 1), 1)
    for b, u, v in zip(rng.choice(BUCKETS, n, p=weight), rng.random(n), rng.random(n), strict=True):
        rank = int(np.searchsorted(chances[b], u))
        yield LOW[b] + (HIGH[b] - LOW[b]) * (1 - v), rank if rank < RANKS else -1


def learned(tables, n, seed=0, calibration=None):
    calibration = calibration or Calibration()
    calibration.add(outcomes(tables, n, seed))
    return calibration


@pytest.mark.parametrize("power", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("seed", range(2))
def test_tables_come_to_the_truth(power, seed):
    want = truth(power)
    weight, hold, runner_up = learned(want, 5000, seed).tables()
    assert hold == pytest.approx(want[1], abs=0.13)  # 300 outcomes are remembered: four standard errors
    assert np.abs(hold - want[1]).mean() < 0.03
    assert np.abs(runner_up[:, 0] - want[2][:, 0]).mean() < 0.03
    assert np.abs(runner_up - want[2]).mean() < 0.01
    assert weight.sum() == pytest.approx(1, abs=1e-6)


def test_how_often_a_confidence_occurs_is_learned_before_memory_is_full():
    want = truth()
    assert learned(want, 2000).tables()[0] == pytest.approx(want[0], abs=0.03)


def test_a_few_outcomes_already_tell_a_good_draft_from_a_bad_one():
    good, bad = (learned(truth(scale=s), 40).tables()[1].mean() for s in (1.0, 0.3))
    assert good > bad + 0.15


def test_the_past_is_forgotten():
    calibration = learned(truth(scale=1.0), 6000)
    learned(truth(scale=0.3), 12000, 1, calibration)
    assert np.abs(calibration.tables()[1] - truth(scale=0.3)[1]).mean() < 0.06


@pytest.mark.parametrize("n", [0, 1, 7, 60, 3000])
def test_tables_are_always_complete(n):
    weight, hold, runner_up = learned(truth(), n).tables()
    for table in (weight, hold, runner_up):
        assert np.isfinite(table).all() and (table > 0).all() and (table < 1).all()
    assert weight.sum() == pytest.approx(1)
    assert (hold + runner_up.sum(1) <= 1 + 1e-9).all()


def test_before_anything_was_seen_tables_are_in_order():
    weight, hold, runner_up = Calibration().tables()
    assert (np.diff(hold) > 0).all(), "the surer, the more often right"
    assert (np.diff(runner_up, axis=1) < 0).all(), "the further behind, the more seldom right"
    assert (np.diff(runner_up[:, 0]) < 0).all(), "runners-up of a sure draft are seldom needed"
    assert np.ptp(weight) == pytest.approx(0)


def test_what_was_seen_of_one_confidence_completes_the_others():
    def odds(*outcomes):
        calibration = Calibration()
        calibration.add(outcomes * 60)
        hold = calibration.tables()[1]
        return hold / (1 - hold)

    assert (odds((0.3, 0)) > odds()).all()
    assert (odds((0.3, -1)) < 0.3 * odds()).all()


def test_merging_is_having_seen_both():
    a, b, both = learned(truth(), 90, 1), learned(truth(3.0), 70, 2), Calibration()
    both.add([*outcomes(truth(), 90, 1), *outcomes(truth(3.0), 70, 2)])
    a.merge(b)
    assert np.array_equal(a.counts, both.counts)
    assert a.outcomes == 160
    assert a.matchness == pytest.approx(both.counts[:, 0].sum() / 160)
    assert b.outcomes == 70
    empty = Calibration()
    assert (empty.matchness, empty.outcomes) == (0.0, 0.0)


def rate_of(tables, reach, draft_cost, row_cost, rate, rounds=4000, seed=0):
    """Tokens per plain step of chains with siblings that are drafted while worth `reach`, 25 steps at most. Rows are
    taken where they bring more than they cost at `rate`. Confidences are drawn; acceptance counts by its mean."""
    weight, hold, runner_up = tables
    rng = np.random.default_rng(seed)
    chances = np.concatenate([hold[:, None], runner_up], 1)
    worth, tokens, cost = np.ones(rounds), rounds * 1.0, rounds * 1.0
    for _ in range(25):
        worth = worth[worth >= reach]
        b = rng.choice(BUCKETS, len(worth), p=weight / weight.sum())
        leaves = worth[:, None] * chances[b]
        taken = leaves > rate * row_cost
        tokens += leaves[taken].sum()
        cost += draft_cost * len(worth) + row_cost * taken.sum()
        worth = worth * hold[b]
    return tokens / cost


CASES = {
    "honest": truth(),
    "overconfident": truth(3.0, 0.9, 0.8),
    "poor": truth(1.0, 0.5),
    "nearly sure": truth(0.05, 0.97, 0.3),
    "learned": learned(truth(), 300).tables(),
}


@pytest.mark.parametrize("tables", CASES.values(), ids=CASES)
@pytest.mark.parametrize(("draft_cost", "row_cost"), [(0.05, 0.005), (0.25, 0.01), (0.55, 0.02), (0.3, 0.1)])
def test_the_forecast_is_the_best_that_playing_reaches(tables, draft_cost, row_cost):
    best = forecast(tables, draft_cost, row_cost)
    reaches = np.append(np.geomspace(0.02, 1.0, 40), 1.5)
    played = [rate_of(tables, reach, draft_cost, row_cost, best.rate) for reach in reaches]
    own = rate_of(tables, best.reach, draft_cost, row_cost, best.rate)
    assert best.rate == pytest.approx(max(played), rel=0.012)
    assert own >= 0.99 * max(played)


def test_free_drafts_that_are_always_right_are_limited_by_their_rows_alone():
    sure = (np.full(BUCKETS, 1 / BUCKETS), np.ones(BUCKETS), np.zeros((BUCKETS, RANKS - 1)))
    best = forecast(sure, 0.0, 0.0)
    assert best.rate == pytest.approx(26)  # as many steps as it looks ahead, and the bonus
    assert best.reach < 0.03
    dear = forecast(sure, 0.25, 0.0)
    assert dear.rate == pytest.approx(26 / (1 + 25 * 0.25), rel=1e-3)


@pytest.mark.parametrize(("scale", "draft_cost"), [(0.02, 0.3), (0.5, 1.5), (1.0, 3.0)])
def test_where_nothing_pays_nothing_is_drafted(scale, draft_cost):
    best = forecast(truth(scale=scale, runner_up=0.01), draft_cost, 0.02)
    assert best.reach > 1
    assert best.rate == pytest.approx(1.0)


def test_dearer_is_never_better():
    costs = np.linspace(0.02, 1.0, 15)
    by_step = [forecast(truth(), c, 0.01) for c in costs]
    by_row = [forecast(truth(), 0.2, c) for c in np.linspace(0, 0.3, 15)]
    for found in (by_step, by_row):
        assert (np.diff([one.rate for one in found]) <= 1e-6).all()
        assert all(one.rate >= 1 for one in found)
    assert (np.diff([one.reach for one in by_step]) >= -1e-6).all()


@pytest.mark.parametrize("draft_cost", [0.0, 1e-9, 0.3, 100.0])
@pytest.mark.parametrize("row_cost", [0.0, 0.02, 50.0])
def test_a_forecast_from_nothing_is_finite(draft_cost, row_cost):
    best = forecast(Calibration().tables(), draft_cost, row_cost)
    assert np.isfinite([best.rate, best.reach]).all()
    assert best.rate >= 1 and best.reach >= 0
