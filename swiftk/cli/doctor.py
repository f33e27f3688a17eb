"""swiftk doctor: what this machine can do, what drafting costs on it, and what the default makes of that."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter
from typing import Annotated, Any

import typer

from .. import _core
from ..draft.cost import break_even, tokens_per_round
from ..draft.draft_spec import DRAFTER_NAMES, DraftSpec
from .common import (
    PROMPTS,
    JsonOption,
    Loading,
    loads,
    make_table,
    open_model,
    out,
    print_json,
    why_off,
    work,
)

_ROWS = (1, 2, 4, 6, 8, 10, 12, 14, 16)
_SECONDS, _TURNS, _SAMPLES = 6.0, 9, 40  # seconds of all turns, turns, samples of one at most
_DRAFT = 6  # tokens
_ACCEPTED = (0.6, 0.8, 0.9, 0.95)
_TOKENS = 96  # of a text by the default


@loads()
def command(
    model: Annotated[
        str, typer.Argument(metavar="[MODEL]", help="A Hugging Face folder. Default: the bundled toy model.")
    ] = "demo",
    json: JsonOption = False,
    *,
    loading: Loading,
) -> None:
    """Measure this machine, and when drafting is faster on it. Takes some ten seconds."""
    lm = open_model(model, loading)
    with work("measuring", 3 + _TURNS) as progress:
        facts = _measure(lm, progress.advance)
    if json:
        print_json(facts)
    else:
        _show(facts)


def _measure(lm: Any, step: Callable[[], None]) -> dict[str, Any]:
    read, flops = lm.model.probe()
    step()
    session, vocab, layers = lm.session, lm.config["vocab_size"], lm.config["num_layers"]
    session.clear_cancel()
    session.set_sampling()
    session.set_logprobs(0)
    session.prefill([(7 * i + 1) % vocab for i in range(min(48, lm.context // 2))])
    plans = {
        **{f"{name} copy": DraftSpec(weights=name) for name in lm.model.copies},
        **({"trimmed head": DraftSpec(trimmed=True)} if lm.model.draft_tokens else {}),
        "every second layer": DraftSpec.uniform(layers),
        "exit at half": DraftSpec.early_exit(layers // 2),
    }
    for name, kind in zip(DRAFTER_NAMES, lm.model.drafters, strict=False):
        plans[f"{kind} {name}"] = DraftSpec(weights=name)
    every: dict[Any, Callable[[], float]] = {n: partial(_verify, session, n) for n in _ROWS if n <= vocab}
    every |= {name: partial(_draft_step, session, plan) for name, plan in plans.items()}
    plain, cost = _in_turn(every, step)
    rows = {n: cost[n] for n in _ROWS if n in cost}
    facts = {
        "isa": lm.model.isa,
        "threads": lm.model.threads,
        "dtype": lm.model.dtype,
        "read_bytes_per_second": read,
        "flops_per_second": flops,
        "weight_bytes": lm.model.weight_bytes,
        "plain_step_seconds": plain,
        "plain_tokens_per_second": 1 / plain,
        "share_of_read_bandwidth": lm.model.weight_bytes / plain / read,
        "rows": {str(n): share for n, share in rows.items()},
        "drafts": [_draft_facts(name, cost[name], rows) for name in plans],
        "default": _default(lm),
    }
    step()
    return facts


def _in_turn(every: dict[Any, Callable[[], float]], step: Callable[[], None]) -> tuple[float, dict[Any, float]]:
    """(seconds of a plain step, each in plain steps): medians over turns, in each of which all are measured beside a
    plain step, for a machine's speed changes meanwhile."""
    turns: list[dict[Any, float]] = []
    for turn in range(_TURNS + 1):
        end, samples = perf_counter() + _SECONDS / _TURNS, []
        while not samples or (turn and perf_counter() < end and len(samples) < _SAMPLES):
            samples.append({what: measure() for what, measure in every.items()})
        turns += samples if turn else []  # the first one finds cold caches
        step()
    share = {what: median(found[what] / found[1] for found in turns) for what in every}
    return median(found[1] for found in turns), share


