"""Texts that come and go: how long they wait for their first token, and for the next ones, with drafts and without."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random
from time import perf_counter, sleep
from typing import Any

import numpy as np

from swiftk import LM

from .harness import Study
from .plots import series
from .texts import STREAMS

EVERY = {"one a second": 1.0, "two a second": 0.5}
WAYS: dict[str, dict[str, Any]] = {"plain": {"speculate": False}, "default": {}}
PROMPT = 200  # tokens, at most
COLUMNS = {"arrivals": "part", "way": "way", "first, median": "first_50:.3f", "95 %": "first_95:.3f"}
COLUMNS |= {
    "next, median": "next_50:.3f",
    "next, 95 %": "next_95:.3f",
    "longest": "next_100:.3f",
    "tokens/s": "rate:.1f",
}
NOTES = (
    "texts arrive as a Poisson process does, at the same moments for both ways, one after the other; first: seconds "
    "from a text's arrival to its first token; next: seconds between two rounds that brought it tokens; T = .6"
)


def heard(lm: LM, due: float, prompt: list[int], **options: Any) -> list[float]:
    """When each token of a text that arrives at `due` came."""
    sleep(max(0.0, due - perf_counter()))
    return [perf_counter() for _ in lm.submit(prompt, temperature=0.6, **options)]


def serve(lm: LM, prompts: list[list[int]], gap: float, **options: Any) -> dict[str, Any]:
    """Texts that arrive every `gap` seconds in the mean, each read by a thread of its own."""
    draw, began = Random(1), perf_counter() + 0.1
    due = began + np.cumsum([0.0, *(draw.expovariate(1 / gap) for _ in prompts[1:])])
    with ThreadPoolExecutor(len(prompts)) as threads:
        asked = zip(range(len(prompts)), due, prompts)
        futures = [threads.submit(heard, lm, at, prompt, seed=seed, **options) for seed, at, prompt in asked]
        times = [np.array(future.result()) for future in futures]
    gaps = np.concatenate([np.diff(one) for one in times])
    waited = {"first": np.array([one[0] for one in times]) - due, "next": gaps[gaps > 1e-4]}  # a round's come at once
    found = {f"{name}_{q}": float(np.percentile(some, q)) for name, some in waited.items() for q in (50, 95, 100)}
    shares = {name: np.quantile(some, np.linspace(0, 1, 21)).tolist() for name, some in waited.items()}
    return {**found, **shares, "rate": sum(map(len, times)) / (max(one[-1] for one in times) - began)}


def main() -> None:
    study = Study("arrivals", __doc__, texts=2, tokens=64, streams=STREAMS, loading={})
    prompts = [
        text.prompt for some in zip(*(study.texts(name, most=PROMPT) for name in study.streams)) for text in some
    ]
    for part, gap in study.parts(dict(list(EVERY.items())[-1:]) if study.quick else EVERY):
        for way, options in WAYS.items():
            found = serve(study.lm, prompts, gap, max_new_tokens=study.tokens, **options)
            study.rows.append({"part": part, "way": way, "told": f"{part}, {way}", **found})
    look = {"by": "told", "label": "took at most so long, in twentieths", "plain": True}
    panels = [series("seconds to the first token", "first", **look), series("seconds between rounds", "next", **look)]
    study.finish(COLUMNS, NOTES, panels=panels)


if __name__ == "__main__":
    main()
