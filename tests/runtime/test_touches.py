"""What a sampler makes of logits before temperature: biases, penalties, and the ends that min_tokens keeps back."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from swiftk._testing import ops

from decode import decode, open_session, requested
from distribution import touched
from grammars import Only
from source_rules import LOOPS
from swiftk import _core
from swiftk._core import Sampling
from swiftk.errors import InvalidArgument

PROMPT = [5, 9, 2, 7, 7, 1, 30, 12, 4, 8, 21]
TOUCHES = {
    "repetition_penalty": st.sampled_from([0.8, 1.3]),
    "frequency_penalty": st.sampled_from([-2.0, -0.3, 0.3, 2.0]),
    "presence_penalty": st.sampled_from([-2.0, -0.3, 0.3, 2.0]),
    "logit_bias": st.dictionaries(st.integers(0, 49), st.floats(-9, 9), max_size=9),
    "min_tokens": st.integers(0, 20),
    "stop_ids": st.lists(st.integers(0, 49), max_size=9),
}
ALL = {
    "repetition_penalty": 1.1,
    "frequency_penalty": 0.4,
    "presence_penalty": 0.3,
    "logit_bias": {3: 1.5, 11: -2.0, 17: -100.0},
}


def best(logits, k=1, prompt=(), text=(), path=(), whole=True, **sampling):
    """The best k tokens, greedily."""
    before = {"prompt": np.int32(prompt), "text": np.int32(text), "path": list(path)}
    return ops.draw(np.float32(logits), Sampling(**sampling), k=k, whole=whole, **before)


@given(
    sampling=st.fixed_dictionaries({}, optional=TOUCHES),
    seed=st.integers(0, 10**6),
    lengths=st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
    whole=st.booleans(),
)
def test_logits_are_touched_by_the_formulas(sampling, seed, lengths, whole):
    rng = np.random.default_rng(seed)
    logits = np.float32(3 * rng.standard_normal(50))
    prompt, text, path = (rng.integers(0, 25, n) for n in lengths)
    z = touched(logits, prompt=prompt, generated=[*text, *path], **sampling)
    ids = best(logits, 20, prompt, text, path, whole=whole, **sampling)
    assert ids is not None and len(set(ids)) == 20 and np.isfinite(z[ids]).all()
    assert all(z[a] >= z[b] - 1e-4 for a, b in pairwise(ids))
    assert z[ids[-1]] >= np.delete(z, ids).max() - 1e-4


@pytest.mark.parametrize("whole", [True, False])
def test_each_touch_by_hand(whole):
    row = [3.0, 2.75, 2.5, -1.0]

    def first(**given):
        return best(row, whole=whole, **given)

    assert first() == [0]
    assert first(text=[0], presence_penalty=0.3) == [1] and first(text=[0], presence_penalty=0.2) == [0]
    assert first(text=[0, 0, 0], presence_penalty=0.2) == [0], "once, however often"
    assert first(text=[0, 0], frequency_penalty=0.2) == [1] and first(text=[0], frequency_penalty=0.2) == [0]
    assert first(text=[0], path=[0], frequency_penalty=0.2) == [1] and first(path=[0, 0], frequency_penalty=0.2) == [1]
    assert first(path=[0], presence_penalty=0.3) == [1]
    assert first(prompt=[0, 0], frequency_penalty=2.0, presence_penalty=2.0) == [0], "the prompt does not count"
    assert first(prompt=[0, 0], text=[0], frequency_penalty=0.2) == [0]
    assert first(prompt=[0], repetition_penalty=1.2) == [1]
    assert first(text=[3], frequency_penalty=-2.0, presence_penalty=-2.0) == [0]
    assert first(text=[3, 3], frequency_penalty=-2.0, presence_penalty=-2.0) == [3]
    assert first(logit_bias={3: 4.5}) == [3] and first(logit_bias={0: -1.0, 1: -1.0}) == [2]
    assert first(logit_bias={3: 3.0}, prompt=[3], repetition_penalty=0.5) == [3], "a penalty takes the biased logit"
    assert first(min_tokens=3, stop_ids=[0], text=[1], path=[1]) == [1]
    assert first(min_tokens=3, stop_ids=[0], text=[1, 2], path=[1]) == [0]
    assert first(min_tokens=1, stop_ids=[0, 0, 1, 99, -1]) == [2], "ids that no token has end nothing"
    assert first(min_tokens=1, stop_ids=[0], logit_bias={0: 100.0}) == [1], "no bias brings an end early"


NEVER = -1.7e9  # constraint.h


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    "sampling", [{}, {"temperature": 1.0, "top_p": 0.99}, {"temperature": 1.0, "top_k": 2}], ids=str
)
def test_what_a_grammar_excludes_stays_excluded(whole, sampling):
    """Logits as a grammar leaves them: of tokens 1 and 2 alone."""
    row = [NEVER, 1.0, 0.0, NEVER]
    for touch in ({"logit_bias": {0: 100.0}}, {"logit_bias": {0: 1e30}}, {"repetition_penalty": 1e-30, "text": [0]}):
        ids = best(row, 2, whole=whole, **touch, **sampling)
        assert ids is None or set(ids) <= {1, 2}
    ids = best(row, 2, whole=whole, logit_bias={1: -1e30, 2: -1e30}, **sampling)
    assert ids is None or set(ids) <= {1, 2}, "however unlikely the others are"
    held = {"min_tokens": 9, "stop_ids": [1, 2], **sampling}
    assert best(row, whole=whole, **held) in (None, [1], [2]), "a grammar that leaves only stop ids ends the text"
    held["stop_ids"] = [1]
    assert best(row, whole=whole, **held) in (None, [2])
    assert best(row, whole=True, **held) == [2]


def test_biases_of_any_size():
    """Nothing overflows: not at the least temperature, under filters or in a sum."""
    row = np.zeros(300)
    for sampling in (
        {"temperature": 1e-5, "top_p": 0.5},
        {"temperature": 1.0, "min_p": 0.1},
        {"temperature": 1e-5},
        {},
    ):
        for bias in (3e38, 1e5):
            given = {"logit_bias": {4: bias, 5: -bias}, "prompt": [4, 5], "repetition_penalty": 1e-3, **sampling}
            assert best(row, whole=True, **given) == [4]
            assert best(row, whole=False, **given) in ([4], None)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"frequency_penalty": 2.5}, r"frequency_penalty is 2.5\d*, want -2\.\.2"),
        ({"presence_penalty": float("nan")}, r"presence_penalty is nan, want -2\.\.2"),
        ({"logit_bias": {5: float("inf")}}, "logit_bias of token 5 is inf, want a finite number"),
        ({"min_tokens": -1}, "min_tokens is -1.*want 0"),
        ({"min_tokens": 1.5}, r"min_tokens is 1\.5, which is of another type"),
        ({"logit_bias": [1]}, r"logit_bias is \[1\], which is of another type"),
        ({"seed": -1}, "seed is -1, which is of another type or out of its range"),
        ({"temperature": "hot"}, "temperature is 'hot'"),
    ],
    ids=str,
)
def test_bad_fields_are_named(given, words):
    with pytest.raises(InvalidArgument, match=words):
        Sampling(**given)


def test_a_sampling_is_a_value(tiny_model):
    one = Sampling(temperature=0.5, logit_bias={7: 2.0, 3: -1.0}, stop_ids=[2])
    assert one == Sampling(logit_bias={3: -1.0, 7: 2.0}, stop_ids=[2], temperature=0.5) != Sampling()
    assert one != "Sampling()" and repr(Sampling()) == "Sampling()"
    assert repr(one) == "Sampling(temperature=0.5, logit_bias={3: -1.0, 7: 2.0}, stop_ids=[2])"
    assert eval(repr(one)) == one and one.top_p == 1 and one.logit_bias == {3: -1.0, 7: 2.0}
    with pytest.raises(TypeError, match=r"'heat'.*want some of the fields temperature, top_k"):
        Sampling(heat=1.0)
    with pytest.raises(InvalidArgument, match=r"logit_bias has token 999999, want 0\.\."):
        open_session(tiny_model("llama3"), sampling={"logit_bias": {999999: 1.0}})


@pytest.fixture(scope="module")
def model(tiny_model):
    return tiny_model("llama3", layers=4)


def text_of(model, n, **sampling):
    return decode(open_session(model, sampling=sampling), PROMPT, n).tokens


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_no_end_comes_before_min_tokens(model, temperature):
    """From there on tokens are the model's own again."""
    warm = {"temperature": temperature, "seed": 3}
    free = text_of(model, 12, **warm)
    stops = free[:12]
    held = text_of(model, 12, **warm, min_tokens=8, stop_ids=stops)
    assert not set(held[:8]) & set(stops)
    plain = open_session(model, sampling=warm)
    for n in range(8, 12):
        assert plain.prefill(np.int32([*PROMPT, *held[:n]])).token == held[n]


