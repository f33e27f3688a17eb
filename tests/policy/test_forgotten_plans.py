"""Plans are named without end, by searches and by callers; few of those that nobody names are remembered."""

from itertools import islice

import numpy as np
import pytest

import swiftk
from swiftk import _core

LAYERS, PROMPT, N = 8, "Question: how many apples", 48
MOST = 300  # plans


@pytest.fixture(scope="module")
def lm(tiny_dir):
    return swiftk.load(tiny_dir("llama3", layers=LAYERS), threads=1)


@pytest.fixture
def native(lm):
    """An engine that knows nothing yet."""
    return _core.Engine(lm.model, sequences=4)


def plans(first, last):
    """Each is another one; the bits of its number say what it leaves out."""
    for number in range(first, last):
        left_out = [i for i in range(2 * LAYERS) if number >> i & 1]
        attn, mlp = ([i % LAYERS for i in left_out if (i >= LAYERS) == mlp] for mlp in (False, True))
        yield _core.DraftSpec(attn=attn, mlp=mlp)


def receive(native, boxes):
    """[(text, turn)] of a round."""
    native.step(boxes)
    received = [(text, turn) for text, box in boxes.items() for turn in box]
    for box in boxes.values():
        box.clear()
    for text, turn in received:
        if turn.finish:
            del boxes[text]
    return received


@pytest.fixture
def submit(lm, native):
    def put(boxes, max_new_tokens=N, **request):
        prompt = np.int32(lm.encode(PROMPT))
        return native.submit(boxes, _core.Request(prompt=prompt, max_new_tokens=max_new_tokens, **request))

    return put


def test_a_plan_in_use_is_kept_and_the_others_are_few(lm, native, submit):
    """One that drafts a text, and one that is asked for again and again, keep what was learned of them."""
    drafts, asked, once = plans(1, 4)
    boxes, tokens, seen = {}, [], 0
    submit(boxes, plans="directed", skips=[drafts], sources=[], always=True)
    for skip in (asked, once):
        rates = native.rates(skip)
        rates.add([(0.9, 0)] * 50)
        native.learned(skip, rates)
    others = plans(1000, 20000)
    while boxes:
        for skip in islice(others, 1000):
            assert native.rates(skip).outcomes == 0 and native.rates(asked).outcomes == 50
        assert native.plans < MOST and native.rates(drafts).outcomes == seen
        tokens += [e.token for _, turn in receive(native, boxes) for e in turn.tokens]
        seen = native.rates(drafts).outcomes
    assert seen > 8 and native.rates(once).outcomes == 0
    assert tokens == lm.generate(PROMPT, max_new_tokens=N, ignore_eos=True, speculate=False).tokens


def test_texts_that_change_among_thousands_of_plans_stay_the_same(lm, native, submit):
    """Each of four texts drafts every round by another plan, which soon has the number that was another's."""
    options = {"max_new_tokens": N, "ignore_eos": True, "temperature": 0.8, "speculate": False}
    want = [lm.generate(PROMPT, seed=seed, **options).tokens for seed in range(4)]
    others, boxes = plans(1, 60000), {}
    drafted = {}
    for seed in range(4):
        sampling = _core.Sampling(temperature=0.8, seed=seed)
        submit(boxes, plans="directed", skips=[next(others)], always=True, sampling=sampling)
    tokens = {text: [] for text in boxes}
    while boxes:
        for text in boxes:
            for drafted[text] in islice(others, 100):
                native.direct(text, drafted[text])
        for text, turn in receive(native, boxes):
            tokens[text] += [e.token for e in turn.tokens]
            assert turn.steps == 0 or (turn.plan.attn, turn.plan.mlp) == (drafted[text].attn, drafted[text].mlp)
    assert list(tokens.values()) == want and native.plans < MOST


def test_ways_to_draft_of_texts_that_ended_are_few(native, submit):
    """Each text names another plan, and so drafts in a way of its own; one that goes on keeps its way."""
    boxes, rounds = {}, 0
    (drafts,), others = plans(1, 2), plans(2, 60000)
    lasting = submit(boxes, 300, plans="directed", skips=[drafts], sources=[], always=True)
    while lasting in boxes:
        for skip in islice(others, 3):
            submit(boxes, 1, plans="fixed", skips=[skip])
        for text, turn in receive(native, boxes):
            rounds += text == lasting and turn.steps > 0 and turn.plan.attn == drafts.attn
    assert rounds > 250 and native.plans < 2 * MOST


def test_too_many_plans_of_a_text_are_refused(submit):
    with pytest.raises(swiftk.InvalidArgument, match=r"257 plans are named, want at most 256"):
        submit({}, plans="fixed", skips=list(plans(1, 258)))
