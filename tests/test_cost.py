"""The cost model and the decision to draft, on a simulated clock."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftk.cost import CostModel, Mean, Round, RowPrices, break_even, equation_6, stages, tokens_per_round
from swiftk.pacing import _BACKOFF, Pacer


def test_equation_6_is_tokens_over_cost():
    c, alpha, drafted = 0.3, 0.8, 5.0
    m = 1 + alpha * drafted
    assert equation_6(m, alpha, c) == pytest.approx(m / (1 + c * drafted))
    assert equation_6(1.0, 0.0, 0.0) == 0.0


@pytest.mark.parametrize(("c", "length", "verify"), [(0.5, 4, 1.0), (0.28, 8, 1.05), (0.61, 2, 1.0), (0.05, 1, 1.2)])
def test_break_even_is_where_both_run_equally_fast(c, length, verify):
    alpha = break_even(c, length, verify)
    assert tokens_per_round(alpha, length) == pytest.approx(c * length + verify)
    assert break_even(1.1, length, verify) is None


def test_mean_follows_and_ignores_an_outlier():
    mean = Mean()
    for x in (9.0, 1.0, 1.0, 1.0, 100.0):
        mean.add(x)
    assert 1.0 <= mean.value < 1.5  # the cold first sample and the hiccup count little
    for _ in range(60):
        mean.add(3.0)
    assert mean.value == pytest.approx(3.0, rel=0.01)


def simulate(c, alpha, length=4, tokens=4000, mode=True, noise=0.0, plain=1.0, change=None, seed=0):
    """(seconds over plain seconds, pacer) of a text on a machine where a draft step costs c plain steps."""
    rng, pacer = random.Random(seed), Pacer(CostModel(), mode)
    pacer.start()
    total = done = 0.0
    while done < tokens:
        if change and done > tokens / 2:
            alpha = change
        jitter = plain * (1 + noise * rng.random() * (10 if noise and rng.random() < 0.01 else 1))
        if pacer.draft_next():
            accepted = 0
            while accepted < length and rng.random() < alpha:
                accepted += 1
            draft, verify = c * length * jitter, 1.05 * jitter
            r = Round(draft + verify, draft, length, verify, length + 1, accepted + 1, accepted)
        else:
            r = Round(jitter, verify_seconds=jitter)
        if pacer.observe(r):
            pacer.settle()
        total += r.seconds / (1 + 0.5 * noise)
        done += r.tokens
    return total / (done * plain), pacer


@pytest.mark.parametrize(("c", "alpha"), [(0.6, 0.3), (0.9, 0.6), (1.0, 0.0), (0.5, 0.1), (2.0, 0.9)])
@pytest.mark.parametrize("plain", [1.0, 1e-3])
def test_a_bad_draft_costs_at_most_two_percent(c, alpha, plain):
    ratio, pacer = simulate(c, alpha, plain=plain)
    assert ratio <= 1.02
    assert pacer.reason_off is not None


@pytest.mark.parametrize(("c", "alpha"), [(0.1, 0.8), (0.28, 0.95), (0.4, 0.9), (0.2, 0.6)])
def test_a_good_draft_is_kept(c, alpha):
    ratio, pacer = simulate(c, alpha)
    ideal = (4 * c + 1.05) / tokens_per_round(alpha, 4)
    assert ratio <= ideal * 1.06
    assert pacer.reason_off is None


@pytest.mark.parametrize("seed", range(5))
def test_noise_neither_stops_a_good_draft_nor_keeps_a_bad_one(seed):
    good, _ = simulate(0.2, 0.9, noise=0.3, seed=seed)
    bad, _ = simulate(0.8, 0.3, noise=0.3, seed=seed)
    assert good < 0.65
    assert bad < 1.05


def test_drafting_comes_back_when_it_pays_again():
    _, pacer = simulate(0.3, 0.95, change=0.1, tokens=8000)
    assert pacer.reason_off is not None
    better, pacer = simulate(0.3, 0.1, change=0.95, tokens=8000)
    assert pacer.reason_off is None
    assert better < 0.9


def test_modes():
    assert simulate(2.0, 0.0, mode="always", tokens=200)[0] > 5
    ratio, pacer = simulate(0.1, 1.0, mode=False)
    assert ratio == pytest.approx(1.0)
    assert pacer.costs.plain.count == 4000


def test_the_reason_is_in_numbers():
    _, pacer = simulate(0.61, 0.48)
    assert pacer.reason_off.startswith("draft step costs 0.61 of a target step; acceptance 0.")
    assert "break-even 0." in pacer.reason_off or "out of reach" in pacer.reason_off


@given(st.floats(0.0, 0.2), st.integers(1, 63), st.floats(0.0, 0.6), st.integers(0, 2**32))
def test_sources_alone_lose_no_more_than_their_purse(row, guessed, alpha, seed):
    """On a machine where a row costs what it costs, however much they guess."""
    rng, pacer, lost = random.Random(seed), Pacer(CostModel(), plan=False), 0.0
    pacer.start()
    for done in range(1, 600):
        most = pacer.most_nodes() if pacer.draft_next() else 1
        assert most >= 1
        rows, accepted = min(most, 1 + guessed), 0
        while accepted + 1 < rows and rng.random() < alpha:
            accepted += 1
        seconds = 1 + row * (rows - 1)
        r = Round(seconds, verify_seconds=seconds, verify_rows=rows, tokens=accepted + 1, accepted=accepted)
        if pacer.observe(r):
            pacer.settle()
        lost += seconds - r.tokens
        wrong = row * guessed  # one tree, before it was known what its rows cost
        assert lost <= 1 + 0.01 * done + wrong


def lose(pacer):
    """Drafts at a loss until it is given up; rounds it took."""
    for n in range(1, 1000):
        drafts = pacer.draft_next()
        r = Round(1.4, 0.4, 1, 1.0, 2, 1, 0) if drafts else Round(1.0, verify_seconds=1.0)
        if pacer.observe(r):
            return n
    raise AssertionError("never given up")


def test_another_way_takes_over_once_and_on_half_the_allowance():
    pacer = Pacer(CostModel())
    pacer.start()
    first = lose(pacer)
    assert pacer.rate == pytest.approx(1 / 1.4, rel=0.01)
    pacer.settle(another=True)
    assert pacer.draft_next()
    pacer.switch(CostModel(plain=pacer.costs.plain))
    second = lose(pacer)
    pacer.settle(another=True)
    assert second < 0.75 * first
    assert not pacer.draft_next() and pacer.reason_off


def test_gains_make_good_for_failures():
    pacer = Pacer(CostModel())
    pacer.start()
    first = lose(pacer)
    pacer.settle(another=True)
    for _ in range(200):
        drafts = pacer.draft_next()
        pacer.observe(Round(1.4, 0.4, 1, 1.0, 2, 3, 2) if drafts else Round(1.0, verify_seconds=1.0))
    assert pacer.reason_off is None
    assert lose(pacer) > first, "the credit of what was gained"
    pacer.settle(another=True)
    assert pacer.draft_next()


def test_waking_ends_a_rest_and_its_growth():
    _, pacer = simulate(1.0, 0.0)
    assert pacer.reason_off is not None and not pacer.draft_next()
    pacer.wake()
    assert pacer.reason_off is None
    assert pacer.draft_next()
    pacer.settle()
    rested = 0
    while not pacer.draft_next():
        pacer.observe(Round(1.0, verify_seconds=1.0))
        rested += 1
    assert rested == _BACKOFF, "a rest after waking is as short as the first one"


def test_waking_does_not_override_the_mode():
    for mode in (False, "always"):
        pacer = Pacer(CostModel(), mode)
        pacer.wake()
        assert pacer.draft_next() == (mode == "always")


# Prices of rows


def priced(truth, rows=(2, 4, 8, 14, 32), rounds=300, seed=0, spikes=0.0, drift=0.0):
    """RowPrices of a machine on which n rows take truth(n) plain steps."""
    rng, prices = random.Random(seed), RowPrices()
    for i in range(rounds):
        speed = 1 + drift * i / rounds
        prices.plain(speed)
        for _ in range(4):
            n = rng.choice(rows)
            prices.add(n, speed * truth(n) * (10 if rng.random() < spikes else 1))
    return prices.table()


def linear(n):
    return 1 + 0.02 * (n - 1)


@pytest.mark.parametrize(("spikes", "drift"), [(0.0, 0.0), (0.1, 0.0), (0.0, 5.0), (0.1, 5.0)])
def test_row_prices_are_found_on_a_busy_machine_that_changes_its_speed(spikes, drift):
    table = priced(linear, spikes=spikes, drift=drift)
    want = [linear(n) - 1 for n in range(1, 33)]
    assert table[:32] == pytest.approx(want, rel=0.02, abs=1e-3)


def test_rounds_far_from_a_plain_one_say_nothing():
    """The machine's speed changes behind a plain step: only a few rounds are compared with it."""
    prices = RowPrices()
    prices.plain(1.0)
    for _ in range(6):
        prices.add(8, 1.1)
    for _ in range(50):
        prices.add(8, 9.0)
    assert prices.table()[7] == pytest.approx(0.1)


