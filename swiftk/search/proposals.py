"""Where candidate skip sets come from: early exits, the uniform set, local moves, random restarts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator

from ..draft.draft_spec import DraftSpec

PROGRAM = ("dp", None)  # what dynamic programming finds on the text


def sublayers(skip: DraftSpec, n_layers: int) -> frozenset[int]:
    """Skipped sublayers by number: attention of layer i is 2 i, its MLP 2 i + 1."""
    end = n_layers if skip.exit_layer is None else skip.exit_layer
    return frozenset({2 * i for i in skip.attn} | {2 * i + 1 for i in skip.mlp} | set(range(2 * end, 2 * n_layers)))


def skip_set(skipped: Iterable[int], n_layers: int) -> DraftSpec:
    """The set that leaves these sublayers out; whole layers left out at the end are an early exit."""
    left_out = set(skipped)
    end = n_layers
    while end > 0 and {2 * end - 2, 2 * end - 1} <= left_out:
        end -= 1
    inside = sorted(s for s in left_out if s < 2 * end)
    return DraftSpec(
        [s // 2 for s in inside if s % 2 == 0],
        [s // 2 for s in inside if s % 2],
        None if end == n_layers else end,
    )


def first_candidates(n_layers: int) -> list[tuple[str, DraftSpec | None]]:
    """Models trained with layer dropout are best cut, others best thinned. None: a proposal that takes a pass, here of
    the best exits."""
    return [("uniform", DraftSpec.uniform(n_layers)), *([("exits", None)] if n_layers > 1 else [])]


def local_move(skip: DraftSpec, n_layers: int, rng: random.Random) -> DraftSpec:
    """One to three sublayers more, fewer, or others; those at the exit most often."""
    skipped = set(sublayers(skip, n_layers))
    for _ in range(rng.choice((1, 1, 2, 3))):
        kept = [s for s in range(2 * n_layers) if s not in skipped]
        move = rng.random()
        if move < 0.4 and len(kept) > 1:
            skipped.add(kept[-1] if rng.random() < 0.25 else rng.choice(kept))
        elif move < 0.7 and skipped:
            behind = [s for s in sorted(skipped) if s > max(kept, default=0)]
            skipped.remove(behind[0] if behind and rng.random() < 0.5 else rng.choice(sorted(skipped)))
        elif skipped and len(kept) > 1:
            skipped.remove(rng.choice(sorted(skipped)))
            skipped.add(rng.choice(kept))
    return skip_set(skipped, n_layers)


def without_end(
    incumbent: Callable[[], DraftSpec], n_layers: int, rng: random.Random
) -> Iterator[tuple[str, DraftSpec | None]]:
    """Mostly neighbours of the incumbent."""
    while True:
        yield PROGRAM
        for _ in range(12):
            yield "move", local_move(incumbent(), n_layers, rng)
        count = rng.randint(1, max(1, 2 * n_layers - 4))
        yield "random", random_set(count, n_layers, rng)


def random_set(count: int, n_layers: int, rng: random.Random) -> DraftSpec:
    """`count` sublayers at random, none of the first and the last layer (SWIFT section 4.1)."""
    inner = range(2, 2 * n_layers - 2)
    return skip_set(rng.sample(inner, min(count, len(inner))), n_layers)