def test_counts_are_of_generated_tokens(model):
    """A text that runs in circles, which frequencies end; the same tokens as a prompt count nothing."""
    circle = text_of(model, 60, **LOOPS)
    assert len(set(circle)) < 30
    other = text_of(model, 60, **LOOPS, frequency_penalty=2.0)
    assert len(set(other)) > len(set(circle))
    session = open_session(model, sampling={**LOOPS, "frequency_penalty": 2.0, "presence_penalty": 2.0})
    again = open_session(model, sampling=LOOPS)
    text = np.int32([*PROMPT, *circle])
    assert session.prefill(text).token == again.prefill(text).token


def test_log_probabilities_are_the_models(model):
    """Of softmax(logits), whatever is touched."""
    session = open_session(model, sampling={**ALL, "min_tokens": 9, "stop_ids": [1, 2, 3], "temperature": 0.7})
    session.set_logprobs(3)
    emitted = session.prefill(np.int32(PROMPT))
    z = session.logits[0].astype(np.float64)
    want = z - z.max() - np.log(np.exp(z - z.max()).sum())
    assert emitted.logprob == pytest.approx(want[emitted.token], abs=1e-4)
    assert [token for token, _ in emitted.top] == np.argsort(-z, kind="stable")[:3].tolist()


@pytest.mark.parametrize("drafting", ["off", "planned"])
@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_p": 0.9}], ids=str)
def test_a_grammar_that_leaves_only_ends_wins_over_min_tokens(model, sampling, drafting):
    def run(tokens, stops, **given):
        engine, boxes = _core.Engine(model, context=128), {}
        options = {"min_tokens": 6, "stop_ids": stops, "max_new_tokens": 9, **sampling, **given}
        grammar = {"constraint": Only(*tokens), "drafting": drafting, "always": drafting != "off"}
        id = engine.submit(boxes, _core.Request(prompt=np.int32(PROMPT), **requested({**options, **grammar})))
        while not engine.idle():
            engine.step(boxes)
        turns = list(boxes[id])
        assert turns[-1].error is None
        return [e.token for turn in turns for e in turn.tokens], turns[-1].finish

    tokens, finish = run([4, 6], [4, 6])
    assert (len(tokens), finish) == (1, "stop") and tokens[0] in (4, 6)
    tokens, finish = run([4, 6], [4])
    assert tokens[:6] == [6] * 6
    tokens, finish = run([4, 6], [4], logit_bias={4: 50.0, 9: 1e30})
    assert (tokens, finish) == ([6] * 6 + [4], "stop")
