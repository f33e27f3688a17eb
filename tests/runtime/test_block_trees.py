"""Trees over block heads: of all paths through the places that a block foretells, those that are worth their rows."""

from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from decode import open_session
from head_contract import PROMPTS, beside, paths, target_fixture  # noqa: F401
from head_oracles import trained_block
from heads import make_block
from swiftk import _core
from swiftk.draft.draft_spec import DRAFTER_NAMES
from timed_rule import MAX_NODES, DraftRows, f32, random_rule

pytestmark = pytest.mark.skipif("config.getoption('device') != 'cpu'", reason="on a GPU: test_stub_drafters.py")

HEADS = {  # and how many tokens ahead each proposes
    "z-lab": (4, make_block, {"form": "z-lab"}),
    "pair": (1, make_block, {"form": "z-lab", "block": 2}),
    "dflash": (6, make_block, {"form": "dflash", "block": 7, "draft_vocab": 77}),
    "dspark": (5, make_block, {}),  # its bias has each place depend on the token before
    "foretells-nothing": (3, make_block, {"block": 3, "changes": {"enable_confidence_head": False}}),
}
SAMPLED = {"temperature": 1.2, "seed": 11}


class BlockRows(DraftRows):
    """(confidence, candidates) after any path, as training has them: by the place and the token before it."""

    def __init__(self, said, session, sampling):
        self.history, self.sampling, self.known = session.history.tolist(), sampling, {}
        self.said = partial(said, self.history, session.features)

    def __call__(self, path):
        place = len(path), path[-1:]
        if place not in self.known:
            logits, foretold = self.said(path)
            confidence, ids = self._read(logits[-1], len(self.history) + len(path))
            self.known[place] = confidence if foretold is None else foretold[-1], ids
        return self.known[place]


def likelier(rule, rows, reach, floor):
    """All paths that are accepted with a probability above `floor`: none leads over one that is less likely."""
    found, reached = {}, [((), f32(1))]
    while reached:
        path, probability = reached.pop()
        confidence, ids = rows(path)
        bucket = sum(confidence > f32(edge) for edge in rule["edges"])
        chances = [rule["p_top1"][bucket], *rule["p_rank"][bucket]]
        its = {(*path, token): probability * f32(chance) for token, chance in zip(ids, chances, strict=True)}
        its = {child: worth for child, worth in its.items() if worth > floor}
        found |= its
        reached += its.items() if len(path) + 1 < reach else []
    return found


@pytest.fixture(scope="module")
def drafting(target, tmp_path_factory):
    """A session in the middle of a text, and what training says after it: of a head, a prompt and a sampler."""
    heads, rows = {}, {}

    def of(name, prompt, sampled):
        if name not in heads:
            _, make, shape = HEADS[name]
            folder = make(tmp_path_factory.mktemp(name) / "head", target, **shape)
            heads[name] = trained_block(folder, target), open_session(beside(target, folder), threads=1)
            heads[name][1].set_skip(_core.DraftSpec(weights=[DRAFTER_NAMES[0]]))
        said, session = heads[name]
        sampling = SAMPLED if sampled else {}
        session.set_sampling(_core.Sampling(**sampling))
        session.prefill(np.int32(PROMPTS[prompt]))
        known = rows.setdefault((name, prompt, sampled), BlockRows(said, session, sampling))
        return session, known

    return of


@given(
    name=st.sampled_from(sorted(HEADS)),
    prompt=st.integers(0, 2),
    sampled=st.booleans(),
    seed=st.integers(0, 10**6),
    price=st.floats(0.01, 0.5),
)
def test_the_tree_is_the_likeliest_paths(drafting, name, prompt, sampled, seed, price):
    """As a best-first search through all finds them (DDTree, arXiv 2604.12989): one pass foretells all places, and each
    step that follows it reads the likeliest node of those that are left."""
    session, rows = drafting(name, prompt, sampled)
    reach, *_ = HEADS[name]
    rule = random_rule(seed, min_step_gain=price)
    rule["row_price"] = (f32(price) * np.arange(MAX_NODES, dtype=f32)).tolist()
    want = likelier(rule, rows, reach, f32(price))
    assume(len(want) < MAX_NODES and min((abs(worth - price) for worth in want.values()), default=1) > 1e-5)
    session.draft(_core.TreeRule(**rule, max_draft=MAX_NODES - 1))
    assert set(paths(session)) == {(), *want}
    read = 1 + sum(len(path) < reach for path in want)
    assert (session.drafted_from, session.last["draft_steps"]) == (read, read)
    assert len(session.verify()) > 0
