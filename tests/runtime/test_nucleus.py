"""Draws out of a row's best logits are the draws out of the whole row, and few rows need that."""

import shutil

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from swiftk._testing import ops

from decode import open_model, open_session
from swiftk import _core
from swiftk._core import Sampling
from swiftk.errors import NumericalError
from swiftk.files.safetensors_io import Tensor, read_folder, write_folder

ISAS = ops.isas()
PROMPT = np.arange(3, 23, dtype=np.int32)

samplings = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([0.01, 0.3, 0.6, 1.0, 1.7]),
        "top_k": st.sampled_from([1, 2, 20, 63, 64, 65, 200, 10**6]),
        "top_p": st.floats(0.01, 1),
        "min_p": st.one_of(st.just(0.0), st.floats(1e-4, 1)),
        "typical_p": st.one_of(st.just(1.0), st.floats(0.01, 1)),
        "repetition_penalty": st.sampled_from([0.7, 1.05, 1.3, 5.0]),
        "frequency_penalty": st.sampled_from([-2.0, -0.3, 0.3, 2.0]),
        "presence_penalty": st.sampled_from([-2.0, -0.3, 0.3, 2.0]),
        "min_tokens": st.sampled_from([10, 11, 12, 1000]),  # there are 11 before the row
    },
)
BIASES = [-1e30, -100.0, -3.0, -0.5, 0.5, 3.0, 100.0, 1e30]
NEVER = np.float32(-1.7e9)  # constraint.h


def row_of(rng, vocab, spread, steps):
    """Normal logits; in few steps, so that many are equal."""
    logits = (spread * rng.standard_normal(vocab)).astype(np.float32)
    return np.round(logits * steps) / np.float32(steps) if steps else logits


def draw(logits, prompt=(), text=(), path=(), k=1, pos=0, isa="", whole=False, **sampling):
    before = {"prompt": np.int32(prompt), "text": np.int32(text), "path": list(path)}
    return ops.draw(logits, Sampling(**sampling), k=k, pos=pos, isa=isa, whole=whole, **before)


def both(logits, text=(), path=(), **options):
    arguments = {"text": text, "path": path, **options}
    return draw(logits, **arguments), draw(logits, **arguments, whole=True)


@settings(max_examples=10 * settings.default.max_examples)
@given(
    sampling=samplings,
    vocab=st.one_of(st.integers(1, 70), st.integers(60, 3000)),
    spread=st.sampled_from([0.0, 0.5, 2.0, 6.0]),
    steps=st.sampled_from([0, 1, 8]),
    k=st.integers(1, 64),
    seed=st.integers(0, 2**64 - 1),
    isa=st.sampled_from(ISAS),
    biases=st.integers(0, 40),
    stops=st.sampled_from([0, 1, 3, 80]),
    allowed=st.sampled_from([None, None, 0.0, 0.01, 0.5]),
)
def test_a_list_reports_what_the_row_does(sampling, vocab, spread, steps, k, seed, isa, biases, stops, allowed):
    """allowed: what a grammar leaves of the row, beside stop ids."""
    rng = np.random.default_rng(seed)
    logits = row_of(rng, vocab, spread, steps)
    best = np.argsort(-logits)[:40]  # so that touches meet the list
    text, path = rng.choice(best, 6), rng.choice(best, 5)
    prompt = np.append(rng.choice(best, 6), rng.integers(0, vocab, 30))
    stop_ids = np.append(rng.choice(best, stops), rng.integers(0, vocab, stops)).tolist()
    if allowed is not None and stops:
        excluded = np.setdiff1d(np.flatnonzero(rng.random(vocab) >= allowed), stop_ids)
        logits[excluded] = NEVER
    tokens = np.append(rng.choice(best, biases), rng.integers(0, vocab, biases))[: 2 * biases]
    bias = {int(t): float(b) for t, b in zip(tokens, rng.choice(BIASES, len(tokens)), strict=True)}
    options = {**sampling, "seed": seed, "k": min(k, vocab), "pos": int(rng.integers(0, 10**5)), "isa": isa}
    listed, whole = both(logits, text, path, prompt=prompt, logit_bias=bias, stop_ids=stop_ids, **options)
    assert listed is None or listed == whole


