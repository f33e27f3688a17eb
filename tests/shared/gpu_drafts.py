"""Drafts that a GPU takes by itself: rules for them, and what comes of a draft, to be compared to the bit."""

import numpy as np

from swiftk import _core

LAYERS = 4
PROMPT = [5, 9, 2, 7, 7, 1, 30, 12, 4, 8, 21]
SKIP = ((1,), (1, 2), -1)
HALVES = [i / 16 for i in range(1, 16)]
RUNNER_UP = [[p * 0.6**r for r in range(9)] for p in np.linspace(0.3, 0.05, 16)]
TIMED = {"p_top1": list(np.linspace(0.3, 0.95, 16)), "edges": HALVES, "p_rank": RUNNER_UP}
RULES = {
    "fixed length": {"confidence": 0.0, "max_draft": 6},
    "epsilon": {"confidence": 0.3, "max_draft": 25},
    "by time": {**TIMED, "min_step_gain": 0.05, "row_price": [0.02 * i for i in range(24)]},
    "by time, to the end": {**TIMED, "max_draft": 12, "row_price": [0.0] * 40},
    "stop ids": {"confidence": 0.0, "stop_ids": list(range(0, 128, 9))[:32]},
    "chain": {"confidence": 0.25, "width": (1, 1, 1, 1)},
    "wide": {"confidence": 0.1, "max_nodes": 40, "width": (12, 6, 3, 2)},
}
# Functions that drivers may lack, without which drafts go step by step.
LACKING = ["cuGraphCreate", "cuGraphConditionalHandleCreate", "cuGraphAddNode_v2", "cuStreamBeginCaptureToGraph"]


def rounds(session, prompt, count, rule, skip=SKIP, at_once=None):
    """Trees, confidences and tokens of some rounds, to be compared to the bit; `at_once`: how drafts shall be taken."""
    found = [session.prefill(np.int32(prompt)).token]
    session.set_skip(_core.DraftSpec(*skip))
    for _ in range(count):
        session.draft(_core.TreeRule(**rule))
        tree = session.tree_tokens.tolist(), session.tree_parents.tolist()
        assert at_once in (None, session.last["at_once"])
        found += [*tree, session.drafted_from, session.last["draft_steps"]]
        emitted = [e.token for e in session.verify()]
        found += [session.outcomes, emitted]
        session.commit(len(emitted))
    return found
