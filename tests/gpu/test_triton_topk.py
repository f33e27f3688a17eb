"""Triton's top k and noise in the interpreter, against the oracle."""

import numpy as np
import pytest

import reference as ref
from cases import Shape
from triton_interpreter import Pack, interpreter_fixture  # noqa: F401

LISTED = 64


def logits_of(rng, n, vocab, spread=3.0):
    return (spread * rng.standard_normal((n, vocab))).astype(np.float32)


class Topk:
    def __init__(self, interpreter, vocab):
        self.pack = Pack(interpreter, Shape("", D=1, H=1, n_kv=1, d=2, F=1, V=vocab))
        self.blocks = self.pack.entries["topk_merge"].constants["BLOCKS"]

    def lists(self, logits, k, scores=None, scale=1.0, seed=0, noisy=False, stream=0, pos=None):
        """What the blocks found: scores, ids, (max, sum, mass)."""
        n = len(logits)
        scores = logits if scores is None else scores
        pos = np.zeros(n, np.int32) if pos is None else pos
        part = (
            np.full((n, self.blocks, LISTED), np.nan, np.float32),
            np.full((n, self.blocks, LISTED), -7, np.int32),
            np.full((n, self.blocks, 3), np.nan, np.float32),
        )
        scalars = np.int64([seed]), np.float32([scale]), int(noisy), stream, k
        self.pack.run("topk_partial", (self.blocks, n), logits, scores, pos, *scalars, *part)
        return part

    def run(self, logits, k, scores=None, scale=1.0, **options):
        n = len(logits)
        part = self.lists(logits, k, scores, scale, **options)
        id, logit = np.full((n, LISTED), -7, np.int32), np.full((n, LISTED), np.nan, np.float32)
        lse, mass = np.empty(n, np.float32), np.empty(n, np.float32)
        self.pack.run("topk_merge", (n,), logits, *part, np.float32([scale]), k, id, logit, lse, mass)
        assert (id[:, k:] == -7).all()
        return id[:, :k], logit[:, :k], lse, mass


def check(found, expected):
    assert np.array_equal(found[0], expected[0])
    assert np.array_equal(found[1], expected[1])
    np.testing.assert_allclose(found[2], expected[2], rtol=2e-6, atol=1e-5)
    np.testing.assert_allclose(found[3], expected[3], rtol=1e-5)


@pytest.mark.parametrize("vocab, k", [(1, 1), (3, 3), (100, 10), (1024, 1), (2500, 64)])
def test_plain(interpreter, vocab, k):
    logits = logits_of(np.random.default_rng(vocab), 2, vocab)
    check(Topk(interpreter, vocab).run(logits, k), ref.topk(logits, k))


def test_ties_go_to_the_lowest_id(interpreter):
    logits = np.zeros((1, 3011), np.float32)
    logits[0, ::2] = -0.0  # equal to 0
    logits[0, [4, 1999, 3010]] = 1
    ids = Topk(interpreter, 3011).run(logits, 20)[0][0]
    assert list(ids) == [4, 1999, 3010] + [i for i in range(18) if i != 4]


@pytest.mark.parametrize("seed", [3, -0x1234567890ABCDEF])
def test_noisy(interpreter, seed):
    logits = logits_of(np.random.default_rng(4), 3, 1300)
    pos, scale = np.int32([0, 7, 100000]), 1 / 0.7
    noise = np.stack([ref.gumbel(seed, int(p), 1300, 2) for p in pos])
    found = Topk(interpreter, 1300).run(logits, 12, scale=scale, seed=seed, noisy=True, stream=2, pos=pos)
    check(found, ref.topk(logits, 12, scale=scale, noise=noise))


def test_noise_is_that_of_noise_h(interpreter):
    """Scores of 0 leave the noise alone: all of it, in lists as long as the vocabulary."""
    pos, seed = np.arange(40, dtype=np.int32) * 977, 2**63 - 5
    zeros = np.zeros((len(pos), LISTED), np.float32)
    score, id, _ = Topk(interpreter, LISTED).lists(zeros, LISTED, seed=seed, noisy=True, stream=1, pos=pos)
    expected = np.stack([ref.gumbel(seed, int(p), LISTED, 1) for p in pos])
    np.testing.assert_allclose(score[:, 0], np.take_along_axis(expected, id[:, 0], 1), rtol=3e-7, atol=3e-7)


def test_logarithm_of_extreme_words(interpreter):
    """Where a uniform number is nearest to 0 and 1, f32 alone would not know it from them."""
    near = [0, 1, 2, 100, 2**16, 2**23 + 1, 2**31 - 1]
    words = np.uint32([w for x in near for w in (x, 2**32 - 1 - x)] + [0x80000000, 0xC0000000])
    out = np.empty(len(words), np.float32)
    interpreter.launch("triton_words", "words", (1,), [words.view(np.int32), out], {"N": len(words)})
    np.testing.assert_allclose(out, -np.log((words + 0.5) / 2**32), rtol=4e-7)


def test_scores_apart_and_removed(interpreter):
    """Scores from elsewhere, few of them left: id -1 and logit -inf stand for the others."""
    rng = np.random.default_rng(6)
    logits, scores = logits_of(rng, 2, 1100), np.full((2, 1100), -np.inf, np.float32)
    scores[0, [1090, 3]], scores[1, 7] = (2, 1), np.nan
    id, logit, lse, _ = Topk(interpreter, 1100).run(logits, 3, scores, 0.5)
    assert id.tolist() == [[1090, 3, -1], [-1] * 3]
    assert logit[0].tolist() == [logits[0, 1090], logits[0, 3], -np.inf] and (logit[1] == -np.inf).all()
    np.testing.assert_allclose(lse, ref.topk(logits, 1)[2], rtol=2e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 1029])
def test_bad_logits_surface(interpreter, bad, at):
    logits = np.zeros((2, 1030), np.float32)
    logits[1, at] = bad
    lse = Topk(interpreter, 1030).run(logits, 2)[2]
    assert np.isfinite(lse[0]) and not np.isfinite(lse[1])


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_nothing_but_bad_logits(interpreter, value):
    id, _, lse, _ = Topk(interpreter, 1500).run(np.full((1, 1500), value, np.float32), 4)
    assert (id == -1).all() and not np.isfinite(lse[0])
