"""EAGLE-2's trees, and steps of heads that read proposals of others."""

import numpy as np
import pytest

import swiftk
from head_contract import (
    DRAFTS,
    GREEDY,
    PLAN,
    PROMPTS,
    SAMPLED,
    assert_said,
    beside,
    heads_fixture,  # noqa: F401
    opened,
    paths,
    session_of,
    target_fixture,  # noqa: F401
)
from head_oracles import EagleOracle, trained_block
from source_rules import LOOPS, SUFFIX, all_of
from swiftk import TreeRule, _core

pytestmark = pytest.mark.skipif("config.getoption('device') != 'cpu'", reason="on a GPU: test_stub_drafters.py")


@pytest.mark.parametrize(("oracle", "name"), [(EagleOracle, "specforge"), (trained_block, "dspark")])
def test_proposals_of_others_are_read_in_turn(target, heads, oracle, name):
    """A step may read a chain that the text's repetitions propose: each node waits for its parent's state, and of a
    block each has its own place."""
    oracle = oracle(heads[name], target)
    session = session_of(beside(target, heads[name]), PROMPTS[2] * 6)
    session.set_sampling(_core.Sampling(**LOOPS))
    chained, rule = 0, {**all_of(SUFFIX), "chain": 3, "min_step_gain": 0.0, "max_draft": 3}
    for _ in range(8):
        emitted = assert_said(session, oracle, rule, **LOOPS)
        sources, parents = session.tree_sources, session.tree_parents.tolist()
        read = range(1, session.drafted_from)
        chained += sum(parents[i] > 0 and PLAN not in (sources[i], sources[parents[i]]) for i in read)
        session.commit(len(emitted))
    assert chained > 5


def beam_tree(logits, beam, steps, most):
    """EAGLE-2's tree, slowly: the paths of its nodes, and of those that were read. logits: of a path."""
    level, read, chances = [()], {()}, {(): 1.0}
    for step in range(steps):
        for path in level:
            said = logits(path)
            p = np.exp(said - np.logaddexp.reduce(said))
            chances |= {(*path, int(t)): chances[path] * p[t] for t in np.argsort(-p, kind="stable")[:beam]}
        reached = [path for path in chances if len(path) == step + 1]
        level = sorted(reached, key=lambda path: -chances[path])[: min(beam, 64 - len(read))]
        read |= set(level if step + 1 < steps else ())
    return set(sorted(chances, key=lambda path: -chances[path])[:most]), read


@pytest.mark.parametrize(("beam", "steps", "most"), [(4, 3, 20), (10, 6, 60), (10, 6, 12), (3, 5, 14), (1, 4, 64)])
def test_a_beam_is_the_papers(target, heads, beam, steps, most):
    oracle = EagleOracle(heads["eagle3"], target)
    session = session_of(beside(target, heads["eagle3"]), PROMPTS[0])
    for _ in range(3):
        session.draft(_core.TreeRule(beam=beam, max_draft=steps, max_nodes=most))
        text, features = session.history.tolist(), session.features
        want, read = beam_tree(lambda path: oracle(text, features, path)[0][-1], beam, steps, most)  # noqa: B023
        assert set(paths(session)) == want
        assert (session.last["draft_steps"], session.last["draft_nodes"]) == (steps, len(read))
        assert session.drafted_from == len(want & read), "others were read and left"
        session.commit(len(session.verify()))


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_beams_are_counted_by_steps(target, heads, sampling):
    lm = opened(target, heads["specforge"])
    options = {"max_new_tokens": 30, "ignore_eos": True, "seed": 4, **DRAFTS, **sampling}
    s = lm.generate_many(PROMPTS, gate=TreeRule(beam=6, max_draft=4, max_nodes=40), **options)[0].stats
    assert 0 < s.num_draft_tokens == s.num_draft_steps, "a place a step"
    assert s.num_draft_nodes > 2 * s.num_draft_steps, "a step reads a level"
    assert s.num_accepted_draft_tokens <= s.num_draft_tokens
    with pytest.raises(swiftk.InvalidArgument, match="beam is 11"):
        lm.generate([5], **{**options, "gate": TreeRule(beam=11)})
