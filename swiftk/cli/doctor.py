"""swiftk doctor: what this machine can do, what drafting costs on it, and what the default makes of that."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Annotated, Any

import typer

from .. import _core
from ..draft.cost import break_even, tokens_per_round
from ..draft.draft_spec import DRAFTER_NAMES, DraftSpec
from ..files.converted import largest_file
from .common import (
    PROMPTS,
    JsonOption,
    Loading,
    loads,
    make_table,
    megabytes,
    open_model,
    out,
    print_json,
    why_off,
    work,
)
from .plan import disk_speed, rows

_ROWS = (1, 2, 4, 6, 8, 10, 12, 14, 16)
_SECONDS, _TURNS, _SAMPLES = 6.0, 9, 40  # seconds of all turns, turns, samples of one at most
_MOST = 20.0  # seconds of all turns where a single sample of each takes long
_DRAFT = 6  # tokens
_ACCEPTED = (0.6, 0.8, 0.9, 0.95)
_TOKENS, _LEAST = 96, 16  # of a text by the default, and where plain decoding would take longer than _MOST


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
    # Weights that are read ahead are those after a plain pass, not those that the last draft left.
    every: dict[Any, Callable[[], float]] = {0: partial(_verify, session, 1)}
    every |= {n: partial(_verify, session, n) for n in _ROWS if n <= vocab}
    every |= {name: partial(_draft_step, session, plan) for name, plan in plans.items()}
    streamed = lm.model.memory["streamed"]
    if streamed:
        every["disk"] = partial(_read, largest_file(lm.source), streamed)
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
        "memory": lm.model.memory,
        "disk_bytes_per_second": streamed / cost["disk"] / plain if streamed else None,
        "share_of_disk_speed": cost["disk"] if streamed else None,
        "rows": {str(n): share for n, share in rows.items()},
        "drafts": [_draft_facts(name, cost[name], rows) for name in plans],
        "default": _default(lm, min(_TOKENS, max(_LEAST, int(_MOST / plain)))),
    }
    step()
    return facts


def _in_turn(every: dict[Any, Callable[[], float]], step: Callable[[], None]) -> tuple[float, dict[Any, float]]:
    """(seconds of a plain step, each in plain steps): medians over turns, in each of which all are measured beside a
    plain step, for a machine's speed changes meanwhile. Where they take long, there are fewer turns."""
    began, turns = perf_counter(), []
    for turn in range(_TURNS + 1):
        step()
        if turn and perf_counter() - began > _MOST:
            continue
        end, samples = perf_counter() + _SECONDS / _TURNS, []
        while not samples or (turn and perf_counter() < end and len(samples) < _SAMPLES):
            samples.append({what: measure() for what, measure in every.items()})
        turns.append(samples)
    found = [sample for samples in turns[1:] or turns for sample in samples]  # the first turn finds cold caches
    share = {what: median(sample[what] / sample[1] for sample in found) for what in every}
    return median(sample[1] for sample in found), share


def _verify(session: Any, rows: int) -> float:
    session.set_tree(list(range(rows - 1)), [0] * (rows - 1))
    session.verify()
    return float(session.last["verify"])


def _read(file: Path, size: int) -> float:
    """Seconds of so many bytes from disk."""
    return size / disk_speed(file)


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


def _default(lm: Any, tokens: int) -> dict[str, Any]:
    """Figures of the default on one text."""
    text: Any = PROMPTS["arithmetic"] if lm.tokenizer.available else [1, 2, 3, 4, 5, 6, 7, 8]
    s = lm.generate(text, max_new_tokens=tokens, temperature=0.0, ignore_eos=True).stats
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
    disk = facts["disk_bytes_per_second"]
    share = (
        f"its {megabytes(facts['memory']['streamed'])} from disk at {facts['share_of_disk_speed']:.0%} of the disk's "
        f"speed, {disk / 1e9:.2f} GB/s"
        if disk
        else f"{facts['share_of_read_bandwidth']:.0%} of the read bandwidth on weights"
    )
    out.print(
        f"a plain step takes {1e3 * facts['plain_step_seconds']:.2f} ms ({facts['plain_tokens_per_second']:.1f} "
        f"tokens/s, {share})\n"
    )
    if plan := rows(facts["memory"]):
        table = make_table("memory", "planned")
        for row in plan:
            table.add_row(*row)
        out.print(table)
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
