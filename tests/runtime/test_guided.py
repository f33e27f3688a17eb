"""A draft model that guides few-bit weights: its proposals are read in one step, the text stays plain decoding's."""

import numpy as np
import pytest

import swiftk
from decode import TOUCHED, decode, open_session
from heads import make_block, make_eagle, make_moa
from marks import exhaustive
from swiftk import DraftSpec, _core
from swiftk.errors import InvalidArgument, UnsupportedModel
from swiftk.testing import make_tiny
from timed_rule import random_rule

pytestmark = pytest.mark.skipif("config.getoption('device') != 'cpu'", reason="low-bit copies of the host's")

PROMPTS = ([5, 9, 17, 33], [7] * 70, [300, 2, 11, 11, 250, 31, 90])
SAMPLINGS = {"greedy": {"temperature": 0.0}, "sampled": {"temperature": 1.0, "top_p": 0.9, **TOUCHED}}
INT8 = DraftSpec(weights=("int8", "drafter"))


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("target"), "qwen3", "float32", layers=6)


@pytest.fixture(scope="module")
def folders(tmp_path_factory, target):
    base = tmp_path_factory.mktemp("guides")
    found = {form: make_eagle(base / form, target, form) for form in ("specforge", "eagle1")}
    found |= {f"moa-{last}": make_moa(base / f"moa-{last}", target, last) for last in (0, 2)}
    found["model"] = make_tiny(base / "model", "llama2", "float32", seed=3, layers=2, hidden_size=32)
    found["itself"] = target
    return found | {"block": make_block(base / "block", target)}


QUICK = ["specforge", "moa-2", "itself"]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("name", QUICK + exhaustive("eagle1", "moa-0", "model"))
def test_texts_are_plain_decodings(target, folders, name, sampling):
    lm = swiftk.load(target, device="cpu", drafter=folders[name], draft_weights=["int8", "int4"])
    options = {"max_new_tokens": 40, "ignore_eos": True, "seed": 3, **SAMPLINGS[sampling]}
    plain = lm.generate_many(PROMPTS, speculate=False, **options)
    for weights in ("int8", "int4"):
        skip = DraftSpec(weights=(weights, "drafter"))
        for way in ({"drafter": "plan"}, {"drafter": "auto"}, {"drafter": "plan", "acceptance": "rejection"}):
            asked = {**options, "skip": skip, "optimizer": None, "speculate": "always", **way}
            for _ in range(4):  # beside repetitions, which cost nothing, a busy clock may find no step worth its price
                together = lm.generate_many(PROMPTS, **asked)
                drafted = sum(r.stats.num_draft_tokens for r in together)
                if drafted:
                    break
            alone = [lm.generate(prompt, **asked) for prompt in PROMPTS]
            if "acceptance" in way and sampling == "sampled":
                continue  # other draws than plain decoding's
            for one, other, want in zip(together, alone, plain, strict=True):
                assert one.tokens == want.tokens == other.tokens
            assert drafted > 0


def sessions(target, drafter, weights, copies="int8,int4"):
    model = _core.Model(str(target), threads=1, drafters=[str(drafter)], draft_weights=copies)
    session = open_session(model)
    decode(session, PROMPTS[0], 6)
    session.set_skip(_core.DraftSpec([], [], -1, weights))
    return session


def certain(**more):
    """A rule by which all that is proposed is right, and rows cost next to nothing."""
    rule = random_rule(1, min_step_gain=0.0, price=1e-6)
    sure = {"p_top1": [1.0] * 16, "p_rank": [[0.0] * 9] * 16, "guide": [1.0] * 16}
    return {**rule, **sure, "row_price": [1e-6] * 64, **more}


@pytest.mark.parametrize("proposals", [0, 1, 3])
def test_proposals_that_are_right_bring_a_step_on(target, proposals):
    """A model that proposes for itself: passes of 1 + proposals tokens, and every one is accepted."""
    session = sessions(target, target, ["own", "drafter"], copies="own")
    session.draft(_core.TreeRule(**certain(max_draft=8, proposals=proposals)))
    assert session.last["draft_steps"] == session.drafted_from == 8
    assert np.array_equal(session.tree_parents[:9], np.arange(-1, 8))
    assert sum(e.drafted for e in session.verify()) == 8


