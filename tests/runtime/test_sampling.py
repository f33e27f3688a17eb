"""Draws have the distribution they claim: chi-square against the exact warped probabilities, joint over two tokens."""

import numpy as np
import pytest

from decode import open_session
from distribution import DRAWS, IMPOSSIBLE, PROMPT, VOCAB, chi_square_p, exact_joint, warp
from swiftk import _core
from swiftk._core import Sampling

SKIP = ((1,), (0, 1), -1)
SWIFT = {"confidence": 0.0, "max_draft": 2, "width": (3, 3, 2, 2)}
# A first draw is worth as much as its own confidence says, and the least confident ones do not pay for their rows.
TIMED = {
    "max_draft": 2,
    "edges": [0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95],
    "p_top1": [*[0.0] * 6, *[0.3] * 10],
    "p_rank": [[0.0] * 9] * 16,
    "row_price": [0.1 * i for i in range(64)],
}
ALL_TOUCHES = {
    "repetition_penalty": 1.2,
    "frequency_penalty": 0.7,
    "presence_penalty": 0.4,
    "logit_bias": {0: 1.0, 5: -2.0, 9: 100.0, 10: 99.0},
    "min_tokens": 1,
    "stop_ids": [9],
}
SIBLINGS = {"p_rank": [[0.2, 0.15, 0.12, 0.02, *[0.0] * 5]] * 16}
DEAR = {"row_price": [0.4 * i for i in range(64)]}


def proposing(chance):
    """Suffixes and recycled tokens propose, too; their best tokens are believed this much."""
    table = [[chance, *[chance / 3] * 7]] * 16
    return {"sources": [(2, table), (3, table)], "chain": 3, "max_depth": 3}


@pytest.fixture(scope="module")
def model(tiny_model):
    return tiny_model("llama3", layers=2, vocab=VOCAB, threads=1)


def sampled_joint(model, sampling, acceptance, speculate, rule=SWIFT):
    counts = np.zeros((VOCAB, VOCAB))
    session = open_session(model)
    session.set_skip(_core.DraftSpec(*SKIP))
    accepted = 0
    for seed in range(DRAWS):
        session.set_sampling(Sampling(**sampling, seed=seed), acceptance)
        a = session.prefill(PROMPT).token
        session.draft(_core.TreeRule(**{**rule, **({} if speculate else {"max_draft": 0})}))
        e = session.verify()[0]
        counts[a, e.token] += 1
        accepted += e.drafted
    assert not speculate or accepted > DRAWS / 20
    return counts


@pytest.mark.parametrize("acceptance", ["coupled", "rejection"])
@pytest.mark.parametrize("speculate", [False, True])
@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 1.0},
        {"temperature": 0.6, "top_p": 0.8},
        {"temperature": 1.5, "top_k": 7, "min_p": 0.05, "typical_p": 0.9, "repetition_penalty": 1.3},
        {"temperature": 1.0, "frequency_penalty": 1.5, "presence_penalty": -0.5},
        {"temperature": 0.8, "top_p": 0.9, "logit_bias": {3: 2.0, 7: -1.5}, "min_tokens": 2, "stop_ids": [1, 11, 20]},
        {**ALL_TOUCHES, "temperature": 1.2},
        {"temperature": 0.02},
        {"temperature": 0.1},
        {"temperature": 0.3},
    ],
    ids=["T=1", "T=.6,p=.8", "T=1.5,k=7,min_p,penalty", "counts", "bias,min_tokens", "all", "T=.02", "T=.1", "T=.3"],
)
def test_two_tokens_are_distributed_as_the_target_says(model, sampling, acceptance, speculate):
    p = chi_square_p(sampled_joint(model, sampling, acceptance, speculate), exact_joint(model, sampling))
    assert p > 1e-4


