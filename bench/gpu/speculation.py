"""Plain against drafted decoding of real prompts by the demo model at the size of 13 B; every token compared."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from statistics import median
from typing import Any

import models
import record

import swiftk
from swiftk import DraftSpec
from texts import prompts


def ways(layers: int) -> dict[str, dict[str, Any]]:
    always = {"speculate": "always"}
    return {
        "plain": {"speculate": False},
        "default": {},
        "always, half skipped": {**always, "skip": DraftSpec.uniform(layers)},
        "always, early exit at half": {**always, "assistant_early_exit": layers // 2},
        "always, int4 weights": {**always, "skip": "int4"},
    }


def middle(figures: Iterable[float | None]) -> float | None:
    """The median of those there are; None: no text has one, as where sources have drafted alone."""
    known = [figure for figure in figures if figure]
    return median(known) if known else None


def facts(runs: list[Any]) -> dict[str, Any]:
    """Figures of one way over all its texts."""
    stats = [r.stats for r in runs]
    drafted, passes = sum(s.num_draft_tokens for s in stats), sum(s.num_steps for s in stats)
    decode = sum(s.total_seconds - s.prefill_seconds for s in stats)
    return {
        "tokens_per_second": median(s.tokens_per_second for s in stats),
        "mean_generated_length": sum(s.mean_generated_length * s.num_steps for s in stats) / max(passes, 1),
        "draft_acceptance_rate": sum(s.draft_acceptance_rate * s.num_draft_tokens for s in stats) / max(drafted, 1),
        "draft_cost": middle(s.draft_cost for s in stats),
        "forecast_speedup": middle(s.forecast_speedup for s in stats),
        "outside_passes": sum(s.other_seconds for s in stats) / max(decode, 1e-9),
        "reason_off": next((s.reason_off for s in reversed(stats) if s.reason_off), None),
    }


def measure(part: record.Part, lm: Any, texts: list[list[int]]) -> None:
    """Runs of every way, in turn, told after every round. In the first one costs and gates are learned, and graphs
    recorded: its times count only until there are others."""
    tiny = part.given.tiny
    chosen = ways(lm.config["num_layers"])
    runs: dict[str, list[Any]] = {name: [] for name in chosen}
    for turn in range(2 if tiny else 4):
        for prompt in texts:
            for name, how in chosen.items():
                lm.forget_texts()
                found = lm.generate(prompt, max_new_tokens=16 if tiny else 128, temperature=0.0, ignore_eos=True, **how)
                runs[name].append(found)
        for name, found in runs.items():
            tell(part, name, found, runs["plain"], len(texts) if turn else 0)
        part.add("all ways", "rounds behind the one that warms up", turn)


def tell(part: record.Part, name: str, runs: list[Any], plain_runs: list[Any], first: int) -> None:
    found, plain = runs[first:], plain_runs[first:]
    figures = facts(found)
    part.keep(name, figures)
    part.add(name, "decoding", figures["tokens_per_second"], "tokens/s")
    ratio = median(a.stats.tokens_per_second / b.stats.tokens_per_second for a, b in zip(found, plain))
    if name != "plain":
        part.add(name, "over plain", ratio, at_least=0.98 if name == "default" else None)
        same = all(a.tokens == b.tokens for a, b in zip(runs, plain_runs))
        part.add(name, "every token equals plain decoding's", same, must=True)
    if figures["forecast_speedup"]:
        part.add(name, "over plain, of its forecast", ratio / figures["forecast_speedup"], at_least=0.97)
        part.add(name, "forecast from M and c", figures["forecast_speedup"])
        part.add(name, "tokens a target pass (M)", figures["mean_generated_length"])
        part.add(name, "accepted", figures["draft_acceptance_rate"])
    if figures["draft_cost"]:
        part.add(name, "draft step over plain step (c)", figures["draft_cost"])
    rounds = median(r.stats.other_seconds / max(1, r.stats.num_steps) for r in found)
    part.add(name, "outside passes, a round", rounds * 1e6, "us", at_most=30)
    if figures["reason_off"] and name != "plain":
        part.note(f"{name}: {figures['reason_off']}")


def main() -> None:
    given = models.options(argparse.ArgumentParser(description=__doc__)).parse_args()
    with record.Part("speculation", given) as part:
        store = models.Store(given)
        folder = store.ensure(models.GROWN)
        texts = prompts(folder, 3)
        lm = swiftk.load(folder, device=given.device, draft_weights="int4")
        copy = sum(lm.model.copies.values()) / 1e9
        part.note(
            f"{models.label(models.GROWN)}: {lm.model.weight_bytes / 1e9:.2f} GB of {lm.model.dtype} weights and "
            f"{copy:.2f} GB of an int4 copy. The {len(texts)} prompts are arithmetic, code and prose; all ways "
            "take turns on 128 greedy tokens of each. Figures are medians over texts."
        )
        measure(part, lm, texts)


if __name__ == "__main__":
    main()
