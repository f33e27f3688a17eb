"""swiftk check: proves on this machine that drafts change nothing, by decoding everything twice."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from ..errors import InvalidArgument
from ..skip import SkipSet
from .common import (
    PROMPTS,
    DeviceOption,
    DtypeOption,
    JsonOption,
    ModelArgument,
    ThreadsOption,
    bar,
    first_difference,
    make_table,
    open_model,
    out,
    print_json,
)

_SAMPLERS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 0.9, "top_p": 0.95, "seed": 1234},
    "penalised": {"temperature": 1.0, "top_k": 40, "min_p": 0.02, "repetition_penalty": 1.2, "seed": 99},
}
_GATES: dict[str, Any] = {"swift": "swift", "never stops": 0.0, "auto": "auto"}


def command(
    model: ModelArgument,
    prompts: Annotated[Path | None, typer.Option(help="A file with one prompt a line.")] = None,
    tokens: Annotated[int, typer.Option("--tokens", "-n", min=2, help="Generated for each prompt.")] = 48,
    json: JsonOption = False,
    threads: ThreadsOption = None,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
) -> None:
    """Compare drafted with plain decoding, token by token; status 1 if anything differs."""
    lm = open_model(model, threads, dtype, device)
    texts = _prompts(lm, prompts)
    skips = skip_sets(lm.config["num_layers"])
    rows, differences = [], []
    total = len(texts) * len(_SAMPLERS) * (1 + len(skips) * len(_GATES))
    with bar(unit_bytes=False) as progress:
        task = progress.add_task("checking", total=total)
        for sampler, how in _SAMPLERS.items():
            options = {**how, "max_new_tokens": tokens, "ignore_eos": True}
            plain = [_decode(lm, text, options, progress, task, speculate=False, logprobs=2) for text in texts]
            for name, skip in skips.items():
                for gate_name, gate in _GATES.items():
                    drafted = [
                        _decode(lm, text, options, progress, task, skip=skip, gate=gate, speculate="always")
                        for text in texts
                    ]
                    found = [_difference(i, p, d) for i, (p, d) in enumerate(zip(plain, drafted, strict=True))]
                    found = [{"sampler": sampler, "skip": name, "gate": gate_name, **f} for f in found if f]
                    differences += found
                    rows.append(
                        {
                            "sampler": sampler,
                            "skip": name,
                            "gate": gate_name,
                            "different": len(found),
                            "tokens": sum(len(d.tokens) for d in drafted),
                            "drafted": sum(d.stats.num_accepted_draft_tokens for d in drafted),
                        }
                    )
    _report(rows, differences, json)
    if differences:
        raise typer.Exit(1)


def skip_sets(n_layers: int) -> dict[str, SkipSet]:
    """Drafts from harmless to hopeless: correctness may depend on none of them."""
    shuffled = random.Random(n_layers)
    pick = [i for i in range(n_layers) if shuffled.random() < 0.6]
    other = [i for i in range(n_layers) if shuffled.random() < 0.6]
    everything = range(n_layers)
    return {
        "uniform": SkipSet.uniform(n_layers),
        "random": SkipSet(attn=tuple(pick), mlp=tuple(other)),
        "early exit": SkipSet.early_exit(max(1, n_layers // 2)),
        "everything": SkipSet.layers(everything),
        "nothing": SkipSet(),
    }


def _prompts(lm: Any, path: Path | None) -> list[Any]:
    if path is not None:
        texts = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        if not texts:
            raise InvalidArgument(f"[check] {path} has no prompts, want one a line")
        return texts
    if lm.tokenizer.available:
        return list(PROMPTS.values())
    ids = random.Random(1)
    return [[ids.randrange(lm.config["vocab_size"]) for _ in range(n)] for n in (1, 7, 24)]


def _decode(lm: Any, text: Any, options: dict[str, Any], progress: Any, task: Any, **more: Any) -> Any:
    result = lm.generate(text, **options, **more)
    progress.advance(task)
    return result


def _difference(prompt: int, plain: Any, drafted: Any) -> dict[str, Any] | None:
    at = first_difference(plain.tokens, drafted.tokens)
    if at is None:
        return None
    token = [r.tokens[at] if at < len(r.tokens) else None for r in (plain, drafted)]
    best = [logprob for _, logprob in plain.logprobs[at].top] if at < len(plain.logprobs) else []
    return {
        "prompt": prompt,
        "at": at,
        "plain": token[0],
        "drafted": token[1],
        "margin": best[0] - best[1] if len(best) > 1 else None,
    }


def _report(rows: list[dict[str, Any]], differences: list[dict[str, Any]], json: bool) -> None:
    if json:
        print_json({"identical": not differences, "cases": rows, "differences": differences})
        return
    table = make_table("sampler", "draft skips", "gate", "tokens", "from drafts", "result")
    for row in rows:
        table.add_row(
            row["sampler"],
            row["skip"],
            row["gate"],
            str(row["tokens"]),
            str(row["drafted"]),
            Text(f"{row['different']} differ", style="red") if row["different"] else "identical",
        )
    out.print(table)
    for d in differences[:8]:
        out.print(
            f"{d['sampler']}, skip {d['skip']}, gate {d['gate']}, prompt {d['prompt']}: token {d['at']} is "
            f"{d['drafted']}, plain decoding gives {d['plain']} (margin {d['margin']})"
        )
    verdict = ("not identical", "red") if differences else "identical to plain decoding"
    out.print(Text.assemble(f"{len(rows)} ways of drafting, {sum(row['tokens'] for row in rows)} tokens: ", verdict))