@pytest.mark.parametrize("acceptance", ["coupled", "rejection"])
@pytest.mark.parametrize(
    "rule",
    [
        {**TIMED, "min_step_gain": 0.25},
        {**TIMED, **SIBLINGS, "min_step_gain": 0.0, "max_draft": 5},
        {**TIMED, **DEAR, "min_step_gain": 0.0, "stop_ids": list(range(0, VOCAB, 2))},
        {**TIMED, **proposing(0.9), "min_step_gain": 0.5},
        {**TIMED, **proposing(0.3), "min_step_gain": 0.5},
    ],
    ids=["first draws", "siblings", "stops", "proposals lead", "the plan leads"],
)
@pytest.mark.parametrize("sampling", [{"temperature": 0.7}, {"temperature": 1.5, "top_k": 7}], ids=str)
def test_trees_by_time_change_no_distribution(model, rule, sampling, acceptance):
    p = chi_square_p(sampled_joint(model, sampling, acceptance, True, rule), exact_joint(model, sampling))
    assert p > 1e-4


@pytest.mark.parametrize("sampling", [{"temperature": 0.7}, {"temperature": 1.5, "top_k": 7}], ids=str)
@pytest.mark.parametrize("beam", [1, 3])
def test_beams_change_no_distribution(model, sampling, beam):
    rule = {"beam": beam, "max_draft": 2, "max_nodes": 8}
    p = chi_square_p(sampled_joint(model, sampling, "rejection", True, rule), exact_joint(model, sampling))
    assert p > 1e-4


def test_the_chi_square_test_can_fail(model):
    counts = sampled_joint(model, {"temperature": 1.3}, "coupled", False)
    assert chi_square_p(counts, exact_joint(model, {"temperature": 1.0})) < 1e-6


def test_rejection_is_exact_in_later_positions_of_a_block(model):
    """The bonus token after an accepted block is drawn under the same warped distribution (the reference: raw)."""
    sampling = {"temperature": 0.5, "top_k": 6}
    session = open_session(model)
    session.set_skip(_core.DraftSpec(*SKIP))
    seen = {}
    for seed in range(DRAWS):
        session.set_sampling(Sampling(**sampling, seed=seed), "rejection")
        first = session.prefill(PROMPT).token
        session.draft(_core.TreeRule(confidence=0.0, max_draft=1, width=(2, 2, 2, 2)))
        emitted = session.verify()
        if len(emitted) == 2:
            seen.setdefault((first, emitted[0].token), []).append(emitted[1].token)
    (a, b), draws = max(seen.items(), key=lambda item: len(item[1]))
    probe = open_session(model)
    probe.prefill(np.append(PROMPT, [a, b]).astype(np.int32))
    expected = warp(probe.logits[0], **sampling)
    counts = np.bincount(draws, minlength=VOCAB)[None]
    assert counts.sum() > 200
    assert chi_square_p(counts, expected[None]) > 1e-4


@pytest.mark.parametrize("temperature", [0.02, 0.05, 0.1])
def test_no_token_comes_that_the_target_excludes(model, temperature):
    """Whole texts under rejection, with siblings: each token's probability by the target, counted."""
    session, probe = open_session(model), open_session(model)
    session.set_skip(_core.DraftSpec(*SKIP))
    least, count = 1.0, 0
    for seed in range(12):
        session.set_sampling(Sampling(temperature=temperature, seed=seed), "rejection")
        tokens = [session.prefill(PROMPT ^ seed % 8).token]
        while len(tokens) < 60:
            session.draft(_core.TreeRule(**{**SWIFT, "max_draft": 4}))
            emitted = session.verify()
            session.commit(len(emitted))
            tokens += [e.token for e in emitted]
        text = np.append(PROMPT ^ seed % 8, tokens[:60]).astype(np.int32)
        for end in range(len(PROMPT), len(text)):
            probe.prefill(text[:end])
            least = min(least, warp(probe.logits[0], temperature=temperature)[text[end]])
            count += 1
    assert count == 720 and least > IMPOSSIBLE
