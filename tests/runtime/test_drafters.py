"""Trees with nodes from sources: output is plain decoding's whatever is proposed, limits hold, reports are true."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decode import Rule, decode, open_session
from slow_sources import slow_proposal
from source_rules import LAYERS, LOOPS, PARALLEL, PROMPT, RECYCLE, SETS, SKIPS, SUFFIX, all_of, source_rule
from swiftk import _core
from swiftk.draft.sources import NAMES
from swiftk.errors import Cancelled, InvalidArgument
from timed_rule import DraftRows, assert_plain, samplings

rules = st.builds(
    source_rule,
    seed=st.integers(0, 10**6),
    ids=st.sampled_from(SETS),
    chain=st.sampled_from([0, 1, 12]),
    min_row_gain=st.sampled_from([0.0, 0.05]),
    min_own_gain=st.sampled_from([0.0, 0.1, 2.0]),
    sure=st.booleans(),
    min_step_gain=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    price=st.sampled_from([0.0, 0.003, 0.03, 0.2]),
)


@given(
    family=st.sampled_from(["llama3", "qwen3", "mistral"]),
    skip=st.sampled_from(SKIPS),
    timed=rules,
    sampling=samplings,
    limits=st.tuples(st.integers(0, 12), st.integers(1, 64), st.sets(st.integers(0, 40), max_size=3)),
    n=st.integers(1, 50),
)
def test_any_tree_with_sources_gives_plain_decoding(tiny_model, family, skip, timed, sampling, limits, n):
    most, nodes, stops = limits
    rule = Rule(skip=skip, max_draft=most, max_nodes=nodes, timed=timed, stop_ids=tuple(stops))
    assert_plain(tiny_model(family, layers=LAYERS, threads=1), PROMPT, n, rule, sampling)


@pytest.mark.parametrize("ids", SETS)
def test_sources_are_right_on_a_text_that_repeats_itself(tiny_model, ids):
    """So that the tests of equal output compare something."""
    model = tiny_model("llama3", layers=LAYERS, threads=1)
    plain = decode(open_session(model, sampling=LOOPS), PROMPT, 120).tokens
    fast = decode(open_session(model, sampling=LOOPS), PROMPT, 120, Rule(max_draft=0, timed=all_of(*ids)))
    assert fast.tokens == plain
    assert fast.rounds < (0.9 if ids == (PARALLEL,) else 0.6) * 119


@given(timed=rules, sampling=st.sampled_from([{}, {"temperature": 1.2, "seed": 3}]), nodes=st.integers(1, 64))
def test_trees_keep_their_limits_and_hold_each_token_once(tiny_model, timed, sampling, nodes):
    model = tiny_model("llama3", layers=LAYERS, threads=1)
    session = open_session(model, sampling=sampling)
    session.prefill(np.asarray(PROMPT, np.int32))
    session.set_skip(_core.DraftSpec(*SKIPS[0]))
    for depth in (5, 2, 63, 0, 7, 1):
        size = session.draft(_core.TreeRule(**timed, max_nodes=nodes, max_depth=depth))
        tokens, parents = session.tree_tokens.tolist(), session.tree_parents.tolist()
        assert size == len(tokens) <= nodes
        assert len(set(zip(parents, tokens, strict=True))) == size
        depths = [0]
        for parent in parents[1:]:
            depths.append(depths[parent] + 1)
        assert max(depths) <= depth
        asked = {one for one, _ in timed["sources"]}
        assert set(session.tree_sources[1:]) <= asked | {1}
        proposed = session.last["proposed"]
        assert [session.tree_sources.count(i) for i in range(len(proposed))] == proposed
        session.commit(len(session.verify()))


def test_what_costs_no_step_is_preferred_where_it_covers(tiny_model):
    """A source that is always right leaves a draft step nothing; one that is never right, everything."""
    model = tiny_model("llama3", layers=LAYERS, threads=1)
    session = open_session(model, sampling=LOOPS)
    decode(session, PROMPT, 100)
    session.set_skip(_core.DraftSpec(*SKIPS[0]))
    rule = {**source_rule(1, (SUFFIX,), sure=True, min_step_gain=0.5, price=0.01), "chain": 12}
    session.draft(_core.TreeRule(**rule))
    assert session.last["draft_steps"] == 0 and session.tree_sources[1:].count(SUFFIX) > 3
    session.verify()
    session.commit(1)
    rule["sources"] = [(SUFFIX, np.zeros((16, 8)).tolist())]
    session.draft(_core.TreeRule(**rule))
    assert session.last["draft_steps"] > 0 and SUFFIX not in session.tree_sources
    assert not session.last["at_once"]


def test_a_step_reads_a_chain_of_proposals_at_once(tiny_model):
    model = tiny_model("llama3", layers=LAYERS, threads=1)
    session = open_session(model, sampling=LOOPS)
    decode(session, PROMPT, 100)
    session.set_skip(_core.DraftSpec(*SKIPS[0]))
    half = np.zeros((16, 8))
    half[:, 0] = 0.5
    rule = {**source_rule(1, (SUFFIX,), min_step_gain=0.2, price=0.001), "sources": [(SUFFIX, half.tolist())]}
    session.draft(_core.TreeRule(**rule, max_draft=1))
    assert (session.last["draft_steps"], session.drafted_from) == (1, 1)
    session.draft(_core.TreeRule(**{**rule, "chain": 5}, max_draft=1))
    assert (session.last["draft_steps"], session.drafted_from) == (1, 6)
    assert session.tree_sources[1:6] == [SUFFIX] * 5


def test_a_step_reads_others_of_the_plan_that_are_worth_it(tiny_model):
    session = open_session(tiny_model("llama3", layers=LAYERS, threads=1))
    session.prefill(np.asarray(PROMPT, np.int32))
    session.set_skip(_core.DraftSpec(*SKIPS[0]))
    rule = {**source_rule(1, ()), "min_step_gain": 0.0, "row_price": [0.0] * 64, "chain": 3, "max_draft": 2}
    rule |= {"p_top1": [0.5] * 16, "p_rank": [[0.2, 0.15, 0.1, 0.05, *[0.0] * 5]] * 16}
    for least, read in ((2.0, 2), (0.18, 3), (0.12, 4), (0.0, 5)):
        session.draft(_core.TreeRule(**{**rule, "min_own_gain": least}))
        assert (session.last["draft_steps"], session.drafted_from) == (2, read)
        assert session.tree_parents.tolist()[1:read] == [0] * (read - 1), "the likeliest children of the root"


@given(timed=rules, n=st.integers(5, 60))
def test_what_is_reported_of_proposals_is_what_came(tiny_model, timed, n):
    """At each emitted token, for each source: whether its own list, asked at that place, held it."""
    model = tiny_model("llama3", layers=LAYERS, threads=1)
    session = open_session(model)
    session.prefill(np.asarray(PROMPT, np.int32))
    session.set_skip(_core.DraftSpec(*SKIPS[0]))
    ids = [one for one, _ in timed["sources"]]
    while len(session.history) < n:
        session.draft(_core.TreeRule(**timed))
        text = session.history.tolist()
        emitted = session.verify()
        reported = session.proposed
        assert [one for one, _, _ in reported] == ids * len(emitted)
        if SUFFIX in ids:
            for i, e in enumerate(emitted):
                bucket, want = slow_proposal(text, [x.token for x in emitted[:i]])
                _, reported_bucket, rank = reported[i * len(ids) + ids.index(SUFFIX)]
                assert reported_bucket == bucket
                assert rank == (want[:4].index(e.token) if e.token in want[:4] else -1) or len(want) > 4
        session.commit(len(emitted))


def test_a_cut_block_is_taken_in_as_far_as_it_counts(tiny_model):
    model = tiny_model("llama3", layers=LAYERS, threads=1)
    truth = decode(open_session(model, sampling=LOOPS), PROMPT, 80).tokens
    session = open_session(model, sampling=LOOPS)
    got = [session.prefill(np.asarray(PROMPT, np.int32)).token]
    rule = all_of(SUFFIX, RECYCLE)
    for cut in [1, 2, 0, 3, 1] * 30:
        session.draft(_core.TreeRule(**rule, max_draft=0))
        emitted = session.verify()[:cut]
        session.commit(len(emitted))
        got += [e.token for e in emitted]
        if len(got) >= 80:
            break
    assert got[:80] == truth


@pytest.mark.parametrize("ids", SETS)
@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.1, "seed": 5}], ids=["greedy", "sampled"])
def test_the_context_ends(tiny_model, ids, sampling):
    model = tiny_model("llama3", layers=LAYERS, threads=1)
    truth = decode(open_session(model, sampling=sampling), PROMPT, 60).tokens
    session = open_session(model, sampling=sampling, context=len(PROMPT) + 60)
    got = [session.prefill(np.asarray(PROMPT, np.int32)).token]
    session.set_skip(_core.DraftSpec(*SKIPS[0]))
    rule = {**all_of(*ids), "chain": 12, "min_step_gain": 0.1}
    while len(session.history) < session.context:
        session.draft(_core.TreeRule(**rule))
        emitted = session.verify()
        session.commit(len(emitted))
        got += [e.token for e in emitted]
    assert got == truth


@pytest.mark.parametrize("ids", SETS)
def test_a_cancelled_round_starts_anew(tiny_model, ids):
    model = tiny_model("llama3", layers=LAYERS, threads=1)
    truth = decode(open_session(model), PROMPT, 60).tokens
    session = open_session(model)
    got = [session.prefill(np.asarray(PROMPT, np.int32)).token]
    session.set_skip(_core.DraftSpec(*SKIPS[0]))
    rule = {**all_of(*ids), "chain": 12, "min_step_gain": 0.9}
    while len(got) < 60:
        session.draft(_core.TreeRule(**rule))
        thread = threading.Thread(target=session.cancel)
        thread.start()
        thread.join()
        with pytest.raises(Cancelled):
            session.verify()
        session.draft(_core.TreeRule(**rule))
        emitted = session.verify()
        session.commit(len(emitted))
        got += [e.token for e in emitted]
    assert got[:60] == truth


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sources", [(1, np.zeros((16, 8)).tolist())]),
        ("sources", [(len(NAMES), np.zeros((16, 8)).tolist())]),
        ("sources", [(SUFFIX, np.full((16, 8), 1.5).tolist())]),
        ("sources", [(SUFFIX, np.full((16, 8), np.nan).tolist())]),
        ("sources", [(SUFFIX, np.zeros((16, 8)).tolist())] * 5),
        ("chain", -1),
        ("chain", 64),
        ("min_row_gain", float("nan")),
        ("max_depth", -1),
    ],
)
def test_a_bad_field_is_named(tiny_model, field, value):
    session = open_session(tiny_model("llama3", layers=LAYERS, threads=1))
    session.prefill(np.asarray(PROMPT, np.int32))
    rule = source_rule(0, (SUFFIX,))
    with pytest.raises(InvalidArgument, match=rf"\[draft\] {field} is .*, want "):
        session.draft(_core.TreeRule(**{**rule, field: value}))
    with pytest.raises(InvalidArgument, match="row_price is"):
        session.draft(_core.TreeRule(sources=rule["sources"]))
    session.draft(_core.TreeRule(**rule))
    assert session.verify()


def test_behind_what_the_plan_has_read_only_what_it_lists_is_taken(tiny_model):
    """Sources are a second opinion there. Before it has read, whatever they propose may be a node."""
    model = tiny_model("llama3", layers=LAYERS, threads=1)
    session = open_session(model)
    decode(session, PROMPT, 60)
    session.set_skip(_core.DraftSpec(*SKIPS[0]))
    rule, strangers = {**source_rule(1, (SUFFIX, RECYCLE), min_step_gain=0.0), "row_price": [0.0] * 64}, 0
    for _ in range(30):
        listed = DraftRows(model, session.history, SKIPS[0], {})(())[1]

        def children(most, rule=rule):
            session.draft(_core.TreeRule(**rule, max_draft=most))
            assert session.last["draft_steps"] == most
            return {t for t, parent in zip(session.tree_tokens[1:], session.tree_parents[1:]) if parent == 0}

        strangers += len(children(0) - set(listed))
        assert children(1) <= set(listed)
        session.verify()
        session.commit(1)
    assert strangers > 3
