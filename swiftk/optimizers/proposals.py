"""Where candidate skip sets come from: early exits, the uniform set, local moves, random restarts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from ..skip import SkipSet

_OTHER_WEIGHTS = 0.1  # of moves
_PROMISING = ("int4", "int3", "int8")  # a third bit less costs agreement, four more twice the time


PROGRAM = ("dp", None)  # what dynamic programming finds on the text


def by_promise(copies: Sequence[str]) -> tuple[str, ...]:
    """Copies of the weights, the most promising first; those that nothing is known of last."""
    known = [form for form in _PROMISING if form in copies]
    return (*known, *(form for form in copies if form not in known))


def sublayers(skip: SkipSet, n_layers: int) -> frozenset[int]:
    """Skipped sublayers by number: attention of layer i is 2 i, its MLP 2 i + 1."""
    end = n_layers if skip.exit_layer is None else skip.exit_layer
    return frozenset({2 * i for i in skip.attn} | {2 * i + 1 for i in skip.mlp} | set(range(2 * end, 2 * n_layers)))


def skip_set(skipped: Iterable[int], n_layers: int, weights: str | tuple[str, ...] = "own") -> SkipSet:
    """The set that leaves these sublayers out; whole layers left out at the end are an early exit."""
    left_out = set(skipped)
    end = n_layers
    while end > 0 and {2 * end - 2, 2 * end - 1} <= left_out:
        end -= 1
    inside = sorted(s for s in left_out if s < 2 * end)
    return SkipSet(
        [s // 2 for s in inside if s % 2 == 0],
        [s // 2 for s in inside if s % 2],
        None if end == n_layers else end,
        weights,
    )


def first_candidates(n_layers: int, copies: Sequence[str] = ()) -> list[tuple[str, SkipSet | None]]:
    """Models trained with layer dropout are best cut, others best thinned; copies of the weights come first, whole, and
    the first of them is what the others read. None: a proposal that takes a pass, here of the best exits."""
    whole = [("weights", SkipSet(weights=form)) for form in copies]
    thinned = replace(SkipSet.uniform(n_layers), weights=copies[0] if copies else "own")
    return [*whole, ("uniform", thinned), *([("exits", None)] if n_layers > 1 else [])]


def local_move(skip: SkipSet, n_layers: int, rng: random.Random, copies: Sequence[str] = ()) -> SkipSet:
    """One to three sublayers more, fewer, or others; those at the exit most often. Or all of them from another copy."""
    if copies and rng.random() < _OTHER_WEIGHTS:
        return replace(skip, weights=rng.choice([form for form in ("own", *copies) if form != skip.weights]))
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
    return skip_set(skipped, n_layers, skip.weights)


def without_end(
    incumbent: Callable[[], SkipSet], n_layers: int, rng: random.Random, copies: Sequence[str] = ()
) -> Iterator[tuple[str, SkipSet | None]]:
    """Mostly neighbours of the incumbent."""
    while True:
        yield PROGRAM
        for _ in range(12):
            yield "move", local_move(incumbent(), n_layers, rng, copies)
        count = rng.randint(1, max(1, 2 * n_layers - 4))
        yield "random", replace(random_set(count, n_layers, rng), weights=incumbent().weights)


def random_set(count: int, n_layers: int, rng: random.Random) -> SkipSet:
    """`count` sublayers at random, none of the first and the last layer (SWIFT section 4.1)."""
    inner = range(2, 2 * n_layers - 2)
    return skip_set(rng.sample(inner, min(count, len(inner))), n_layers)