def test_where_no_others_are_they_count_until_the_next_plain_step():
    """A tree that was never seen beside a plain step is not taken to cost less than it did."""
    prices = RowPrices()
    prices.plain(1.0)
    for _ in range(6):
        prices.add(8, 1.1)
    unseen = prices.table()[23]
    prices.add(24, 4.0)
    assert prices.table()[23] == pytest.approx(3.0) and prices.table()[7] == pytest.approx(0.1)
    prices.plain(1.0)
    assert prices.table()[23] == pytest.approx(unseen)


def test_chains_pay_for_rows_by_their_length():
    """forecast() is told what a row costs behind so many steps."""
    table = np.concatenate([np.zeros(8), np.arange(1, 57) * 0.1])
    assert stages(table) == pytest.approx([0.0, 0.06, 0.1, 0.1, 0.1])


def test_one_row_and_rows_before_a_plain_step_say_nothing():
    prices = RowPrices()
    before = prices.table()
    prices.add(8, 5.0)
    prices.plain(1.0)
    prices.add(1, 5.0)
    assert prices.table() == pytest.approx(before)


@pytest.mark.parametrize("seed", range(4))
def test_row_prices_never_fall(seed):
    rng, prices = random.Random(seed), RowPrices()
    for _ in range(100):
        prices.plain(1.0)
        prices.add(rng.randint(2, 64), rng.uniform(0.8, 1.5))
        table = prices.table()
        assert table[0] == 0 < table[1] and len(table) == 64
        assert all(b >= a for a, b in itertools.pairwise(table))


