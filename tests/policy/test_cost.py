"""What papers forecast from measured figures."""

import pytest

from swiftk.draft.cost import break_even, equation_6, tokens_per_round


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
