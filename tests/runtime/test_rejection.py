"""The rejection rule by enumeration: all ways in which siblings can be drawn, accepted or not, add up to the target."""

from itertools import permutations

import numpy as np
import pytest
from swiftk._testing.ops import rejection


def softmax(scores):
    """In double, as the runtime has it: from scores of 32 bits."""
    scores = np.float64(np.float32(scores))
    p = np.exp(scores - scores.max())
    return p / p.sum()


def cut(p, top_k=0, top_p=1.0):
    """Without the tokens that the filters remove."""
    order, p = np.argsort(-p, kind="stable"), p.copy()
    most = top_k or len(p)
    most = min(most, int(np.searchsorted(np.cumsum(p[order]), top_p)) + 1)
    p[order[most:]] = 0
    return p / p.sum()


def emitted(p, q, width):
    """The exact distribution of the token that comes out, and the probability of all siblings that can be drawn."""
    out, total = np.zeros(len(p)), 0.0
    count = int(min(width, np.count_nonzero(q)))
    for siblings in permutations(np.flatnonzero(q), count):
        drawn, left = 1.0, list(q)
        for x in siblings:
            drawn *= left[x] / sum(left)
            left[x] = 0.0
        if drawn == 0:
            continue
        total += drawn
        chances, rest = rejection(p.tolist(), q.tolist(), [int(x) for x in siblings])
        for x, chance in zip(siblings, chances):
            assert 0 <= chance <= 1
            out[x] += drawn * chance
            drawn *= 1 - chance
        out += drawn * np.array(rest) / sum(rest)
    return out, total


def check(p, q, width):
    out, total = emitted(p, q, width)
    assert abs(total - 1) < 1e-9
    assert np.abs(out - p).max() < 1e-12
    assert (out[p == 0] == 0).all()


TEMPERATURES = [0.01, 0.02, 0.05, 0.1, 0.3, 1.0, 2.0]


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("vocab, widths", [(2, (1, 2)), (4, (1, 2, 3, 4)), (6, (1, 2, 3, 6, 10))])
def test_siblings_add_up_to_the_target(vocab, widths, temperature):
    rng = np.random.default_rng(vocab)
    for close in (0.0, 0.01, 1.0):  # how far the draft's logits are from the target's
        logits = rng.standard_normal(vocab) * 3
        p = softmax(logits / temperature)
        q = softmax((logits + close * rng.standard_normal(vocab)) / temperature)
        for width in widths:
            check(p, q, width)


@pytest.mark.parametrize("temperature", [0.02, 0.3, 1.0])
@pytest.mark.parametrize("filters", [{"top_k": 2}, {"top_p": 0.7}, {"top_k": 3, "top_p": 0.95}], ids=str)
def test_filters(temperature, filters):
    """Draft and target remove other tokens: what the target excludes never comes, though it was drawn."""
    rng = np.random.default_rng(3)
    for _ in range(4):
        p, q = (cut(softmax(rng.standard_normal(5) / temperature), **filters) for _ in range(2))
        for width in (1, 2, 5):
            check(p, q, width)


@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_ties(temperature):
    scores = np.array([1.0, 1.0, 0.0, 0.0, -1.0])
    for other in (scores, scores[::-1], np.zeros(5)):
        for width in (1, 3, 5):
            check(softmax(scores / temperature), softmax(other / temperature), width)


def test_a_draft_that_is_certain_leaves_nothing_to_a_second_sibling():
    """q(x) rounds to 1 there, and its rest to e^-200 or 0: a second sibling is judged by p alone."""
    p = np.array([0.25, 0.75, 0.0])
    for tiny in (np.exp(-200.0), 0.0):
        q = np.array([1.0, 0.0, tiny])
        chances, rest = rejection(p.tolist(), q.tolist(), [0, 2])
        assert chances == [0.25, 0.0]
        assert rest == [0.0, 1.0, 0.0]


def test_given_siblings_are_certain_proposals():
    chances, rest = rejection([0.5, 0.3, 0.2], [], [1, 0])
    assert np.allclose(chances, [0.3, 0.5 / 0.7]) and np.allclose(rest, [0, 0, 1])
    chances, rest = rejection([1.0, 1e-30, 0.0], [], [0])
    assert rest == [0.0, 1.0, 0.0]
