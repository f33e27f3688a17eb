"""A session without model: the text is given, drafts follow it to a scripted length. Strict on the order of calls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.9  # of all drafts
RULE = {"confidence", "max_nodes", "tier", "width", "stop_ids"}  # what draft() takes beside max_draft
RULE |= {"max_depth", "min_step_gain", "edges", "p_top1", "p_rank", "row_price"}
RULE |= {"sources", "chain", "min_row_gain", "mean_p_top1"}


@dataclass
class FakeEmitted:
    token: int
    drafted: bool
    logprob: float = -0.5
    top: tuple = ()
    source: int = 1


class FakeSession:
    """Emits `script` whatever is drafted; the i-th round has `right[i]` correct draft tokens and then a wrong one."""

    max_chunk = 4
    workspace_bytes = 0
    scoring = 0.5  # seconds of a score

    def __init__(self, script, right=(3,), seconds=(0.1, 0.3, 1.0)):
        self.script, self.right = list(script), list(right)
        self.draft_step, self.overhead, self.plain = seconds
        self.history, self.chunks, self.rounds, self.calls, self.scores = [], [], 0, [], []
        self.prompt_length, self.emitted = None, None
        self.tree_tokens, self.outcomes = np.empty(0, np.int64), []
        self.run_seconds = 0.0
        self.clock = 0.0  # moved by passes alone
        self.last = {"prefill": 0.0, "draft": 0.0, "verify": 0.0, "commit": 0.0, "draft_steps": 0, "verify_rows": 0}
        self.last |= {"drafted": 0, "proposed": [1, 0, 0, 0, 0, 0, 0]}
        self.last |= {"reused_rows": 0, "reused_share": 0.0, "saved_weight_bytes": 0}

    def reuse(self, tokens):
        keep = 0
        while keep < min(len(tokens) - 1, len(self.history)) and tokens[keep] == self.history[keep]:
            keep += 1
        self.history = self.history[:keep]
        self.prompt_length, self.emitted = len(tokens), None
        return keep

    def extend(self, tokens):
        assert 1 <= len(tokens) <= self.max_chunk
        self.chunks.append(len(tokens))
        self.history += [int(t) for t in tokens]

    def set_skip(self, attn, mlp, exit_layer=-1, weights=()):
        self.skip = (list(attn), list(mlp), exit_layer, list(weights))

    def sample(self):
        token = self.script[0]
        self.history.append(token)
        return FakeEmitted(token, False)

    def _next(self):
        return self.script[len(self.history) - self.prompt_length :]

    def draft(self, max_draft=25, **rule):
        assert rule.keys() <= RULE, rule.keys() - RULE
        assert self.emitted is None, "draft() between verify() and commit()"
        self.calls.append(max_draft)
        tree = [self.history[-1]]
        if max_draft > 0:
            right = self.right[self.rounds % len(self.right)]
            good = self._next()[: min(max_draft, right)]
            tree += good + ([-7] if len(good) < max_draft else [])
            self.rounds += 1
        self.tree_tokens, steps = np.array(tree), len(tree) - 1
        self.last.update(draft=self.draft_step * steps, draft_steps=steps, drafted=steps)
        self.clock += self.draft_step * steps
        return len(self.tree_tokens)

    def verify(self):
        future = self._next()
        accepted = 0
        while accepted < len(self.tree_tokens) - 1 and self.tree_tokens[1 + accepted] == future[accepted]:
            accepted += 1
        reached = min(accepted + 1, self.last["draft_steps"])
        self.outcomes = [(CONFIDENCE, 0 if i < accepted else -1) for i in range(reached)]
        self.emitted = [FakeEmitted(t, True) for t in future[:accepted]] + [FakeEmitted(future[accepted], False)]
        self.last.update(verify=self.plain, verify_rows=len(self.tree_tokens))
        self.run_seconds += self.plain
        self.clock += self.plain
        return self.emitted

    def commit(self, count):
        assert 1 <= count <= len(self.emitted)
        self.history += [e.token for e in self.emitted[:count]]
        self.emitted = None
        self.tree_tokens = np.empty(0, np.int64)

    def score(self, attn, mlp, exit_layer, weights, window, end):
        """Every candidate guesses all of the text right. Noted down: scoring must not change what is emitted."""
        assert self.emitted is None, "score() between verify() and commit()"
        end = len(self.history) - 1 if end < 0 else end
        assert end < len(self.history), "the last token is not cached"
        rows = min(window, end)
        self.scores.append((tuple(attn), tuple(mlp), exit_layer, rows))
        self.clock += self.scoring
        return np.full(rows, CONFIDENCE, np.float32), np.zeros(rows, np.int32), self.scoring

    def score_exits(self, exits, window, end):
        """The more layers, the more it guesses right: all of the text from four on."""
        rows, first = 0, len(self.scores)
        for layer in exits:
            confidence, _, _ = self.score([], [], layer, [], window, end)
            rows = len(confidence)
        del self.scores[first:]
        self.clock -= self.scoring * (len(exits) - 1)
        self.scores.append(("exits", tuple(exits), rows))
        rank = np.array([[0 if layer >= 4 or i % 4 < layer else -1 for i in range(rows)] for layer in exits], np.int32)
        return np.full(rank.shape, CONFIDENCE, np.float32), rank, self.scoring

    def propose_skips(self, most):
        assert self.emitted is None, "propose_skips() between verify() and commit()"
        return [(list(range(1, 1 + count)), []) for count in range(1, most + 1)]
