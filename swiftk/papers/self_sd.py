"""Draft & Verify's offline search (arXiv 2309.08168): Bayesian optimisation of measured tokens per second over given
prompts, each sublayer free to be skipped. The baseline that SWIFT is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any

from ..draft.draft_spec import DraftSpec
from ..search.base import Candidate
from ..search.sublayers import skip_set, sublayers
from .bayes import suggest

_THRESHOLD = 0.5  # of a coordinate: above it the sublayer is skipped


def search(
    lm: Any, prompts: Sequence[Any], steps: int, max_new_tokens: int = 32, seed: int = 1, **options: Any
) -> Iterator[Candidate]:
    """One candidate a step, the uniform set first; `kept` where it was the fastest so far, `rate` in tokens per second.
    `options` go to generate()."""
    n_layers = lm.config["num_layers"]
    points: list[list[float]] = []
    scores: list[float] = []
    point = _vertex(DraftSpec.uniform(n_layers), n_layers)
    for step in range(steps):
        began = perf_counter()
        if step:
            point = suggest(points, scores, seed + step)
        skip = skip_set((i for i, x in enumerate(point) if x > _THRESHOLD), n_layers)
        rate, acceptance = _measure(lm, prompts, skip, max_new_tokens, options)
        points.append(_vertex(skip, n_layers))
        scores.append(rate)
        best = rate >= max(scores)
        tokens = (step + 1) * len(prompts) * max_new_tokens
        kind = "bayes" if step else "uniform"
        yield Candidate(tokens, kind, skip, acceptance, rate, best, perf_counter() - began)


def _vertex(skip: DraftSpec, n_layers: int) -> list[float]:
    skipped = sublayers(skip, n_layers)
    return [float(i in skipped) for i in range(2 * n_layers)]


def _measure(
    lm: Any, prompts: Sequence[Any], skip: DraftSpec, tokens: int, options: dict[str, Any]
) -> tuple[float, float]:
    """(tokens per second, acceptance) over all prompts."""
    generated, seconds, drafted, accepted = 0, 0.0, 0, 0
    for prompt in prompts:
        asked = {"skip": skip, "optimizer": "self-sd", "speculate": "always", "ignore_eos": True, **options}
        s = lm.generate(prompt, max_new_tokens=tokens, **asked).stats
        generated += s.generated_tokens - 1
        seconds += s.total_seconds - s.time_to_first_token
        drafted += s.num_draft_tokens
        accepted += s.num_accepted_draft_tokens
    return generated / max(seconds, 1e-9), accepted / max(drafted, 1)
