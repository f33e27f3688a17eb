"""The cost model and the decision to draft, on a simulated clock."""

import random

import pytest

from swiftk.cost import CostModel, Mean, Pacer, Round, break_even, equation_6, tokens_per_round


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
