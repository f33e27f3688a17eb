"""The exact probabilities of sampled tokens, and whether counts follow them."""

import numpy as np
from scipy import stats

from decode import open_session

PROMPT = np.asarray([3, 1, 4, 1, 5], np.int32)
VOCAB = 24
DRAWS = 4000
IMPOSSIBLE = 1e-12  # probability of a token: in so many draws it does not come


def touched(
    logits,
    prompt=(),
    generated=(),
    repetition_penalty=1.0,
    frequency_penalty=0.0,
    presence_penalty=0.0,
    logit_bias=None,
    min_tokens=0,
    stop_ids=(),
):
    """Logits before temperature, by vLLM's formulas, in its order, in float64."""
    z = logits.astype(np.float64).copy()
    if len(generated) < min_tokens:
        z[list(stop_ids)] = -np.inf
    for t, bias in (logit_bias or {}).items():
        z[t] += bias
    count = np.bincount(np.asarray(generated, int), minlength=len(z))
    seen = (count > 0) | np.isin(np.arange(len(z)), prompt)
    z = np.where(seen, np.where(z > 0, z / repetition_penalty, z * repetition_penalty), z)
    z -= frequency_penalty * count
    z -= presence_penalty * (count > 0)
    return z


def warp(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, typical_p=1.0, **touches):
    """The reference, [V] probabilities: touched(), then transformers' warpers, in their order, in float64."""
    z = touched(logits, **touches) / temperature
    order = np.lexsort((np.arange(len(z)), -z))
    keep = np.zeros(len(z), bool)
    keep[order[: top_k or len(z)]] = True
    p = np.where(keep, np.exp(z - z.max()), 0)
    p /= p.sum()
    if top_p < 1:
        mass = np.cumsum(p[order])
        keep[order[1:][mass[:-1] >= top_p]] = False
        p = np.where(keep, p, 0)
        p /= p.sum()
    if min_p > 0:
        p[p < min_p * p.max()] = 0
        p /= p.sum()
    if typical_p < 1:
        surprise = -np.log(np.where(p > 0, p, 1))
        distance = np.where(p > 0, np.abs(surprise - (p * surprise).sum()), np.inf)
        nearest = np.argsort(distance, kind="stable")
        last = min(np.searchsorted(np.cumsum(p[nearest]), typical_p), len(p) - 1)
        p[distance > distance[nearest[last]]] = 0
    return p / p.sum()


def exact_joint(model, sampling):
    """P(first token, second token) by running the target on every first token."""
    session = open_session(model)
    session.prefill(PROMPT)
    first = warp(session.logits[0], **sampling, prompt=PROMPT)
    joint = np.zeros((VOCAB, VOCAB))
    for t in np.flatnonzero(first):
        session.reuse(np.append(PROMPT, [t, 0]).astype(np.int32))
        session.extend(np.asarray([t], np.int32))
        session.sample()
        joint[t] = first[t] * warp(session.logits[0], **sampling, prompt=PROMPT, generated=[t])
    return joint


def chi_square_p(counts, joint):
    """Cells of small expectation are pooled, so that the statistic follows its distribution."""
    assert counts[joint < IMPOSSIBLE].sum() == 0, "a token that the target excludes was drawn"
    expected = joint.ravel() * counts.sum()
    big = expected >= 8
    observed = np.append(counts.ravel()[big], counts.ravel()[~big].sum())
    expected = np.append(expected[big], expected[~big].sum())
    if expected[-1] < 1:
        observed, expected = observed[:-1], expected[:-1]
    if len(expected) == 1:
        return 1.0  # all is in one cell, of which the assertion above says enough
    return stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue
