"""Cases that only the exhaustive tests run."""

import pytest


def exhaustive(*cases):
    """For parametrize, beside the cases of the quick tests; one of several arguments is a tuple."""
    marks = pytest.mark.exhaustive
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=marks) for case in cases]
