"""Trees by time, slowly: random rules, and the tree that one must give, from the draft's own logits row by row."""

import numpy as np
from hypothesis import strategies as st

import reference
from decode import TOUCHED, decode, open_session
from swiftk import _core

BUCKETS, RANKS, MAX_NODES = 16, 10, 64
f32 = np.float32
samplings = st.one_of(
    st.just({}),
    st.just({"repetition_penalty": 1.3}),
    st.just(TOUCHED),
    st.just({"temperature": 1.0, "seed": 4, **TOUCHED}),
    st.fixed_dictionaries(
        {
            "temperature": st.sampled_from([0.5, 1.0, 2.0]),
            "top_k": st.sampled_from([0, 1, 3, 50]),
            "top_p": st.sampled_from([1.0, 0.3]),
            "seed": st.integers(0, 2**64 - 1),
        }
    ),
)


def assert_plain(model, prompt, n, rule, sampling):
    """``n`` tokens are plain decoding's under the rule."""
    plain = decode(open_session(model, sampling=sampling), prompt, n)
    fast = decode(open_session(model, sampling=sampling), prompt, n, rule)
    assert fast.tokens == plain.tokens


def random_rule(seed, min_step_gain=0.3, price=0.02):
    """Session.draft()'s arguments: acceptance that rises with confidence, rows that cost about `price` tokens each."""
    rng = np.random.default_rng(seed)
    p_top1 = np.sort(rng.uniform(0, 1, BUCKETS))
    p_rank = np.sort(rng.uniform(0, 0.4, (BUCKETS, RANKS - 1)), axis=1)[:, ::-1] * rng.choice([0, 0.3, 1])
    row_price = np.cumsum(price * rng.uniform(0, 2, rng.integers(1, MAX_NODES + 1)))
    return {
        "min_step_gain": min_step_gain,
        # Random models are sure of nothing: half of the buckets are where their confidences are.
        "edges": np.sort(np.append(rng.uniform(0, 0.2, 8), rng.uniform(0, 1, 7))).tolist(),
        "p_top1": p_top1.tolist(),
        "p_rank": p_rank.tolist(),
        "row_price": row_price.tolist(),
    }


class DraftRows:
    """(confidence, candidates) after any path of drafted tokens, from passes of their own over the whole path."""

    def __init__(self, model, history, skip, sampling):
        self.session = open_session(model)
        self.history, self.skip, self.sampling = list(history), skip, sampling
        self.known = {}

    def __call__(self, path):
        if path not in self.known:
            text = [*self.history, *path]
            # One token more: score() runs cached tokens, and the last one is not.
            self.session.prefill(np.asarray(text, np.int32))
            window = 1 + len(path)
            self.session.score(_core.DraftSpec(*self.skip), window=window, end=len(text))
            self.known[path] = self._read(self.session.logits[window - 1], len(text))
        return self.known[path]

    def _read(self, logits, position):
        temperature = self.sampling.get("temperature", 0)
        noise = reference.gumbel(self.sampling["seed"], position, len(logits), 0)[None] if temperature else None
        k = min(RANKS, len(logits))
        ids, best, lse, _ = reference.topk(logits[None], k, scale=1 / temperature if temperature else 1.0, noise=noise)
        return f32(np.exp(best[0, 0] - lse[0])), ids[0].tolist()


class Tree:
    """The tree of a rule, by the words of csrc/draft/tree_rule.h."""

    def __init__(self, rule, rows, root, room, max_draft=25, max_nodes=MAX_NODES, stop_ids=()):
        self.tokens, self.parents, self.worth = [root], [-1], [f32(1)]
        self.confidence, self.candidates, self.leaves, self.steps = [], [], [], 0
        limit = min(max_draft, max_nodes - 1, room)
        node = 0
        while self.steps < limit and node is not None:
            self._read(rule, node, *rows(self.path(node)))
            self.steps += 1
            node = self._next(rule, max_nodes, stop_ids) if self.steps < limit else None
        self.drafted_from = len(self.confidence)
        self.choices = sorted(self.leaves)  # what leaves could be taken
        for leaf in self._worthy(rule, max_nodes):
            self._add(leaf)

    def path(self, node):
        tokens = []
        while node > 0:
            tokens.append(self.tokens[node])
            node = self.parents[node]
        return tuple(reversed(tokens))

    def _read(self, rule, node, confidence, ids):
        bucket = sum(confidence > f32(edge) for edge in rule["edges"])
        chances = [rule["p_top1"][bucket], *rule["p_rank"][bucket]]
        self.confidence.append(confidence)
        self.candidates.append(ids)
        for rank, (token, chance) in enumerate(zip(ids, chances, strict=False)):
            self.leaves.append((-(self.worth[node] * f32(chance)), node, rank, token))

    def _next(self, rule, max_nodes, stop_ids):
        best = min(self.leaves, default=None)
        if (
            best is None
            or len(self.tokens) == max_nodes
            or best[3] in stop_ids
            or -best[0] < f32(rule["min_step_gain"])
        ):
            return None
        self.leaves.remove(best)
        return self._add(best)

    def _worthy(self, rule, max_nodes):
        leaves, price, at = sorted(self.leaves), np.asarray(rule["row_price"], f32), len(self.tokens)
        gains = [f32(0)]
        for i in range(max(0, min(len(leaves), min(max_nodes, len(price)) - at))):
            gains.append(gains[-1] + (-leaves[i][0] - (price[at + i] - price[at + i - 1])))
        return leaves[: int(np.argmax(gains))]

    def _add(self, leaf):
        worth, parent, _, token = leaf
        self.tokens.append(token)
        self.parents.append(parent)
        self.worth.append(-worth)
        return len(self.tokens) - 1
