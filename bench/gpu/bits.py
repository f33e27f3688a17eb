"""Where wrong numbers would come from on a real GPU, by memcmp: row counts, trees, loops, overlap, unused memory."""

from __future__ import annotations

import argparse
from typing import Any

import ladder
import models
import numpy as np
import record
from subject import Subject, both_ways, chain, each, kinds, stepwise, tree

from swiftk import DraftSpec, _core

_MOST = 64


def row_counts(s: Subject, context: int) -> None:
    """1 to 64 rows of a chain at once; nodes of a tree beside the texts that they end."""
    session = s.lm.session
    s.forget()
    session.prefill(s.text[:context])
    whole = s.verify(session, context, chain(_MOST))
    counts = (1, 2, 7, 9, 33) if s.tiny else range(1, _MOST)
    different = [n for n in counts if s.verify(session, context, chain(n)).tobytes() != whole[:n].tobytes()]
    s.row(f"row counts with other bits behind {context}", ", ".join(map(str, different)) or "none", must="none")
    parents, nodes = tree(_MOST), s.text[context : context + _MOST - 1]
    branches, different = s.verify(session, context, parents), []
    for row in (1, 2, 5, 8, 33, 63):
        path, at = [], row
        while at:
            path, at = [nodes[at - 1], *path], parents[at - 1]
        session.set_tree(path, chain(len(path) + 1))
        session.verify()
        if np.array(session.logits)[len(path)].tobytes() != branches[row].tobytes():
            different.append(row)
    s.row(f"nodes of a tree with other bits behind {context}", ", ".join(map(str, different)) or "none", must="none")


def unused_memory(s: Subject, context: int) -> None:
    """A cache that is NaN wherever no text has been written gives the same numbers as one that is not."""
    found = []
    for poison in (False, True):
        session = _core.Session(s.lm.model, context=2 * context + _MOST, poison=poison)
        session.prefill(s.text[:context])
        found.append(b"".join(s.verify(session, context, parents(_MOST)).tobytes() for parents in (chain, tree)))
    s.row(f"rows equal over a poisoned cache behind {context}", found[0] == found[1], must=True)


def overlap(s: Subject, context: int) -> None:
    found = []
    for session in both_ways(s, context + 2 * _MOST):
        session.prefill(s.text[:context])
        passes = (chain(_MOST), tree(_MOST), *[[]] * 8)
        found.append(b"".join(s.verify(session, context, parents).tobytes() for parents in passes))
    s.row(f"rows equal, overlapped and in turn, behind {context}", found[0] == found[1], must=True)


def drafted(s: Subject, lm: Any, context: int) -> list:
    """Trees, what they were worth and what came of them, of some drafts after a text."""
    session, found = lm.session, []
    session.set_skip(_core.DraftSpec(**DraftSpec.uniform(s.config["num_hidden_layers"]).arguments()))
    session.reuse([s.text[0] ^ 1])
    session.prefill(s.text[:context])
    for width, nodes in ((1, 1, 1, 1), 13), ((10, 5, 3, 1), 48), ((1, 1, 1, 1), 13), ((10, 5, 3, 1), 48):
        session.draft(_core.TreeRule(confidence=0.0, max_draft=12, max_nodes=nodes, width=width))
        found += [session.tree_tokens.tolist(), session.tree_parents.tolist()]
        found += [[emitted.token for emitted in session.verify()], session.outcomes]
        session.commit(len(found[-2]))
    return found


def loops(s: Subject, contexts: tuple[int, ...]) -> None:
    drafted(s, s.lm, contexts[0])
    if not s.lm.session.last["at_once"]:
        s.part.note(f"{s.label}: drafts go step by step here, so loops were not compared")
        return
    with stepwise():
        other = s.load(context=s.lm.session.context)
    for context in contexts:
        same = drafted(s, s.lm, context) == drafted(s, other, context)
        s.row(f"drafts equal, by loops and step by step, behind {context}", same, must=True)


def measure(s: Subject) -> None:
    few, many, long = (20, 40, 60) if s.tiny else (600, 4400, 5000)
    jobs = [(row_counts, few), (row_counts, many), (unused_memory, few), (overlap, few), (overlap, many)]
    for check, context in jobs:
        s.part.attempt(f"{s.label}, {check.__name__.replace('_', ' ')}", check, s, context)
    s.part.attempt(f"{s.label}, loops", loops, s, (few // 6, few, long))


def main() -> None:
    given = models.options(argparse.ArgumentParser(description=__doc__)).parse_args()
    with record.Part("bits", given) as part:
        each(part, ladder.PARTS["bits"].chosen(given.only), kinds(given.device), 512 if given.tiny else 5200, measure)


if __name__ == "__main__":
    main()
