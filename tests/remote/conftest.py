"""A model with the heads of a module's fixtures `target` and `folders`, and its server."""

import pytest

import swiftk


@pytest.fixture(scope="module")
def lm(target, folders):
    options = {"dtype": "float32", "draft_weights": "own", "max_sequences": 4, "device": "cpu"}
    with swiftk.load(target, drafter=list(folders.values()), **options) as found:
        yield found


@pytest.fixture(scope="module")
def url(lm):
    from serving import serving

    with serving(lm) as (address, _):
        yield address
