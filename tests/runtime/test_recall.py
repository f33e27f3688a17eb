"""What sources learn, where, and what of it stays when another text begins."""

import numpy as np
import pytest

from decode import Rule, decode, open_session
from source_rules import LAYERS, LOOKAHEAD, PARALLEL, PROMPT, RECYCLE, SUFFIX, TEMPLATE, all_of
from swiftk import _core
from swiftk.errors import InvalidArgument


def first_tree(session, prompt, rule):
    """Nodes of a text's first tree: what is known when it begins."""
    session.prefill(np.asarray(prompt, np.int32))
    return session.draft(_core.TreeRule(**rule.timed, max_draft=0))


@pytest.mark.parametrize(
    ("source", "recall", "remembers"),
    [(SUFFIX, None, False), (RECYCLE, None, True), (TEMPLATE, None, True)]
    + [(source, recall, recall) for source in (SUFFIX, RECYCLE, TEMPLATE) for recall in (False, True)],
)
def test_another_text_begins_with_what_is_to_stay(tiny_model, source, recall, remembers):
    """Its output is its own. A matrix of tokens stays unless it is to be forgotten, texts where that was asked for."""
    model = tiny_model("llama3", layers=LAYERS, threads=1)
    other = [33, 3, 18, 40, 2]
    want = decode(open_session(model), other, 60).tokens
    session = open_session(model)
    session.set_recall(recall)
    rule = Rule(max_draft=0, timed=all_of(source))
    assert decode(session, other, 60, rule).tokens == want
    first = decode(session, PROMPT, 30, rule)
    assert first.tokens == decode(open_session(model), PROMPT, 30).tokens
    fresh = first_tree(open_session(model), other, rule)
    known = first_tree(session, other, rule)
    assert known > fresh if remembers else known == fresh
    assert decode(session, other, 60, rule).tokens == want
    session.forget_sources()
    with pytest.raises(InvalidArgument, match="there is no tree"):
        session.verify()
    assert first_tree(session, other, rule) == fresh
    assert decode(session, PROMPT, 30, rule).tokens == first.tokens


def test_the_same_prompt_again_finds_nothing_of_the_text_before(tiny_model):
    """Its tokens are all cached, and so a benchmark that repeats it would measure what was learned the first time."""
    session = open_session(tiny_model("llama3", layers=LAYERS, threads=1))
    session.set_recall(False)
    rule = Rule(max_draft=0, timed=all_of(SUFFIX, RECYCLE))
    rounds = [decode(session, PROMPT, 60, rule).rounds for _ in range(2)]
    assert rounds[0] == rounds[1]
    session.set_recall(True)
    assert decode(session, PROMPT, 60, rule).rounds < rounds[0]


def test_a_text_that_goes_on_keeps_what_the_model_listed(tiny_model):
    model = tiny_model("llama3", layers=LAYERS, threads=1)
    session, rule = open_session(model), Rule(max_draft=0, timed=all_of(RECYCLE))
    session.set_recall(False)
    answer = decode(session, PROMPT, 60, rule).tokens
    more = decode(session, [*PROMPT, *answer], 40, rule)
    fresh = decode(open_session(model), [*PROMPT, *answer], 40, rule)
    assert more.tokens == fresh.tokens
    assert more.rounds < fresh.rounds


def test_a_text_that_goes_on_is_not_taken_in_twice(tiny_model):
    model = tiny_model("llama3", layers=LAYERS, threads=1)
    session = open_session(model)
    rule = Rule(max_draft=0, timed=all_of(SUFFIX))
    answer = decode(session, PROMPT, 20, rule).tokens
    more = [*PROMPT, *answer, 3, 4]
    assert decode(session, more, 30, rule).tokens == decode(open_session(model), more, 30).tokens


class SlowRecycler:
    """What the model listed after each token, from whole logits rows of verified trees."""

    def __init__(self):
        self.matrix = {}

    def learn(self, session, emitted):
        tokens, parents, rows = session.tree_tokens, session.tree_parents, session.logits
        path = [0]
        for e in emitted[:-1]:
            path.append(next(i for i in range(len(tokens)) if parents[i] == path[-1] and tokens[i] == e.token))
        for node in [*reversed(range(len(tokens))), *path]:
            order = np.argsort(-rows[node], kind="stable")[:8]
            self.matrix[int(tokens[node])] = order.tolist()


@pytest.mark.parametrize("ids", [(RECYCLE,), (TEMPLATE,), (RECYCLE, LOOKAHEAD), (PARALLEL, RECYCLE)])
@pytest.mark.parametrize(
    ("sampling", "acceptance"),
    [
        ({}, "coupled"),
        ({"repetition_penalty": 1.3}, "coupled"),
        ({"temperature": 1.0, "seed": 3}, "coupled"),
        ({"temperature": 1.5, "top_p": 0.4, "top_k": 30, "seed": 3}, "coupled"),
        ({"temperature": 1.5, "min_p": 0.05, "seed": 4}, "coupled"),
        ({"temperature": 0.7, "seed": 5}, "rejection"),
    ],
)
def test_the_recycler_learns_at_every_node(tiny_model, ids, sampling, acceptance):
    """Rejected ones and extra rows, too. A token may be at several nodes: then at the last of the path that came out,
    else at the first."""
    model = tiny_model("llama3", layers=LAYERS, threads=1)
    session = open_session(model, sampling=sampling, acceptance=acceptance)
    session.prefill(np.asarray(PROMPT, np.int32))
    slow, seen, rejected = SlowRecycler(), 0, 0
    rule = {**all_of(*ids), "row_price": [0.0] * 30}
    for _ in range(80):
        session.draft(_core.TreeRule(**rule, max_draft=0))
        tokens, parents, by = session.tree_tokens, session.tree_parents, session.tree_sources
        children = [int(t) for t, parent, s in zip(tokens, parents, by) if parent == 0 and s in (RECYCLE, TEMPLATE)]
        known = slow.matrix.get(int(tokens[0]), [])
        if len(ids) == 1:
            assert set(children) == set(known)
            assert children == known or sampling.get("temperature")  # there in the order of the draw, but for TEMPLATE
        assert set(children) <= set(known)
        for token, parent, source in zip(tokens[1:], parents[1:], by[1:]):
            if source in (RECYCLE, TEMPLATE) and len(ids) == 1:
                assert token in slow.matrix[int(tokens[parent])]
                seen += 1
        emitted = session.verify()
        slow.learn(session, emitted)
        rejected += len(tokens) - len(emitted)
        session.commit(min(2, len(emitted)))
    assert rejected > 50 and (seen > 50 or len(ids) > 1)