def test_beyond_what_was_measured_rows_may_be_bound_by_arithmetic():
    table = priced(linear, rows=(2, 8))
    assert table[7] == pytest.approx(7 * 0.02, rel=0.02)
    assert table[63] == pytest.approx(table[7] + 56 * 0.09, rel=0.02)
    dear = priced(lambda n: 1 + 0.1 * (n - 1), rows=(2, 8))
    assert dear[63] == pytest.approx(63 * 0.1, rel=0.02)
    cheap = priced(lambda n: 1.0, rows=(2, 8))
    assert cheap[7] < 0.01
    assert cheap[63] > 0.5, "no measurement says that 64 rows are free"


def test_a_step_in_the_prices_is_seen():
    """Kernels take rows in tiles: 17 rows may cost twice 16."""
    table = priced(lambda n: 1.0 if n <= 16 else 2.0, rows=(8, 16, 20, 24))
    assert table[15] < 0.01 and table[19] == pytest.approx(1.0)


def test_a_cost_model_prices_rows_by_verification_alone():
    model = CostModel()
    for _ in range(4):
        model.add(Round(1.5, verify_seconds=1.0))  # half a second of other work
        model.add(Round(3.0, 1.2, 4, 1.3, 8, 3, 2))
    prices = model.prices()
    assert prices.rows[7] == pytest.approx(0.3)
    assert prices.rows[7] / 7 == pytest.approx(0.3 / 7)
    assert (prices.draft, prices.seconds) == (pytest.approx(0.3 / 1.5), 1.5)


def test_a_pass_over_guesses_is_no_plain_step():
    costs = CostModel()
    costs.add(Round(1.0, verify_seconds=1.0))
    costs.add(Round(1.3, verify_seconds=1.3, verify_rows=8, tokens=4, accepted=3, guessed=3))
    assert costs.plain.count == 1
    assert (costs.draft.count, costs.verify.count) == (0, 1)
    assert costs.prices().rows[7] == pytest.approx(0.3)
