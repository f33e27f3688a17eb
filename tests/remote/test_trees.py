"""Trees from a client: what they are, how they travel, and that the text is the server's whatever they say."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import swiftk
from decode import TOUCHED
from heads import make_block, make_eagle, make_moa
from marks import exhaustive
from swiftk import TreeRule, _core, remote
from swiftk.remote.tree import MOST, Tree, chain
from swiftk.testing import make_tiny

pytest.importorskip("websockets")
from patience import PATIENCE, until
from serving import dial

KINDS = ("eagle3", "moa", "moa2", "block")
NAMES = dict(zip(KINDS, ("drafter", "drafter-2", "drafter-3", "drafter-4")))
ASKED = {"max_new_tokens": 60, "ignore_eos": True}
PROMPT = [5, 9, 17, 33, *range(40, 100), 7, 7, 9]
GREEDY, SAMPLED = {"temperature": 0.0}, {"temperature": 1.0, "seed": 7, "top_p": 0.95, **TOUCHED}
SAMPLINGS = {"greedy": GREEDY, "sampled": SAMPLED}
EXACT = {"features": "float32", "dtype": "float32", "draft_weights": "own"}
RULE = TreeRule(beam=4, max_draft=5, max_nodes=24)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("target"), "qwen3", "float32", layers=8, intermediate_size=2000)


@pytest.fixture(scope="module")
def folders(tmp_path_factory, target):
    base = tmp_path_factory.mktemp("heads")
    made = [make_eagle(base / "eagle3", target), make_moa(base / "moa", target)]
    made += [make_moa(base / "moa2", target, last=2), make_block(base / "block", target)]
    return dict(zip(KINDS, made))


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_clients_tree_is_the_engines(lm, target, folders, kind, sampling):
    """Bit for bit the same states, and so the same tree after verified text. After tokens that are only proposed it
    hangs on the last of them."""
    sampling = {"seed": 0, **sampling}
    events = list(lm.submit(PROMPT, features=NAMES[kind], speculate=False, **ASKED, **sampling))
    tokens, rows = [e.token for e in events], np.concatenate([e.features for e in events if e.features is not None])
    head = remote.TreeHead(target, folders[kind], rule=RULE, **EXACT)
    head.begin(PROMPT, sampling)
    session = lm.session
    session.set_skip(_core.DraftSpec([], [], -1, [NAMES[kind]]))
    session.set_sampling(_core.Sampling(**sampling))
    session.prefill(np.int32(PROMPT))
    rule = _core.TreeRule(**RULE.arguments())
    for _ in range(8):
        session.draft(rule)
        text = session.history.tolist()[len(PROMPT) :]
        assert text == tokens[: len(text)]
        end = len(PROMPT) + len(text) - 1
        head.know(head.known, rows[head.known : end])
        tree = head.grow(text)
        assert len(tree) > 8 and tree.tokens == session.tree_tokens.tolist()[1:]
        assert tree.parents == session.tree_parents.tolist()[1:]
        chained = head.propose(text, 3)
        ahead = head.grow([*text, *chained[:2]])
        assert chained[2] in [t for t, parent in zip(ahead.tokens, ahead.parents) if parent == 0] and len(ahead) > 8
        session.commit(len(session.verify()))


QUICK = [("moa", "sampled"), ("eagle3", "greedy")]


@pytest.mark.parametrize(
    ("kind", "sampling"),
    [*QUICK, *exhaustive(*(case for case in itertools.product(KINDS, SAMPLINGS) if case not in QUICK))],
)
def test_the_text_is_the_servers(url, lm, target, folders, kind, sampling):
    asked = {**ASKED, "max_new_tokens": 200}
    want = lm.generate(PROMPT, **asked, **SAMPLINGS[sampling], speculate=False)
    head = remote.TreeHead(target, folders[kind], rule=RULE, suffix=kind == "moa", threads=1)
    with dial(url, head) as line:
        got = line.generate(PROMPT, **asked, **SAMPLINGS[sampling])
    assert (got.tokens, got.text, got.finish_reason) == (want.tokens, want.text, want.finish_reason)
    assert got.lost == 0 and got.sent > 1000


class Knows:
    """Somebody who knows the text, and a wrong one beside every token, which stands before it."""

    model = None

    def __init__(self, tokens):
        self.tokens = tokens

    def begin(self, prompt, sampling):
        pass

    def propose(self, text, count):
        raise AssertionError("a chain was asked for")

    def grow(self, text):
        tree = Tree()
        for i, token in enumerate(self.tokens[len(text) :][:4]):
            tree.tokens += [token, token ^ 1]
            tree.parents += [max(2 * i - 1, 0)] * 2
        return tree

    def close(self):
        pass


def test_the_right_branch_counts(url, lm, monkeypatch):
    """The engine waits for a proposal of what comes next, as of a client that is in time."""
    asked = {"max_new_tokens": 120, "ignore_eos": True}
    want = lm.generate(PROMPT, **asked, speculate=False).tokens
    step, came, known = lm.step, [1], [0]
    propose = swiftk.running.stream.Stream.propose

    def waits():
        until(lambda: known[0] >= min(came[0] + 3, len(want)))
        step()
        came[0] += lm.last_round["tokens"]

    def receives(self, tokens, at=None, parents=()):
        propose(self, tokens, at, parents)
        known[0] = max(known[0], at + len(Tree(tokens, parents).spine()))

    monkeypatch.setattr(lm, "step", waits)
    monkeypatch.setattr(swiftk.running.stream.Stream, "propose", receives)
    with dial(url, Knows(want)) as line:
        got = line.generate(PROMPT, **asked)
    assert got.tokens == want and sum(got.proposed) > 60


TREES = st.lists(st.tuples(st.integers(0, 319), st.floats(0, 1)), max_size=MOST).map(
    lambda nodes: Tree([t for t, _ in nodes], [int(x * i) for i, (_, x) in enumerate(nodes)])
)


@given(st.data())
def test_no_tree_changes_a_token(lm, data):
    temperature = data.draw(st.sampled_from([0.0, 1.0]))
    asked = {"max_new_tokens": 12, "ignore_eos": True, "temperature": temperature, "seed": 4}
    want = lm.generate(PROMPT, **asked, speculate=False).tokens
    stream = lm.submit(PROMPT, **asked, drafter="host", speculate="always")
    for event in stream:
        assert event.source in (None, "host")
        at, tree = data.draw(st.integers(0, 12), label="at"), data.draw(TREES)
        tree.add(want[at : at + data.draw(st.integers(0, 9), label="right")])
        stream.propose(tree.tokens, at, tree.parents)
    assert stream.result.tokens == want


def test_a_tree_that_waits_is_followed(lm):
    """It hangs on an earlier place than the text has come to, and the right path is not the first."""
    asked = {"max_new_tokens": 40, "ignore_eos": True}
    want = lm.generate(PROMPT, **asked, speculate=False).tokens
    tree = chain([want[5] ^ 1, want[6]])
    tree.add(want[5:25])
    stream = lm.submit(PROMPT, **asked, drafter="host", speculate="always")
    stream.propose(tree.tokens, 5, tree.parents)
    result = stream.wait()
    assert result.tokens == want and "host" not in result.sources[:5] and result.sources.count("host") > 10


@pytest.mark.parametrize(
    ("tokens", "parents", "words"),
    [
        ([1, 2], [0], "got 2 tokens and 1 parents, want as many of both"),
        ([1, 2], [0, 2], r"parent 1 is 2, want 0\.\.1"),
        ([1] * 64, [0] * 64, "at most 63"),
    ],
)
def test_trees_that_are_none(url, lm, tokens, parents, words):
    from websockets.sync.client import connect

    from swiftk.remote import frames

    with pytest.raises(swiftk.InvalidArgument, match=words):
        lm.submit(PROMPT, drafter="host", **ASKED).propose(tokens, 0, parents)
    with connect(url.replace("http", "ws") + frames.PATH, compression=None, open_timeout=PATIENCE) as line:
        line.send(frames.pack("begin", version=3, prompt=PROMPT, options={"max_new_tokens": 400, "ignore_eos": True}))
        line.send(frames.pack("propose", at=300, tokens=tokens, parents=parents))
        while (frame := frames.unpack(line.recv(PATIENCE), "begun", "tokens", "error"))["op"] != "error":
            pass
    assert frame["status"] == 400


@given(TREES, TREES)
def test_trees_by_hand(tree, other):
    def paths(t):
        found = {0: ()}
        for i, (token, parent) in enumerate(zip(t.tokens, t.parents)):
            found[i + 1] = (*found[parent], token)
        return list(found.values())

    spine, before = tree.spine(), paths(tree)
    assert tuple(spine) in before and chain(spine).spine() == spine
    for n in range(len(spine) + 1):
        left = paths(tree.after(spine[:n]))
        assert set(left) <= {p[n:] for p in before if p[:n] == tuple(spine[:n])} and tuple(spine[n:]) in left
    if spine:
        assert len(tree.after([*spine, 400])) == 0
    room = MOST - len(tree)
    tree.graft(other, MOST)
    assert paths(tree)[: len(before)] == before and len(tree) <= MOST
    assert paths(tree)[len(before) :] == [(*spine, *p) for p in paths(other)[1 : room + 1]]
    added = list(itertools.islice(itertools.cycle([7, 8, 9]), 5))
    size = len(tree)
    tree.add(added)
    assert tuple(added[: len(tree) - size]) in paths(tree) or len(tree) == MOST


def test_rules_that_are_none(target, folders):
    with pytest.raises(swiftk.InvalidArgument, match="want a TreeRule with a beam"):
        remote.TreeHead(target, folders["moa"], rule=TreeRule())
