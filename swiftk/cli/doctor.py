"""swiftk doctor: what this machine can do, what a draft costs on it, and the acceptance from which drafting pays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter
from typing import Annotated, Any

import typer

from ..cost import break_even, equation_6, tokens_per_round
from ..skip import SkipSet
from .common import DeviceOption, DtypeOption, JsonOption, ThreadsOption, bar, make_table, open_model, out, print_json

_ROWS = (1, 2, 4, 6, 8, 10, 12, 14, 16)
_SECONDS, _TURNS, _SAMPLES = 6.0, 9, 40  # seconds of all turns, turns, samples of one at most
_DRAFT = 6  # tokens


def command(
    model: Annotated[
        str, typer.Argument(metavar="[MODEL]", help="Checkpoint directory; default: the bundled model.")
    ] = "demo",
    json: JsonOption = False,
    threads: ThreadsOption = None,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
) -> None:
    """Measure the machine and say what drafting needs to pay. Takes about ten seconds."""
    lm = open_model(model, threads, dtype, device)
    with bar(unit_bytes=False) as progress:
        task = progress.add_task("measuring", total=2 + _TURNS)
        facts = _measure(lm, lambda: progress.advance(task))
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
    skips = {
        "alternate layers": SkipSet.uniform(layers),
        "exit at half": SkipSet.early_exit(layers // 2),
        "exit at quarter": SkipSet.early_exit(max(1, layers // 4)),
    }
    every: dict[Any, Callable[[], float]] = {n: partial(_verify, session, n) for n in _ROWS if n <= vocab}
    every |= {name: partial(_draft_step, session, skip) for name, skip in skips.items()}
    plain, cost = _in_turn(every, step)
    rows = {n: cost[n] for n in _ROWS if n in cost}
    return {
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
        "drafts": [_draft_facts(name, skip, layers, cost[name], rows) for name, skip in skips.items()],
    }


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


def _draft_step(session: Any, skip: SkipSet) -> float:
    session.set_skip(**skip.arguments())
    session.draft(confidence=0.0, max_draft=_DRAFT, max_nodes=_DRAFT + 1)
    return float(session.last["draft"]) / max(1, int(session.last["draft_steps"]))


def _draft_facts(name: str, skip: SkipSet, layers: int, c: float, cost: dict[int, float]) -> dict[str, Any]:
    best: tuple[float, int] | None = None
    for length in range(1, 9):
        rows = min((n for n in cost if n > length), default=max(cost))
        even = break_even(c, length, cost[rows])
        if even is not None and (best is None or even < best[0]):
            best = (even, length)
    return {
        "skip": name,
        "sublayers_skipped": skip.skipped(layers),
        "sublayers": 2 * layers,
        "draft_cost": c,
        "break_even_acceptance": best[0] if best else None,
        "break_even_length": best[1] if best else None,
        "speedup_at_acceptance": {str(a): _best_speedup(a, c) for a in (0.6, 0.8, 0.9, 0.95)},
    }


def _best_speedup(alpha: float, c: float) -> float:
    return max(equation_6(tokens_per_round(alpha, n), (tokens_per_round(alpha, n) - 1) / n, c) for n in range(1, 17))


def _show(facts: dict[str, Any]) -> None:
    out.print(
        f"{facts['isa']} kernels, {facts['threads']} threads, {facts['dtype']}: reads "
        f"{facts['read_bytes_per_second'] / 1e9:.1f} GB/s, computes {facts['flops_per_second'] / 1e9:.0f} GFLOP/s"
    )
    out.print(
        f"a plain step takes {1e3 * facts['plain_step_seconds']:.2f} ms ({facts['plain_tokens_per_second']:.1f} "
        f"tokens/s, {facts['share_of_read_bandwidth']:.0%} of the read bandwidth on weights)\n"
    )
    table = make_table("rows", *facts["rows"])
    table.add_row("cost", *(f"{v:.2f}" for v in facts["rows"].values()))
    out.print(table)
    table = make_table(
        "draft skips",
        "skipped",
        "draft step",
        "break-even",
        *(f"at {a}" for a in facts["drafts"][0]["speedup_at_acceptance"]),
    )
    for d in facts["drafts"]:
        even = "none" if d["break_even_acceptance"] is None else f"{d['break_even_acceptance']:.2f}"
        table.add_row(
            d["skip"],
            f"{d['sublayers_skipped']}/{d['sublayers']}",
            f"{d['draft_cost']:.2f}",
            even,
            *(f"{v:.2f}x" for v in d["speedup_at_acceptance"].values()),
        )
    out.print(table)
    paying = [d for d in facts["drafts"] if d["break_even_acceptance"] is not None]
    if paying:
        best = min(paying, key=lambda d: d["break_even_acceptance"])
        out.print(
            f"drafting pays here from an acceptance of {best['break_even_acceptance']:.2f} ({best['skip']}); "
            "swiftk measures yours while it generates, and decodes plainly below that"
        )
    else:
        out.print(
            "drafting does not pay here with this model: verifying costs as much as it saves; swiftk decodes plainly"
        )
