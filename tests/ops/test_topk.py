"""Top k with and without noise, and log sum exp, against the oracle."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from swiftk._testing import ops

import reference as ref
from op_data import normal

ISAS = ops.isas()
VOCABS = [1, 3, 100, 1024, 1027, 32003]


@pytest.fixture(params=ISAS)
def kernels(request):
    return ops.Kernels(request.param, 2)


def check(got, want):
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_array_equal(got[1], want[1])
    np.testing.assert_allclose(got[2], want[2], rtol=2e-6, atol=1e-5)
    np.testing.assert_allclose(got[3], want[3], rtol=1e-5)


@pytest.mark.parametrize("vocab", VOCABS)
@pytest.mark.parametrize("k", [1, 10, 64])
def test_plain(kernels, vocab, k):
    rng = np.random.default_rng(vocab + k)
    logits = 5 * normal(rng, 3, vocab)
    k = min(k, vocab)
    check(kernels.topk(logits, k), ref.topk(logits, k))


def test_ties_go_to_the_lowest_id(kernels):
    logits = np.zeros((1, 20011), np.float32)
    logits[0, [4, 9999, 20010]] = 1
    ids = kernels.topk(logits, 64)[0][0]
    assert list(ids) == [4, 9999, 20010] + [i for i in range(62) if i != 4]


@pytest.mark.parametrize("k", [1, 5, 40])
@pytest.mark.parametrize("spread", [0.0, 1.0, 8.0])
@pytest.mark.parametrize("vocab", [50, 5000])
def test_noisy(kernels, k, spread, vocab):
    rng = np.random.default_rng(k)
    logits = (spread * normal(rng, 3, vocab)).astype(np.float32)
    pos, seed, scale = np.int32([0, 7, 100000]), 0xDEADBEEF12345678, 1 / 0.7
    noise = np.stack([ref.gumbel(seed, int(p), vocab, 1) for p in pos])
    got = kernels.topk(logits, k, scale=scale, seed=seed, stream=1, pos=pos)
    check(got, ref.topk(logits, k, scale=scale, noise=noise))


@given(
    isa=st.sampled_from(ISAS),
    vocab=st.integers(1, 2600),
    k=st.integers(1, 64),
    noisy=st.booleans(),
    removed=st.floats(0, 1),
    scale=st.sampled_from([0.05, 1.0, 30.0]),
    seed=st.integers(0, 2**64 - 1),
)
def test_separate_scores(isa, vocab, k, noisy, removed, scale, seed):
    """Scores from elsewhere, some of them removed: id -1 stands where nothing is left."""
    rng = np.random.default_rng(seed % 2**32)
    k = min(k, vocab)
    logits, scores = normal(rng, 2, vocab), 3 * normal(rng, 2, vocab)
    scores[rng.random(scores.shape) < removed] = -np.inf
    pos = np.int32([5, 6])
    noise = np.stack([ref.gumbel(seed, int(p), vocab, 0) for p in pos]) if noisy else None
    got = ops.Kernels(isa, 2).topk(logits, k, scores, scale, seed if noisy else None, 0, pos)
    ids, logit, lse, mass = ref.topk(logits, k, scores, scale, noise)
    there = np.arange(k) < (scores > -np.inf).sum(1)[:, None]
    check(got, (np.where(there, ids, -1), np.where(there, logit, -np.inf), lse, mass))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 1023, 1029, 2049])
@pytest.mark.parametrize("noisy", [False, True])
def test_bad_logits_surface(kernels, bad, at, noisy):
    logits = np.zeros((2, 2050), np.float32)
    logits[1, at] = bad
    lse = kernels.topk(logits, 3, seed=1 if noisy else None, pos=np.int32([1, 1]))[2]
    assert np.isfinite(lse[0]) and not np.isfinite(lse[1])


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_nothing_but_bad_logits(kernels, value):
    ids, _, lse, _ = kernels.topk(np.full((1, 3000), value, np.float32), 4)
    assert (ids == -1).all() and not np.isfinite(lse[0])


def test_draws_follow_the_distribution(kernels):
    """argmax of logits + noise is a draw from their softmax."""
    p = np.array([0.5, 0.25, 0.15, 0.07, 0.03])
    n = 4000
    logits = np.tile(np.log(p).astype(np.float32), (n, 1))
    ids = kernels.topk(logits, 1, seed=3, pos=np.arange(n, dtype=np.int32))[0][:, 0]
    share = np.bincount(ids, minlength=5) / n
    assert np.abs(share - p).max() < 4 * np.sqrt(0.25 / n)
