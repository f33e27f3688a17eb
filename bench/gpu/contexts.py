"""What a text after them costs one row and n rows, as a chain and as a tree, on the shapes of known models."""

from __future__ import annotations

import argparse
from statistics import median

import ladder
import models
import record
from subject import CONTEXT, Subject, chain, each, kinds, ratio, tree

CONTEXTS = (CONTEXT, 1024, 4096, 8192, 16000)


def rows(s: Subject, context: int) -> None:
    taken = s.seconds(context, [chain, tree])
    one = taken[0, 1]
    s.row(f"one row behind {context} tokens", 1 / median(one), "tokens/s", of_reads=s.share(median(one), context))
    behind = "" if context == CONTEXT else f" behind {context} tokens"
    for (shape, n), found in sorted(taken.items()):
        if n > 1:
            s.row(f"verify {n} rows{' of a tree' * shape} over one{behind}", ratio(found, one))
    s.part.keep(f"{s.label}, {context}", {f"{('chain', 'tree')[i]} {n}": median(t) for (i, n), t in taken.items()})


def measure(s: Subject) -> None:
    for context in (16, CONTEXT) if s.tiny else CONTEXTS:
        s.part.attempt(f"{s.label}, behind {context}", rows, s, context)


def main() -> None:
    given = models.options(argparse.ArgumentParser(description=__doc__)).parse_args()
    with record.Part("contexts", given) as part:
        part.note("Passes of n rows take turns after the same text, as a chain and as a tree whose nodes have four "
                  "children, the first of which has children again. Figures are medians. % of reads counts weights, "
                  "keys and values, as a share of the best read stream.")
        names, room = ladder.PARTS["contexts"].chosen(given.only), 1024 if given.tiny else 16640
        each(part, names, kinds(given.device)[:1], room, measure)


if __name__ == "__main__":
    main()