def test_what_a_guide_said_is_received_where_the_text_reports(target):
    """One that is the model itself is right wherever the text came by, once a node, however bold a proposal was;
    and a plan without a guide has none."""
    session = sessions(target, target, ["own", "drafter"], copies="own")
    session.draft(_core.TreeRule(**certain(max_draft=6, proposals=2)))
    emitted = session.verify()
    assert len(emitted) == 7
    said = session.guide_outcomes
    assert 0 < len(said) <= 6
    assert {rank for _, rank in said} == {0}
    session.commit(7)
    session.set_skip(_core.DraftSpec([], [], -1, ["own"]))
    session.draft(_core.TreeRule(**certain(max_draft=4)))
    session.verify()
    assert session.guide_outcomes == []


def test_what_a_random_guide_said_is_held_against_it(target, folders):
    session = sessions(target, folders["specforge"], ["int8", "drafter"])
    ranks = []
    for _ in range(6):
        session.draft(_core.TreeRule(**certain(max_draft=6, proposals=3)))
        session.commit(len(session.verify()))
        ranks += [rank for _, rank in session.guide_outcomes]
    assert len(ranks) > 6
    assert sum(rank == 0 for rank in ranks) < len(ranks) / 2


def test_proposals_that_were_refuted_are_not_verified(target, folders):
    """A random head's proposals: the plan reads them, and those that it does not list leave the tree."""
    session = sessions(target, folders["specforge"], ["int8", "drafter"])
    rows = [i * 0.01 for i in range(64)]
    session.draft(_core.TreeRule(**certain(max_draft=6, proposals=3, guide=[0.2] * 16, row_price=rows)))
    left = session.drafted_from
    assert left == session.last["draft_steps"] < session.last["draft_nodes"] <= 6 * 4
    assert session.tree_parents.tolist()[:left] == list(range(-1, left - 1))
    assert session.verify()


def test_a_bold_proposal_is_not_read(target, folders):
    session = sessions(target, folders["specforge"], ["int8", "drafter"])
    session.draft(_core.TreeRule(**certain(max_draft=3, proposals=3, guide=[0.9] * 16, least_proposal=0.99)))
    assert session.last["draft_steps"] == session.drafted_from == 3


@pytest.mark.parametrize("seed", range(4))
def test_any_rule_gives_plain_decoding(target, folders, seed):
    plain = sessions(target, folders["eagle1"], [])
    want = [e.token for _ in range(30) for e in _round(plain, max_draft=0)]
    fast, found = sessions(target, folders["eagle1"], ["int4", "drafter"]), []
    while len(found) < 30:
        rule = random_rule(seed + len(found), min_step_gain=0.05, price=0.003)
        guided = {"proposals": 1 + seed, "guide": rule["p_top1"], "least_proposal": 0.1 * seed}
        found += [e.token for e in _round(fast, **rule, **guided)]
    assert found[:30] == want[:30]


def _round(session, **rule):
    session.draft(_core.TreeRule(**rule))
    emitted = session.verify()
    session.commit(len(emitted))
    return emitted


def test_what_cannot_guide(target, folders):
    with pytest.raises(UnsupportedModel, match="block head proposes behind the text alone"):
        sessions(target, folders["block"], ["int8", "drafter"])
    lm = swiftk.load(target, device="cpu", draft_weights="int8")
    with pytest.raises(InvalidArgument, match="drafter=FOLDER"):
        lm.generate([5], skip=INT8, optimizer=None, drafter="plan")
    with pytest.raises(InvalidArgument, match=r"one or 6"):
        DraftSpec(weights=("int8", "int4", "drafter")).check(6)
    assert str(INT8).endswith("guided by the drafter")
    assert DraftSpec.from_dict(INT8.to_dict()) == INT8