@given(
    temperature=st.sampled_from([0.3, 0.6, 1.0]),
    top_p=st.floats(0.3, 0.99),
    penalty=st.sampled_from([1.0, 1.2]),
    seed=st.integers(0, 2**32 - 1),
)
def test_neighbouring_numbers(temperature, top_p, penalty, seed):
    """Logits a few units in the last place apart: those that temperature makes equal go by id."""
    rng = np.random.default_rng(seed)
    bits = np.float32(7).view(np.int32) + rng.integers(-3, 3, 80).astype(np.int32)
    logits = np.append(bits.view(np.float32), np.float32([-9] * 200))[rng.permutation(280)]
    options = {"temperature": temperature, "seed": seed, "k": 8, "repetition_penalty": penalty}
    for filters in ({"top_p": top_p}, {"top_k": 30}, {"top_k": 64}, {"top_k": 20, "top_p": top_p}, {"min_p": 1.0}):
        listed, whole = both(logits, rng.integers(0, 280, 9), **options, **filters)
        assert listed is None or listed == whole


SHARP = [
    {"temperature": 0.6, "top_p": 0.95},
    {"temperature": 0.6, "top_k": 20, "top_p": 0.8},
    {"temperature": 0.7, "top_k": 50},
    {"temperature": 1.0, "min_p": 0.1},
    {"temperature": 0.6, "top_k": 200, "top_p": 0.9, "min_p": 0.02},
    {"repetition_penalty": 1.1},
    {"temperature": 0.8, "repetition_penalty": 1.1},
    {"temperature": 0.6, "top_p": 0.9, "repetition_penalty": 1.1},
    {"temperature": 0.6, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.1},
    {"temperature": 0.6, "top_p": 0.9, "repetition_penalty": 0.9},
    {"frequency_penalty": 0.5, "presence_penalty": 0.5},
    {"temperature": 0.8, "top_p": 0.9, "frequency_penalty": 0.5, "presence_penalty": -0.5},
    {"logit_bias": {5: 20.0, 6: -3.0}},
    {"temperature": 0.6, "top_p": 0.9, "logit_bias": {5: 20.0, 6: -3.0}},
    {"temperature": 0.6, "top_k": 20, "min_tokens": 20, "stop_ids": [7, 8]},
]


@pytest.mark.parametrize("sampling", SHARP, ids=str)
def test_a_list_is_enough_for_rows_like_a_model_s(sampling):
    rng, reported = np.random.default_rng(1), 0
    for seed in range(60):
        # A few likely tokens ahead of a long tail.
        logits = row_of(rng, 32000, 1.5, 0)
        likely = rng.integers(0, 32000, 12)
        logits[likely] += np.linspace(16, 8, 12).astype(np.float32)
        listed, whole = both(logits, likely[:4], likely[2:6], **sampling, seed=seed, pos=seed, k=3)
        assert listed is None or listed == whole
        reported += listed is not None
    assert reported >= 55


def test_a_penalty_that_takes_the_sum_s_largest_term():
    """Relative to what is left, the sum over the row as it was is infinite, or all error."""
    for best in (40.0, 1.0):
        logits = np.append(np.float32([best]), np.linspace(0.9, 0.5, 29).astype(np.float32))
        listed, whole = both(logits, [0], temperature=0.05, top_p=0.7, repetition_penalty=50.0, k=5)
        assert listed is None or listed == whole


