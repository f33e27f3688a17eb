"""swiftk bench: plain against drafted decoding of one prompt, on the same build, outputs compared."""

from __future__ import annotations

from statistics import median
from typing import Annotated, Any

import typer
from rich.text import Text

from .common import (
    PROMPTS,
    JsonOption,
    Loading,
    ModelArgument,
    first_difference,
    loads,
    make_table,
    open_model,
    out,
    print_json,
    why_off,
    work,
)


@loads()
def command(
    model: ModelArgument,
    prompt: Annotated[str | None, typer.Option(help="Prompt to continue. Default: a word problem.")] = None,
    tokens: Annotated[int, typer.Option("--tokens", "-n", min=2, help="Tokens to generate.")] = 128,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each way; the median is shown.")] = 3,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy.")] = 0.0,
    skip: Annotated[str, typer.Option(help="Layers that drafts skip: auto, or a file of `swiftk tune`.")] = "auto",
    json: JsonOption = False,
    *,
    loading: Loading,
) -> None:
    """Measure tokens per second with and without drafting."""
    lm = open_model(model, loading)
    text: Any = prompt or (PROMPTS["arithmetic"] if lm.tokenizer.available else [1, 2, 3, 4, 5, 6, 7, 8])
    # Each run is of the same text, and is to know nothing of it.
    options = {"max_new_tokens": tokens, "temperature": temperature, "seed": 0, "ignore_eos": True, "recall": False}
    ways: dict[str, dict[str, Any]] = {
        "plain": {"speculate": False},
        "swiftk": {"skip": skip},
        "always drafting": {"skip": skip, "speculate": "always"},
    }
    runs: dict[str, list[Any]] = {way: [] for way in ways}
    with work("measuring", len(ways) * (repeat + 1)) as progress:
        for i in range(repeat + 1):  # interleaved, so that all see the same machine; the first of each only warms up
            for way, how in ways.items():
                result = lm.generate(text, **options, **how)
                runs[way] += [result] if i else []
                progress.advance()
    facts = {way: _facts(found) for way, found in runs.items()}
    for way, found in runs.items():
        facts[way]["ratio"] = facts[way]["tokens_per_second"] / facts["plain"]["tokens_per_second"]
        facts[way]["identical"] = all(first_difference(r.tokens, runs["plain"][0].tokens) is None for r in found)
    _report(facts, json)
    if not all(f["identical"] for f in facts.values()):
        raise typer.Exit(1)


def _facts(runs: list[Any]) -> dict[str, Any]:
    s = runs[-1].stats
    return {
        "tokens_per_second": median(r.stats.tokens_per_second for r in runs),
        "tokens": s.generated_tokens,
        "mean_generated_length": s.mean_generated_length,
        "draft_acceptance_rate": s.draft_acceptance_rate,
        "forecast_speedup": s.forecast_speedup,
        "draft_cost": s.draft_cost,
        "speculation": s.speculation,
        "reason_off": s.reason_off,
        "other_share": s.other_seconds / max(s.total_seconds, 1e-9),
    }


def _report(facts: dict[str, dict[str, Any]], json: bool) -> None:
    if json:
        print_json(facts)
        return
    table = make_table("", "tok/s", "ratio", "forecast", "tok/pass", "accepted", "draft cost", "output")
    for way, f in facts.items():
        number = {k: "" if f[k] is None else f"{f[k]:.2f}" for k in ("forecast_speedup", "draft_cost")}
        table.add_row(
            way,
            f"{f['tokens_per_second']:.1f}",
            f"{f['ratio']:.2f}x",
            number["forecast_speedup"],
            f"{f['mean_generated_length']:.2f}",
            f"{f['draft_acceptance_rate']:.0%}",
            number["draft_cost"],
            "identical" if f["identical"] else Text("differs", style="red"),
        )
    out.print(table)
    out.print(
        "accepted: share of the plan's draft tokens; those of repetitions are not counted. draft cost: time of a "
        "draft\nstep, where a plain step takes 1. forecast: speed-up expected from tokens per pass and these costs."
    )
    drafted = facts["swiftk"]
    if drafted["reason_off"]:
        out.print(why_off(drafted["speculation"], drafted["reason_off"]))
