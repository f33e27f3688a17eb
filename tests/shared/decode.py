"""The decoding loop at its barest, over swiftk._core: what the tests of exactness compare."""

import os
from dataclasses import dataclass, field

import numpy as np

from swiftk import _core
from swiftk.gpu import device

# A sampler that touches logits in every way that it can.
TOUCHED = {
    "repetition_penalty": 1.1,
    "frequency_penalty": 0.3,
    "presence_penalty": 0.2,
    "logit_bias": {7: 1.5, 9: -4.0, 11: -100.0},
    "min_tokens": 5,
}


@dataclass(frozen=True)
class Rule:
    """How to draft. ``skip`` is (attention layers, MLP layers, exit layer)."""

    skip: tuple = ((), (), -1)
    confidence: float = 0.8
    max_draft: int = 25
    max_nodes: int = 64
    tier: tuple = (0.5, 0.8, 0.95)
    width: tuple = (10, 5, 3, 1)
    timed: dict = field(default_factory=dict)  # by time (timed_rule.py)
    stop_ids: tuple = ()

    def draft(self, session, most):
        swift = {"confidence": self.confidence, "tier": self.tier, "width": self.width}
        return session.draft(
            _core.TreeRule(
                max_draft=min(self.max_draft, most),
                max_depth=min(63, most),
                max_nodes=self.max_nodes,
                stop_ids=self.stop_ids,
                **(self.timed or swift),
            )
        )


@dataclass
class Run:
    """Tokens, and the logits row that each was drawn from."""

    tokens: list = field(default_factory=list)
    logits: list = field(default_factory=list)
    rounds: int = 0
    accepted: int = 0


def requested(options):
    """Fields of a _core.Request, of the sampler's fields among them, and of skip sets as tuples."""
    sampler = {name: value for name, value in options.items() if hasattr(_core.Sampling, name)}
    skips = {"skips": [_core.DraftSpec(*skip) for skip in options["skips"]]} if "skips" in options else {}
    return {"sampling": _core.Sampling(**sampler), **{n: v for n, v in options.items() if n not in sampler}, **skips}


def open_model(folder, dtype="auto", isa="", threads=2, kv_dtype="auto"):
    """A checkpoint on the device of this run; `isa` is for the CPU."""
    chosen = os.environ["SWIFTK_DEVICE"]
    pack = device.kernels(folder, dtype, chosen)
    options = {"dtype": dtype, "kv_dtype": kv_dtype, "isa": isa, "threads": threads}
    return _core.Model(str(folder), **options, device=chosen, pack=pack)


def open_session(model, *, context=0, threads=0, sampling=None, acceptance="coupled"):
    session = _core.Session(model, context=context, threads=threads, poison=True)
    session.set_sampling(_core.Sampling(**(sampling or {})), acceptance)
    return session


def path_rows(session, emitted):
    """Logits rows of the nodes that ``emitted`` was drawn at, root first."""
    logits, tokens, parents = session.logits, session.tree_tokens, session.tree_parents
    node, rows = 0, []
    for e in emitted:
        rows.append(logits[node])
        children = [i for i in range(len(tokens)) if parents[i] == node and tokens[i] == e.token]
        node = children[0] if children else -1
    return rows


def decode(session, prompt, n, rule=None, keep_logits=False):
    """``n`` tokens after ``prompt``; plain without a rule."""
    run = Run([session.prefill(np.asarray(prompt, np.int32)).token])
    if keep_logits:
        run.logits.append(session.logits[0])
    if rule is not None:
        session.set_skip(_core.DraftSpec(*rule.skip))
    while len(run.tokens) < n:
        left = n - len(run.tokens)
        nodes = rule.draft(session, left - 1) if rule else session.draft(_core.TreeRule(max_draft=0))
        emitted = session.verify()
        assert 1 <= len(emitted) <= nodes
        if keep_logits:
            run.logits += path_rows(session, emitted)
        session.commit(len(emitted))
        run.tokens += [e.token for e in emitted]
        run.rounds += 1
        run.accepted += sum(e.drafted for e in emitted)
    assert list(session.history) == list(prompt) + run.tokens
    return run
