"""A draft model that guides few-bit weights: its proposals are read in one step, the text stays plain decoding's."""

import numpy as np
import pytest

import swiftk
from decode import decode, open_session
from head_contract import (
    PROMPTS,
    heads_fixture,  # noqa: F401
    target_fixture,  # noqa: F401
)
from swiftk import DraftSpec, _core
from swiftk.errors import InvalidArgument, UnsupportedModel
from timed_rule import random_rule

pytestmark = pytest.mark.skipif("config.getoption('device') != 'cpu'", reason="low-bit copies of the host's")

INT8 = DraftSpec(weights=("int8", "drafter"))


def guided(target, drafter, *weights):
    """A session within a text, whose drafts read these weights."""
    copies = "own" if "own" in weights else "int8,int4"
    model = _core.Model(str(target), threads=1, drafters=[str(drafter)], draft_weights=copies)
    session = open_session(model)
    decode(session, PROMPTS[0], 6)
    session.set_skip(_core.DraftSpec(weights=list(weights)))
    return session


def certain(**more):
    """A rule by which all that is proposed is right, and rows cost next to nothing."""
    rule = random_rule(1, min_step_gain=0.0, price=1e-6)
    sure = {"p_top1": [1.0] * 16, "p_rank": [[0.0] * 9] * 16, "guide": [1.0] * 16}
    return _core.TreeRule(**{**rule, **sure, "row_price": [1e-6] * 64, **more})


def a_round(session, rule):
    session.draft(rule)
    emitted = session.verify()
    session.commit(len(emitted))
    return [e.token for e in emitted]


@pytest.mark.parametrize("proposals", [0, 1, 3])
def test_proposals_that_are_right_bring_a_step_on(target, proposals):
    """A model that proposes for itself: passes of 1 + proposals tokens, and every one is accepted."""
    session = guided(target, target, "own", "drafter")
    session.draft(certain(max_draft=8, proposals=proposals))
    assert session.last["draft_steps"] == session.drafted_from == 8
    assert np.array_equal(session.tree_parents[:9], np.arange(-1, 8))
    assert sum(e.drafted for e in session.verify()) == 8


def test_what_a_guide_said_is_received_where_the_text_reports(target):
    """One that is the model itself is right wherever the text came by, once a node, however bold a proposal was;
    and a plan without a guide has none."""
    session = guided(target, target, "own", "drafter")
    assert len(a_round(session, certain(max_draft=6, proposals=2))) == 7
    said = session.guide_outcomes
    assert 0 < len(said) <= 6
    assert {rank for _, rank in said} == {0}
    session.set_skip(_core.DraftSpec(weights=["own"]))
    a_round(session, certain(max_draft=4))
    assert session.guide_outcomes == []


def test_what_a_random_guide_said_is_held_against_it(target, heads):
    session = guided(target, heads["specforge"], "int8", "drafter")
    ranks = []
    for _ in range(6):
        a_round(session, certain(max_draft=6, proposals=3))
        ranks += [rank for _, rank in session.guide_outcomes]
    assert len(ranks) > 6
    assert sum(rank == 0 for rank in ranks) < len(ranks) / 2


def test_proposals_that_were_refuted_are_not_verified(target, heads):
    """A random head's proposals: the plan reads them, and those that it does not list leave the tree."""
    session = guided(target, heads["specforge"], "int8", "drafter")
    rows = [i * 0.01 for i in range(64)]
    session.draft(certain(max_draft=6, proposals=3, guide=[0.2] * 16, row_price=rows))
    left = session.drafted_from
    assert left == session.last["draft_steps"] < session.last["draft_nodes"] <= 6 * 4
    assert session.tree_parents.tolist()[:left] == list(range(-1, left - 1))
    assert session.verify()


def test_a_bold_proposal_is_not_read(target, heads):
    session = guided(target, heads["specforge"], "int8", "drafter")
    session.draft(certain(max_draft=3, proposals=3, guide=[0.9] * 16, least_proposal=0.99))
    assert session.last["draft_steps"] == session.drafted_from == 3


@pytest.mark.parametrize("seed", range(4))
def test_any_rule_gives_plain_decoding(target, heads, seed):
    plain, fast = guided(target, heads["eagle1"]), guided(target, heads["eagle1"], "int4", "drafter")
    want = [token for _ in range(30) for token in a_round(plain, _core.TreeRule(max_draft=0))]
    found = []
    while len(found) < 30:
        rule = random_rule(seed + len(found), min_step_gain=0.05, price=0.003)
        proposed = {"proposals": 1 + seed, "guide": rule["p_top1"], "least_proposal": 0.1 * seed}
        found += a_round(fast, _core.TreeRule(**rule, **proposed))
    assert found[:30] == want[:30]


def test_what_cannot_guide(target, heads):
    with pytest.raises(UnsupportedModel, match="block head proposes behind the text alone"):
        guided(target, heads["dspark"], "int8", "drafter")
    lm = swiftk.load(target, device="cpu", draft_weights="int8")
    with pytest.raises(InvalidArgument, match="drafter=FOLDER"):
        lm.generate([5], skip=INT8, optimizer=None, drafter="plan")
    with pytest.raises(InvalidArgument, match=r"one or 6"):
        DraftSpec(weights=("int8", "int4", "drafter")).check(6)
    assert str(INT8).endswith("guided by the drafter")
    assert DraftSpec.from_dict(INT8.to_dict()) == INT8
