"""Whole texts on the grown model, plain and drafted, by the same build in one run; outputs compared token by token."""

from statistics import median

import pytest

import swiftk
from demo import prompts

COLUMNS = ["way", "tokens/s", "ratio", "forecast", "ratio / forecast", "M", "accepted", "c", "outside passes", "output"]
WAYS = {
    "plain": {"speculate": False},
    "default": {},
    "always, half skipped": {"speculate": "always", "skip": "auto"},
    "always, early exit at half": {"speculate": "always", "assistant_early_exit": 0},  # the layer is filled in below
}


def middle(figures):
    """The median of those there are; None: no text has one, as where sources have drafted alone."""
    known = [figure for figure in figures if figure]
    return median(known) if known else None


def facts(runs):
    """Figures of one way over all its texts."""
    stats = [r.stats for r in runs]
    seconds = [s.draft_seconds + s.verify_seconds + s.commit_seconds + s.optimizer_seconds for s in stats]
    drafted, passes = sum(s.num_draft_tokens for s in stats), sum(s.num_steps for s in stats)
    decode = [s.total_seconds - s.prefill_seconds for s in stats]
    return {"tokens_per_second": median(s.tokens_per_second for s in stats),
            "mean_generated_length": sum(s.mean_generated_length * s.num_steps for s in stats) / max(passes, 1),
            "draft_acceptance_rate": sum(s.draft_acceptance_rate * s.num_draft_tokens for s in stats) / max(drafted, 1),
            "draft_cost": middle(s.draft_cost for s in stats),
            "forecast_speedup": middle(s.forecast_speedup for s in stats),
            "outside_passes": sum(s.other_seconds for s in stats) / max(sum(decode), 1e-9),
            "phases_share": sum(seconds) / max(sum(decode), 1e-9),
            "reason_off": next((s.reason_off for s in reversed(stats) if s.reason_off), None)}


@pytest.fixture(scope="module")
def lm(model_dir):
    return swiftk.load(model_dir)


@pytest.mark.benchmark(group="generate")
def test_generate(benchmark, report, lm, model_dir, grow, rounds):
    tokens = 128 if grow > 1 else 24
    ways = {name: dict(how) for name, how in WAYS.items()}
    for how in ways.values():
        if "assistant_early_exit" in how:
            how["assistant_early_exit"] = lm.config["num_layers"] // 2
    texts = prompts(model_dir, 3)
    runs = {name: [] for name in ways}

    def round_():
        for prompt in texts:
            for name, how in ways.items():
                lm.forget_texts()
                runs[name].append(lm.generate(prompt, max_new_tokens=tokens, temperature=0.0, ignore_eos=True, **how))

    benchmark.pedantic(round_, rounds=max(1, rounds // 4), warmup_rounds=1)
    for found in runs.values():
        del found[:len(texts)]
    table = report("generate", COLUMNS)
    table.notes = [f"{model_dir.name}; {len(texts)} prompts (arithmetic, code, prose), {tokens} new tokens, greedy, "
                   "interleaved; medians of whole decode loops behind the first token",
                   "ratio: to plain decoding of the same prompt in the same run; M: tokens per target pass; c: a draft "
                   "step in plain steps"]
    plain = runs["plain"]
    for name, found in runs.items():
        figures = facts(found)
        same = all(a.tokens == b.tokens for a, b in zip(found, plain))
        ratio = median(a.stats.tokens_per_second / b.stats.tokens_per_second for a, b in zip(found, plain))
        figures.update(way=name, ratio=ratio, identical=same)
        benchmark.extra_info[name] = figures
        expected = figures["forecast_speedup"]
        cost = figures["draft_cost"]
        table.add([name, f"{figures['tokens_per_second']:.1f}", f"{ratio:.3f}", f"{expected:.3f}" if expected else "",
                   f"{ratio / expected:.3f}" if expected else "", f"{figures['mean_generated_length']:.2f}",
                   f"{figures['draft_acceptance_rate']:.0%}", f"{cost:.2f}" if cost else "",
                   f"{figures['outside_passes']:.2%}", "same" if same else "DIFFERS"], figures)
        if figures["reason_off"] and name != "plain":
            table.notes.append(f"{name}: {figures['reason_off']}")
    assert all(row["identical"] for row in table.figures)
