"""swiftk doctor: what this machine can do, what a draft costs on it, and the acceptance from which drafting pays."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Annotated, Any

import typer

from ..cost import break_even, equation_6, tokens_per_round
from ..skip import SkipSet
from .common import DeviceOption, DtypeOption, JsonOption, ThreadsOption, bar, make_table, open_model, out, print_json

_ROWS = (1, 2, 4, 6, 8, 10, 12, 14, 16)
_SECONDS = 0.35  # for each figure
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
        task = progress.add_task("measuring", total=2 + len(_ROWS) + 3)
        facts = _measure(lm, lambda: progress.advance(task))
    if json:
        print_json(facts)
    else:
        _show(facts)


def _measure(lm: Any, step: Callable[[], None]) -> dict[str, Any]:
    read, flops = lm.model.probe()
    step()
    session, vocab = lm.session, lm.config["vocab_size"]
    session.clear_cancel()
    session.set_sampling()
    session.set_logprobs(0)
    session.prefill([(7 * i + 1) % vocab for i in range(min(48, lm.context // 2))])
    seconds = {}
    for rows in [n for n in _ROWS if n <= vocab]:
        seconds[rows] = _typical(lambda n=rows: _verify(session, n))
        step()
    layers = lm.config["num_layers"]
    drafts = []
    for name, skip in (
        ("alternate layers", SkipSet.uniform(layers)),
        ("exit at half", SkipSet.early_exit(layers // 2)),
        ("exit at quarter", SkipSet.early_exit(max(1, layers // 4))),
    ):
        drafts.append(_draft_facts(session, name, skip, layers, seconds))
        step()
    return {
        "isa": lm.model.isa,
        "threads": lm.model.threads,
        "dtype": lm.model.dtype,
        "read_bytes_per_second": read,
        "flops_per_second": flops,
        "weight_bytes": lm.model.weight_bytes,
        "plain_step_seconds": seconds[1],
        "plain_tokens_per_second": 1 / seconds[1],
        "share_of_read_bandwidth": lm.model.weight_bytes / seconds[1] / read,
        "rows": {str(n): s / seconds[1] for n, s in seconds.items()},
        "drafts": drafts,
    }


def _verify(session: Any, rows: int) -> float:
    session.set_tree(list(range(rows - 1)), [0] * (rows - 1))
    session.verify()
    return float(session.last["verify"])


def _typical(measure: Callable[[], float]) -> float:
    """Median of repeats that fill the time for one figure."""
    measure()
    samples, end = [], perf_counter() + _SECONDS
    while len(samples) < 3 or (perf_counter() < end and len(samples) < 200):
        samples.append(measure())
    return median(samples)


def _draft_facts(session: Any, name: str, skip: SkipSet, layers: int, seconds: dict[int, float]) -> dict[str, Any]:
    session.set_skip(**skip.arguments())

    def once() -> float:
        session.draft(confidence=0.0, max_draft=_DRAFT, max_nodes=_DRAFT + 1)
        return float(session.last["draft"]) / max(1, int(session.last["draft_steps"]))

    c = _typical(once) / seconds[1]
    best: tuple[float, int] | None = None
    for length in range(1, 9):
        rows = min((n for n in seconds if n > length), default=max(seconds))
        even = break_even(c, length, seconds[rows] / seconds[1])
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
