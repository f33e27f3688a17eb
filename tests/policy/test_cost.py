"""What papers forecast from measured figures."""

import pytest

from swiftk.draft.cost import best_round, break_even, equation_6, tokens_per_round


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


@pytest.mark.parametrize(("alpha", "step"), [(0.8, 0.05), (0.9, 0.05), (0.95, 0.01), (0.5, 2.0)])
def test_the_best_round_is_the_fastest_of_all(alpha, step):
    rate, length = best_round(alpha, step, 1.0, 60)
    assert rate == pytest.approx(tokens_per_round(alpha, length) / (1 + step * length))
    for n in (length - 1, length + 1):
        assert n < 0 or tokens_per_round(alpha, n) / (1 + step * n) <= rate
    assert best_round(alpha, step, 1.0, 0) == (1.0, 0)


def test_a_draft_that_is_no_use_has_no_length():
    assert best_round(0.5, 2.0, 1.0, 60)[1] == 0
    assert best_round(0.999, 0.0, 1.0, 60)[1] == 60
