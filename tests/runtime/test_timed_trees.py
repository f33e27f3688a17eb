"""Trees by time (csrc/draft/tree_rule.h): the very tree that the rule gives, the best leaves, outcomes, bad fields."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import swiftk
from decode import Rule, decode, open_session
from swiftk import _core
from swiftk.errors import InvalidArgument
from timed_rule import BUCKETS, RANKS, DraftRows, Tree, assert_plain, random_rule, samplings

LAYERS = 4
PROMPT = [5, 9, 2, 7, 7, 1, 30, 12, 4, 8, 21]
SKIPS = [((1,), (1, 2), -1), ((), (3,), -1), ((), (), 2), ((0,), (), -1), ((), (), 0)]
SAMPLED = {"temperature": 1.2, "seed": 11}
timed = st.builds(
    random_rule,
    seed=st.integers(0, 10**6),
    min_step_gain=st.sampled_from([0.0, 0.05, 0.3, 0.8, 1.0, 2.0]),
    price=st.sampled_from([0.0, 0.003, 0.03, 0.2, 5.0]),
)


def opened(model, skip, sampling=None, tokens=6, context=0):
    """A session in the middle of a text."""
    session = open_session(model, sampling=sampling, context=context)
    decode(session, PROMPT, tokens)
    session.set_skip(_core.DraftSpec(*skip))
    return session


def expected(model, session, skip, rule, sampling=None, **limits):
    history = session.history.tolist()
    rows = DraftRows(model, history, skip, sampling or {})
    return Tree(rule, rows, history[-1], session.context - len(history) - 1, **limits)


@given(
    family=st.sampled_from(["llama3", "qwen3", "mistral"]),
    skip=st.sampled_from(SKIPS),
    timed=timed,
    sampling=samplings,
    limits=st.tuples(st.integers(0, 25), st.integers(1, 64), st.sets(st.integers(0, 40), max_size=3)),
    n=st.integers(1, 40),
)
def test_any_tree_by_time_gives_plain_decoding(tiny_model, family, skip, timed, sampling, limits, n):
    most, nodes, stops = limits
    rule = Rule(skip=skip, max_draft=most, max_nodes=nodes, timed=timed, stop_ids=tuple(stops))
    assert_plain(tiny_model(family, layers=LAYERS, threads=1), PROMPT, n, rule, sampling)


@given(
    skip=st.sampled_from(SKIPS),
    timed=timed,
    sampling=st.sampled_from([{}, SAMPLED]),
    limits=st.fixed_dictionaries({"max_draft": st.integers(0, 8), "max_nodes": st.integers(1, 64)}),
    stops=st.sets(st.integers(0, 319), max_size=60),
)
def test_the_tree_is_the_rules(tiny_model, skip, timed, sampling, limits, stops):
    """Nodes, their order, draft steps and what verification reports: as a slow model has them."""
    model = tiny_model("llama3", layers=LAYERS, threads=1)
    session = opened(model, skip, sampling)
    want = expected(model, session, skip, timed, sampling, **limits, stop_ids=stops)
    session.draft(_core.TreeRule(**timed, **limits, stop_ids=sorted(stops)))
    assert session.tree_tokens.tolist() == want.tokens
    assert session.tree_parents.tolist() == want.parents
    assert session.last["draft_steps"] == want.steps
    assert session.drafted_from == want.drafted_from

    node, received = 0, []
    for emitted in session.verify():
        if node < want.drafted_from:
            ids = want.candidates[node]
            received.append((want.confidence[node], ids.index(emitted.token) if emitted.token in ids else -1))
        children = [i for i, p in enumerate(want.parents) if p == node and want.tokens[i] == emitted.token]
        assert emitted.drafted == bool(children)
        node = children[0] if children else None
    assert node is None
    assert [rank for _, rank in session.outcomes] == [rank for _, rank in received]
    assert [c for c, _ in session.outcomes] == pytest.approx([c for c, _ in received], rel=1e-5)


def test_the_slow_model_draws_more_than_chains(tiny_model):
    """That the test above compares something: side branches are read, and rejected text has outcomes, too."""
    model = tiny_model("llama3", layers=LAYERS, threads=1)
    session = opened(model, SKIPS[0])
    rules = [random_rule(i, min_step_gain=0.02, price=0.003) for i in range(9)]
    trees = [expected(model, session, SKIPS[0], rule, max_draft=5) for rule in rules]
    wide = [tree for tree in trees if len(set(tree.parents[: tree.drafted_from])) < tree.drafted_from]
    assert len(wide) > 2
    assert any(len(tree.tokens) > tree.drafted_from + 3 for tree in wide)


@pytest.mark.parametrize("seed", range(12))
def test_leaves_are_the_best_that_could_be_taken(tiny_model, seed):
    """Any other number of leaves, with the best for that number, is worth no more beyond the price of its rows."""
    model = tiny_model("llama3", layers=LAYERS, threads=1)
    rule = random_rule(seed, min_step_gain=0.5, price=[0.002, 0.02, 0.1][seed % 3])
    session = opened(model, SKIPS[seed % 3])
    tree = expected(model, session, SKIPS[seed % 3], rule)
    begin = tree.drafted_from
    taken = session.draft(_core.TreeRule(**rule)) - begin
    worths = [-float(leaf[0]) for leaf in tree.choices]
    price = rule["row_price"]
    most = max(0, min(64, len(price)) - begin)
    gains = [sum(worths[:n]) - (price[begin + n - 1] - price[begin - 1] if n else 0) for n in range(most + 1)]
    assert gains[taken] >= max(gains) - 1e-5
    for chosen in itertools.islice(itertools.combinations(worths, taken), 2000):
        assert sum(chosen) <= sum(worths[:taken]) + 1e-6


@pytest.mark.parametrize("sampling", [{}, SAMPLED], ids=["greedy", "sampled"])
def test_the_context_ends(tiny_model, sampling):
    model = tiny_model("llama3", layers=LAYERS, threads=1)
    truth = decode(open_session(model, sampling=sampling), PROMPT, 21).tokens
    session = open_session(model, sampling=sampling, context=len(PROMPT) + 21)
    got = [session.prefill(np.asarray(PROMPT, np.int32)).token]
    session.set_skip(_core.DraftSpec(*SKIPS[0]))
    rule = random_rule(1, min_step_gain=0.0, price=0.0)
    while len(session.history) < session.context:
        session.draft(_core.TreeRule(**rule))
        emitted = session.verify()
        session.commit(len(emitted))
        got += [e.token for e in emitted]
    assert got == truth


@pytest.mark.parametrize("min_step_gain", [0.0, 0.01])
def test_what_was_drafted_from_comes_first(tiny_model, min_step_gain):
    model = tiny_model("llama3", layers=LAYERS, threads=1)
    session = opened(model, SKIPS[1])
    rule = random_rule(8, min_step_gain=min_step_gain)
    nodes = session.draft(_core.TreeRule(**{**rule, "row_price": [0.0] * 64}, max_draft=7))
    grown, steps, parents = session.drafted_from, session.last["draft_steps"], session.tree_parents.tolist()
    assert steps == 7 or min_step_gain > 0
    assert 1 < steps == grown
    assert grown < nodes == 64, "rows are free"
    assert all(parent < grown for parent in parents)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("confidence", -0.1),
        ("confidence", float("nan")),
        ("max_draft", -1),
        ("max_nodes", 0),
        ("max_nodes", 65),
        ("width", (0, 1, 1, 1)),
        ("width", (65, 1, 1, 1)),
        ("min_step_gain", -0.5),
        ("min_step_gain", float("nan")),
        ("p_top1", [0.5] * (BUCKETS - 1) + [1.5]),
        ("p_top1", [float("nan")] * BUCKETS),
        ("p_rank", [[-0.1] * (RANKS - 1)] * BUCKETS),
        ("edges", [0.5, 0.4] + [0.9] * (BUCKETS - 3)),
        ("edges", [float("nan")] * (BUCKETS - 1)),
        ("row_price", [0.0, float("nan")]),
    ],
)
def test_a_bad_field_is_named(tiny_model, field, value):
    model = tiny_model("llama3", layers=LAYERS, threads=1)
    session = opened(model, SKIPS[0])
    rule = {} if field in ("confidence", "width") else random_rule(0)
    with pytest.raises(InvalidArgument, match=rf"\[draft\] {field} is .*, want "):
        session.draft(_core.TreeRule(**{**rule, field: value}))
    session.draft(_core.TreeRule(**rule))  # and the session goes on
    assert session.verify()


@pytest.mark.parametrize("field, value", [("confidence", 0.5), ("width", (1, 1, 1, 1)), ("beam", 4)])
def test_a_rule_grows_trees_in_one_way(field, value):
    with pytest.raises(InvalidArgument, match=r"\[draft\] .* want none of it beside (row_price|beam)"):
        _core.TreeRule(**random_rule(0), **{field: value})


def test_tables_of_another_shape_are_refused(tiny_model):
    session = opened(tiny_model("llama3", layers=LAYERS, threads=1), SKIPS[0])
    for field, value in (("p_top1", [0.5] * 3), ("edges", [0.5] * BUCKETS), ("p_rank", [[0.1] * RANKS] * BUCKETS)):
        with pytest.raises(swiftk.InvalidArgument, match=field):
            session.draft(_core.TreeRule(**{**random_rule(0), field: value}))