def test_a_flat_row_is_more_than_a_list():
    assert both(np.zeros(3000, np.float32), temperature=1.0, top_p=0.95)[0] is None
    assert both(np.zeros(3000, np.float32), temperature=1.0, top_k=65)[0] is None
    assert both(np.zeros(3000, np.float32), temperature=1.0, min_p=0.5)[0] is None
    assert both(np.zeros(3000, np.float32), temperature=1.0, top_k=64, k=64)[0] is not None


def test_what_filters_remove_is_no_runner_up():
    logits = np.float32([5, 4, 3, 2, 1, 0])
    listed, whole = both(logits, temperature=1.0, top_k=2, k=5)
    assert listed == whole and sorted(listed) == [0, 1]


@pytest.fixture(scope="module")
def model(tiny_model):
    return tiny_model("llama3", layers=2, vocab=700)


@pytest.mark.parametrize("sampling", [*SHARP, {"temperature": 2.0, "top_p": 0.99}], ids=str)
def test_a_session_draws_what_whole_rows_say(model, sampling):
    """Root and nodes of a tree, whichever way each row goes."""
    session = open_session(model, sampling={**sampling, "seed": 11})
    session.prefill(PROMPT)
    for _ in range(12):
        text, root = session.history[len(PROMPT) :], len(session.history)
        session.draft(_core.TreeRule(confidence=0.0, max_draft=3, width=(3, 3, 2, 1)))
        emitted = [e.token for e in session.verify()]
        node, path = 0, []
        for token in emitted:
            row, pos = session.logits[node], root + len(path)
            assert draw(row, **sampling, seed=11, pos=pos, prompt=PROMPT, text=text, path=path, whole=True) == [token]
            path.append(token)
            parents, tokens = session.tree_parents, session.tree_tokens
            node = next((i for i in range(1, len(tokens)) if parents[i] == node and tokens[i] == token), -1)
        session.commit(len(emitted))


def test_bad_logits_are_an_error_under_filters(tiny_dir, tmp_path):
    tensors = read_folder(tiny_dir("llama3"))
    bits = tensors["lm_head.weight"].bits.copy()
    bits[5] = 0x7FC0  # bf16's NaN
    tensors["lm_head.weight"] = Tensor("BF16", bits)
    shutil.copytree(tiny_dir("llama3"), tmp_path / "bad", ignore=shutil.ignore_patterns("*.safetensors"))
    for _ in write_folder(tmp_path / "bad", tensors):
        pass
    for sampling in SHARP:
        with pytest.raises(NumericalError, match="NaN or infinite"):
            open_session(open_model(tmp_path / "bad"), sampling=sampling).prefill(PROMPT)


@pytest.mark.parametrize("steps", [0, 4], ids=["distinct", "ties"])
@pytest.mark.parametrize("typical_p", [0.05, 0.2, 0.6, 0.95])
def test_typical_tokens_are_those_of_transformers(typical_p, steps):
    """The kept set, in a row whose best token is too likely to be typical, and in flat ones."""
    warper = transformers.TypicalLogitsWarper(mass=typical_p)
    kept = set()
    for spread in (0.0, 0.5, 2.0, 4.0):
        for seed in range(20):
            row = row_of(np.random.default_rng(seed), 61, spread, steps)
            want = torch.isfinite(warper(None, torch.from_numpy(row)[None].double()))[0].nonzero().flatten().tolist()
            found = draw(row, k=61, whole=True, temperature=1.0, typical_p=typical_p)
            assert sorted(found) == want
            kept.add((len(want), int(row.argmax()) in want))
    assert {best for _, best in kept} == ({False, True} if typical_p < 0.9 else {True})
    assert typical_p == 0.05 or len(kept) > 4


def test_the_entropy_needs_the_whole_row():
    row = row_of(np.random.default_rng(5), 300, 2.0, 0)
    listed, whole = both(row, temperature=1.0, typical_p=0.5)
    assert listed is None and len(whole) == 1
    assert draw(row) == [int(row.argmax())] == draw(row, typical_p=0.5), "greedy decoding has no filters"
