"""Several draft models beside one model: each says what it says alone, and the clock chooses."""

import itertools

import numpy as np
import pytest

import swiftk
from decode import TOUCHED
from heads import make_block, make_eagle, make_moa
from swiftk import DraftSpec, TreeRule, _core, _testing
from swiftk.draft.draft_spec import DRAFTER_NAMES, MOST_DRAFTERS
from swiftk.testing import make_tiny

pytestmark = pytest.mark.skipif("config.getoption('device') != 'cpu'", reason="on a GPU: test_stub_drafters.py")

PROMPTS = ([5, 9, 17, 33], [7] * 70, [300, 2, 11, 11, 250, 31, 90])
KINDS = {"specforge": "eagle", "moa-0": "moa", "dspark": "block", "moa-1": "moa", "model": "model", "eagle1": "eagle"}
CHAIN = TreeRule(confidence=0.0, max_draft=5, width=(1, 1, 1, 1))


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("target"), "qwen3", "float32", layers=8)


@pytest.fixture(scope="module")
def folders(tmp_path_factory, target):
    """Heads that tap other layers each, or none."""
    base = tmp_path_factory.mktemp("several")
    made = {name: make_eagle(base / name, target, name) for name in ("specforge", "eagle1")}
    made |= {f"moa-{last}": make_moa(base / f"moa-{last}", target, last) for last in (0, 1)}
    made["dspark"] = make_block(base / "dspark", target, "dspark")
    made["model"] = make_tiny(base / "model", "llama2", "float32", seed=3, layers=2, hidden_size=32)
    return [made[name] for name in KINDS]


@pytest.fixture(scope="module")
def lm(target, folders):
    return swiftk.load(target, device="cpu", dtype="float32", drafter=folders, draft_weights="int8")


def test_all_are_there(lm):
    assert lm.model.drafters == list(KINDS.values())
    assert lm.model.drafter_bytes > 0


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "top_p": 0.9, **TOUCHED}])
def test_texts_are_plain_decodings(lm, sampling):
    options = {"max_new_tokens": 40, "ignore_eos": True, "seed": 3, **sampling}
    plain = lm.generate_many(PROMPTS, speculate=False, **options)
    ways = [{"drafter": kind, "speculate": "always"} for kind in dict.fromkeys(KINDS.values())]
    ways += [{"skip": DraftSpec(weights=("int8", name))} for name in ("drafter", "drafter-2", "drafter-5")]
    each = [{"skip": name, "drafter": "plan", "gate": CHAIN, "speculate": "always"} for name in DRAFTER_NAMES[:6]]
    for way in ({}, {"speculate": "always"}, *ways, *each):
        together = lm.generate_many(PROMPTS, **options, **way)
        assert [r.tokens for r in together] == [r.tokens for r in plain], way
    each_its_own = lm.generate_many(PROMPTS * 2, each=each, **options)  # texts side by side, a drafter each
    assert [r.tokens for r in each_its_own] == [r.tokens for r in plain] * 2
    assert {r.stats.skip for r in each_its_own} == {f"the {name}" for name in DRAFTER_NAMES[:6]}


@pytest.mark.parametrize("number", range(len(KINDS)))
def test_each_says_what_it_says_alone(target, folders, number):
    """Beside others it taps a part of what is kept of a token: the same rows, and so the same drafts."""
    beside, alone = (
        _core.Session(_core.Model(str(target), dtype="float32", drafters=[str(f) for f in its]), poison=True)
        for its in (folders, folders[number : number + 1])
    )
    beside.set_skip(_core.DraftSpec([], [], -1, [DRAFTER_NAMES[number]]))
    alone.set_skip(_core.DraftSpec([], [], -1, ["drafter"]))
    for session in (beside, alone):
        session.prefill(np.int32(PROMPTS[2]))
    for _ in range(6):
        trees = []
        for session in (beside, alone):
            session.draft(_core.TreeRule(confidence=0.0, max_draft=4, width=(3, 3, 2, 2)))
            trees.append((session.tree_tokens.tolist(), session.tree_parents.tolist()))
            session.commit(len(session.verify()))
        assert trees[0] == trees[1] and len(trees[0][0]) > 4


def test_drafters_take_turns_in_a_text(target, folders):
    """Each goes on after what others drafted meanwhile, as if it had been there."""
    turns = [itertools.cycle(range(len(KINDS))), itertools.repeat(1)]
    texts = []
    for turn in turns:
        model = _core.Model(str(target), dtype="float32", drafters=[str(f) for f in folders])
        session, said = _core.Session(model, poison=True), []
        session.prefill(np.int32(PROMPTS[0]))
        while len(session.history) < 90:
            number = next(turn)
            session.set_skip(_core.DraftSpec([], [], -1, [DRAFTER_NAMES[number]]))
            session.draft(_core.TreeRule(confidence=0.0, max_draft=1, width=(1, 1, 1, 1)))
            if number == 1:
                said.append((len(session.history), session.tree_tokens.tolist()))
            session.commit(1 if session.verify() else 0)
        texts.append((session.history.tolist()[:90], said))
    assert texts[0][0] == texts[1][0]
    assert set(map(str, texts[0][1])) <= set(map(str, texts[1][1])) and len(texts[0][1]) > 10


def test_the_clock_chooses(target, folders):
    """Of two heads, one of which is always right and the other never."""
    model = _core.Model(str(target), drafters=[str(folders[5]), str(folders[0])], dtype="float32")
    one = _testing.Planner(model)
    taken = []
    for _ in range(60):
        a = one.next()
        taken.append(a["plan"] if a["drafts"] else -1)
        if not a["drafts"]:
            one.learn(1)
            continue
        right = a["plan"] == 1
        said = [(0.9, 0 if right else -1)] * 3
        one.learn(4 if right else 1, rows=4, draft_steps=3, draft=0.15, verify=1.02, outcomes=said)
    assert set(taken[-20:]) == {1}


def test_what_is_not_there_is_named(lm, target, folders):
    with pytest.raises(swiftk.InvalidArgument, match=r"drafter-7.*want|the model has .*drafter-6"):
        lm.generate([5], skip="drafter-7")
    with pytest.raises(swiftk.InvalidOption, match=f"names 9 folders, want at most {MOST_DRAFTERS}"):
        swiftk.load(target, drafter=folders[:1] * 9)
    with pytest.raises(swiftk.InvalidArgument, match="drafter-2 was not loaded"):
        _core.Session(_core.Model(str(target), drafters=[str(folders[0])])).set_skip(
            _core.DraftSpec([], [], -1, ["drafter-2"])
        )
    few = swiftk.load(target, device="cpu", drafter=folders[:1], draft_weights="own")
    with pytest.raises(swiftk.InvalidArgument, match="drafter='moa', the model has eagle"):
        few.generate([5], drafter="moa")