def _verify(session: Any, rows: int) -> float:
    session.set_tree(list(range(rows - 1)), [0] * (rows - 1))
    session.verify()
    return float(session.last["verify"])


def _draft_step(session: Any, plan: DraftSpec) -> float:
    session.set_skip(_core.DraftSpec(**plan.arguments()))
    session.draft(_core.TreeRule(confidence=0.0, max_draft=_DRAFT, max_nodes=_DRAFT + 1))
    return float(session.last["draft"]) / max(1, int(session.last["draft_steps"]))


def _draft_facts(name: str, c: float, cost: dict[int, float]) -> dict[str, Any]:
    """By rounds of n draft steps and a pass over n + 1 rows, in plain steps."""
    verify = {n: cost[min((rows for rows in cost if rows > n), default=max(cost))] for n in range(1, 16)}
    even = [(at, n) for n in range(1, 9) if (at := break_even(c, n, verify[n])) is not None]
    return {
        "draft": name,
        "draft_cost": c,
        "break_even_acceptance": min(even)[0] if even else None,
        "break_even_length": min(even)[1] if even else None,
        "speedup_at_acceptance": {
            str(a): max(tokens_per_round(a, n) / (c * n + v) for n, v in verify.items()) for a in _ACCEPTED
        },
    }


def _default(lm: Any) -> dict[str, Any]:
    """Figures of the default on one text."""
    text: Any = PROMPTS["arithmetic"] if lm.tokenizer.available else [1, 2, 3, 4, 5, 6, 7, 8]
    s = lm.generate(text, max_new_tokens=_TOKENS, temperature=0.0, ignore_eos=True).stats
    return {
        "tokens": s.generated_tokens,
        "drafted_by": "; ".join(s.plans) or None,
        "draft_acceptance_rate": s.draft_acceptance_rate if s.num_draft_tokens else None,
        "accepted_by": s.accepted_by,
        "speedup_vs_plain": s.speedup_vs_plain,
        "speculation": s.speculation,
        "reason_off": s.reason_off,
    }


def _show(facts: dict[str, Any]) -> None:
    out.print(
        f"{facts['isa']} kernels, {facts['threads']} threads, {facts['dtype']}: reads "
        f"{facts['read_bytes_per_second'] / 1e9:.1f} GB/s, computes {facts['flops_per_second'] / 1e9:.0f} GFLOP/s"
    )
    out.print(
        f"a plain step takes {1e3 * facts['plain_step_seconds']:.2f} ms ({facts['plain_tokens_per_second']:.1f} "
        f"tokens/s, {facts['share_of_read_bandwidth']:.0%} of the read bandwidth on weights)\n"
    )
    table = make_table("rows in a pass", *facts["rows"])
    table.add_row("plain steps", *(f"{v:.2f}" for v in facts["rows"].values()))
    out.print(table)
    table = make_table("draft", "plain steps", "pays from", *(f"at {a}" for a in _ACCEPTED))
    for d in facts["drafts"]:
        even = "never" if d["break_even_acceptance"] is None else f"{d['break_even_acceptance']:.2f}"
        gains = (f"{v:.2f}x" for v in d["speedup_at_acceptance"].values())
        table.add_row(d["draft"], f"{d['draft_cost']:.2f}", even, *gains)
    out.print(table)
    out.print(
        "plain steps: time of one draft step, where decoding one token without drafting takes 1. pays from: "
        "\nthe acceptance rate from which drafting is faster. at 0.8: speed-up if 80 % of draft tokens are accepted."
    )
    _show_default(facts["default"])


def _show_default(d: dict[str, Any]) -> None:
    by = ", ".join(f"{n} by {name}" for name, n in d["accepted_by"].items()) or "none"
    alpha, gain = d["draft_acceptance_rate"], d["speedup_vs_plain"]
    out.print(
        f"the default, on a text of {d['tokens']} tokens: accepted {by}"
        + (f"; acceptance rate {alpha:.2f} ({d['drafted_by']})" if alpha is not None else "")
        + (f"; {gain:.2f}x plain decoding" if gain is not None else "")
    )
    if d["reason_off"]:
        out.print(why_off(d["speculation"], d["reason_off"]))
