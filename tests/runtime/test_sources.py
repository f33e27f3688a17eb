"""Sources, each against a slow one: what matches, what followed it, what is proposed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from slow_sources import BUCKETS, follower, longest_match, slow_proposal
from swiftk import _testing

texts = st.lists(st.integers(0, 3), min_size=1, max_size=60)


def source(name, text=(), **given):
    found = _testing.Source(name, **given)
    found.follow(text)
    return found


@given(text=texts, path=st.lists(st.integers(0, 4), max_size=12))
def test_suffixes_match_as_far_as_they_can(text, path):
    found = source("suffix", text)
    at = found.root()
    for i in range(len(path) + 1):
        assert at[1] == len(longest_match(text, path[:i]))
        bucket, tokens = found.propose(at)
        want_bucket, want = slow_proposal(text, path[:i])
        assert bucket == want_bucket
        assert tokens[:1] == want[:1], "what followed the longest match last"
        assert set(tokens) <= set(want) and len(tokens) == min(len(want), len(tokens)) == len(set(tokens))
        assert len(tokens) == min(4, len(want)) or len(longest_match(text, path[:i])) > 12
        at = found.step(at, path[i]) if i < len(path) else at


@given(text=texts, path=st.lists(st.integers(0, 4), max_size=6), length=st.integers(1, 6), ranks=st.integers(1, 8))
def test_suffixes_propose_from_their_shortest_match_on(text, path, length, ranks):
    match = longest_match(text, path)
    want = list(dict.fromkeys(follower(text, match[i:]) for i in range(len(match) - length + 1)))
    for matches, most in [(64, ranks), (1, 1)]:
        found = source("suffix", text, suffix_length=length, suffix_matches=matches, suffix_ranks=ranks)
        at = found.root()
        for token in path:
            at = found.step(at, token)
        assert found.propose(at)[1] == want[:most]


@given(text=texts)
def test_an_automaton_has_the_states_that_a_text_needs(text):
    """One for each set of places where some substring ends."""
    ends = {}
    for i in range(len(text)):
        for j in range(i + 1, len(text) + 1):
            ends.setdefault(tuple(text[i:j]), set()).add(j)
    assert _testing.automaton_states(text) == 1 + len({frozenset(places) for places in ends.values()})


@given(earlier=st.lists(texts, min_size=1, max_size=3), text=texts, path=st.lists(st.integers(0, 3), max_size=6))
def test_matches_reach_into_earlier_texts_but_not_across_them(earlier, text, path):
    found = _testing.Source("suffix", recall=True)
    for one in earlier:
        found.follow(one)
        found.restart()
    found.follow(text)
    at = found.root()
    for token in path:
        at = found.step(at, token)
    whole, every = text + path, [*earlier, text]
    followed = [
        n for n in range(len(whole) + 1) if any(follower(one, whole[len(whole) - n :]) is not None for one in every)
    ]
    assert at[1] == max(followed)


def test_a_text_of_one_token_is_linear():
    """Where every suffix recurs, work stays in proportion to the text."""
    found = source("suffix", [7] * 20000)
    bucket, tokens = found.propose(found.root())
    assert tokens == [7] and bucket == len(BUCKETS)
    assert _testing.automaton_states([7] * 20000) == 20001


@given(
    logits=st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=12, unique=True),
    temperature=st.sampled_from([0.0, 0.5, 1.5]),
    seed=st.integers(0, 2**64 - 1),
    pos=st.integers(0, 10**6),
)
def test_recycled_lists_are_drawn_with_the_noise_of_their_place(logits, temperature, seed, pos):
    vocab = 40
    kept = np.array(logits[:8], np.float32)
    ids = np.random.default_rng(len(logits)).permutation(vocab)[: len(logits)].tolist()
    recycler = source("recycle", [3])
    draw = (temperature, seed, pos)
    assert recycler.propose(recycler.root(), *draw)[1] == []
    recycler.learn(3, ids, logits, float(np.log(np.exp(kept.astype(float)).sum())))
    noise = reference.gumbel(seed, pos, vocab, 0)[ids[: len(kept)]] if temperature else 0
    order = np.argsort(-(kept + temperature * noise), kind="stable")
    bucket, tokens = recycler.propose(recycler.root(), *draw)
    assert tokens == [ids[i] for i in order]
    best = np.exp(kept.max() - np.log(np.exp(kept.astype(float)).sum()))
    edges = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.96, 0.99]
    assert bucket in {sum(best + slack > edge for edge in edges) for slack in (-1e-5, 1e-5)}
    assert recycler.propose(recycler.step(recycler.root(), 4), *draw)[1] == []


# How many first ranks each node of the paper's tree has, level by level: template "2.2.2" of Luowaterbi/TokenRecycling.
PAPER = {
    (): 8,
    **{(0,): 8, (1,): 4, (2,): 3, (3,): 2, (4,): 1, (5,): 1, (6,): 1, (7,): 1},
    **{(0, 0): 8, (0, 1): 3, (0, 2): 2, **{(0, r): 1 for r in range(3, 8)}},
    **{(1, 0): 2, (1, 1): 1, **{(r, 0): 1 for r in range(2, 6)}},
    **{(0, 0, 0): 5, (0, 0, 1): 2, (0, 0, 2): 1, (0, 0, 3): 1, (0, 0, 4): 1, (0, 1, 0): 1, (0, 2, 0): 1},
    **{(r, 0, 0): 1 for r in (1, 2, 3)},
    **{(0, 0, 0, 0): 3, (0, 0, 0, 1): 1, (0, 0, 0, 2): 1, (0, 0, 1, 0): 1, (0, 1, 0, 0): 1, (1, 0, 0, 0): 1},
    **{(0, 0, 0, 0, 0): 2, (0, 0, 0, 1, 0): 1},
}


def breadth_first(found):
    """All that a source proposes after its text: (parent, token), the root being 0."""
    nodes, at = [], [found.root()]
    for i, cursor in enumerate(at):
        for token in found.propose(cursor)[1]:
            nodes.append((i, token))
            at.append(found.step(cursor, token))
    return nodes


def test_the_template_is_the_papers_as_far_as_a_tree_goes():
    """Its 63 cheapest nodes: whatever the 17 others cost, nobody pays less."""
    paths = {(*node, rank) for node, n in PAPER.items() for rank in range(n)}
    assert len(paths) == 80
    vocab = 100
    template = source("template", [7])
    listed = {t: np.random.default_rng(t).permutation(vocab)[:8].tolist() for t in range(vocab)}
    for token, ids in listed.items():
        template.learn(token, ids, np.linspace(3, -3, 8).tolist(), 4.0)
    nodes, path = breadth_first(template), {0: ()}
    for i, (parent, token) in enumerate(nodes, 1):
        at = 7
        for rank in path[parent]:
            at = listed[at][rank]
        path[i] = (*path[parent], listed[at].index(token))
    kept = set(path.values()) - {()}
    assert len(nodes) == len(kept) == 63 and kept < paths
    assert max(map(len, kept)) == 6

    def price(path):
        return sum([2, 5, 7, 8, 9, 9, 10, 10][rank] for rank in path)

    assert max(map(price, kept)) < min(map(price, paths - kept))
    beside = {(*node, rank) for node in {(), *paths} for rank in range(8)} - paths
    assert sum(price(node) >= 15 for node in paths) + sum(price(node) < 14 for node in beside) < 10


@given(ids=st.lists(st.integers(0, 5), min_size=1, max_size=8, unique=True))
def test_the_template_takes_what_is_listed(ids):
    template = source("template", [0])
    assert breadth_first(template) == []
    template.learn(0, ids, [float(-i) for i in range(len(ids))], 1.0)
    nodes = breadth_first(template)
    assert [token for parent, token in nodes if parent == 0] == ids
    assert all(parent == 0 or nodes[parent - 1][1] == 0 for parent, _ in nodes)


@given(text=texts, ngram=st.integers(1, 6), tokens=st.integers(1, 30))
def test_prompt_lookup_copies_as_transformers_does(text, ngram, tokens):
    """The rule of its prompt_lookup_num_tokens and max_matching_ngram_size, over windows."""
    want = []
    for n in range(min(ngram, len(text) - 1), 0, -1):
        starts = [i + n for i in range(len(text) - n + 1) if text[i : i + n] == text[-n:] and i + n < len(text)]
        if starts:
            want = text[starts[0] : starts[0] + tokens]
            break
    found = [
        breadth_first(source("lookup", text, lookup_ngram=n, lookup_tokens=m)) for n, m in [(ngram, tokens), (2, 10)]
    ]
    assert found[0] == list(enumerate(want))
    assert breadth_first(source("lookup", text)) == found[1]


class SlowLookahead:
    """Window and pool as dictionaries: N levels with the draw, W columns, G n-grams a token."""

    def __init__(self, first_level, n, proposals):
        self.levels, self.pool = [list(first_level)], {}
        self.most, self.columns, self.proposals = n - 1, len(first_level), proposals

    def learn(self, root, fresh):
        if len(self.levels) < self.most:
            self.levels.append(fresh)
            return
        for column in range(self.columns):
            gram = (
                root if column == 0 else self.levels[0][column],
                *(one[column] for one in self.levels[1:]),
                fresh[column],
            )
            kept = [g for g in self.pool.get(gram[0], []) if g != gram[1:]]
            self.pool[gram[0]] = [*kept, gram[1:]][-self.proposals :]
        self.levels = [*self.levels[1:], fresh]


@given(
    seed=st.integers(0, 10**6),
    vocab=st.integers(2, 5),
    shape=st.sampled_from([(5, 7, 7), (2, 2, 1), (2, 56, 8), (3, 2, 2), (4, 9, 3), (16, 2, 2), (9, 3, 5)]),
)
def test_lookahead_keeps_the_ngrams_of_its_window(seed, vocab, shape):
    n, w, g = shape
    rng = np.random.default_rng(seed)
    prompt = rng.integers(0, vocab, 9).tolist()
    pool = source("lookahead", prompt, lookahead_ngram=n, lookahead_window=w, lookahead_guesses=g)
    level_0 = [None, *(token for _, token, _ in pool.extra_rows())]
    slow = SlowLookahead(level_0, n, g)
    for _ in range(30):
        extra_rows = pool.extra_rows()
        assert len(extra_rows) == w - 1 + w * (len(slow.levels) - 1)
        wanted = sum(w for _, _, w in extra_rows)
        assert wanted == (w - 1 if len(slow.levels) == 1 else w)
        tokens = [token for _, token, _ in extra_rows]
        assert tokens[: w - 1] == slow.levels[0][1:]
        below = [level[column] for column in range(w) for level in slow.levels[1:]]
        assert tokens[w - 1 :] == below
        root, fresh = int(rng.integers(vocab)), rng.integers(0, vocab, w).tolist()
        first = len(slow.levels) == 1
        pool.follow([root])
        pool.receive(fresh[1:] if first else fresh, fresh[0], 1)
        slow.learn(root, fresh)
        for token in range(vocab):
            pool.follow([token])
            path, at = [], pool.root()
            while True:
                rest = [g for g in slow.pool.get(token, []) if list(g[: len(path)]) == path and len(g) > len(path)]
                want = list(dict.fromkeys(g[len(path)] for g in reversed(rest)))
                bucket, proposed = pool.propose(at)
                assert proposed == want
                if not want:
                    break
                assert bucket == len(path)
                path.append(want[-1])
                at = pool.step(at, want[-1])


def test_the_window_hangs_column_by_column():
    """Level 0 is a chain after the root; level 1 of column i hangs on its level 0."""
    pool = source("lookahead", [1, 2, 3])
    for token, draws in [(5, [5] * 6), (6, [6] * 7)]:
        pool.extra_rows()
        pool.receive(draws, token, 1)
    parents = [parent for parent, _, _ in pool.extra_rows()]
    assert parents == [-1, 0, 1, 2, 3, 4] + [x for column in range(7) for x in (column - 1, 6 + 2 * column)]


@given(n=st.integers(1, 63), data=st.data())
def test_jacobi_moves_its_proposals_on(n, data):
    taken = data.draw(st.integers(1, n + 1))
    jacobi = source("parallel", [4, 5, 6], parallel_tokens=n)
    first = jacobi.extra_rows()
    assert [parent for parent, _, _ in first] == list(range(-1, n - 1)) and all(wanted for _, _, wanted in first)
    draws = list(range(100, 100 + n))
    jacobi.receive(draws, 0, taken)
    tokens = [token for _, token, _ in jacobi.extra_rows()]
    assert tokens[: n + 1 - taken] == draws[taken - 1 :]
    assert len(tokens) == n and set(tokens[n + 1 - taken :]) <= {4, 5, 6}
    assert _testing.Source("parallel").extra_rows() == []


@pytest.mark.parametrize("length", [1, 3])
def test_short_texts_have_nothing_to_say(length):
    text = list(range(length))
    for name in ["suffix", "lookup"]:
        assert breadth_first(source(name, text)) == []
