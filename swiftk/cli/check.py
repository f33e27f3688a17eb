"""swiftk check: proves on this machine that drafts change nothing, by decoding every text plainly and in every way that
drafts, alone and beside others."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.text import Text

from ..draft.draft_spec import DraftSpec
from ..draft.sources import DRAFTERS
from ..errors import InvalidArgument
from .common import (
    PROMPTS,
    JsonOption,
    Loading,
    ModelArgument,
    err,
    first_difference,
    loads,
    make_table,
    open_model,
    out,
    print_json,
    work,
)
from .progress import Work, duration

QUICK = 16  # tokens of a text with --quick
_WAY = 1.3  # time of a way, alone and together, in that of the same texts decoded plainly (the demo, two cores)
_SAMPLERS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 0.9, "top_p": 0.95, "seed": 1234},
    "penalised": {
        **{"temperature": 1.0, "top_k": 40, "min_p": 0.02, "seed": 99},
        **{"repetition_penalty": 1.2, "frequency_penalty": 0.2, "presence_penalty": 0.1, "logit_bias": {0: -1.0}},
    },
}


class Asked(NamedTuple):
    """One text."""

    prompt: Any
    sampler: str
    options: dict[str, Any]


@loads()
def command(
    model: ModelArgument,
    prompts: Annotated[Path | None, typer.Option(help="File with one prompt per line.")] = None,
    tokens: Annotated[int, typer.Option("--tokens", "-n", min=2, help="Tokens to generate for each prompt.")] = 32,
    quick: Annotated[bool, typer.Option("--quick", help=f"First prompt only, and {QUICK} tokens.")] = False,
    json: JsonOption = False,
    *,
    loading: Loading,
) -> None:
    """Check that drafting changes no token. Exit status 1: a text differs."""
    lm = open_model(model, loading)
    every = _prompts(lm, prompts)
    chosen, length = (every[:1], min(tokens, QUICK)) if quick else (every, tokens)
    texts = [
        Asked(prompt, sampler, {**how, "max_new_tokens": length, "ignore_eos": True})
        for sampler, how in _SAMPLERS.items()
        for prompt in chosen
    ]
    found = ways(lm)
    part = len(chosen) * length / (len(every) * tokens)
    if quick:
        said = f"1 of {len(every)} prompts, {length} of {tokens} tokens each"
        err.print(f"--quick: {part:.0%} of the whole check ({said}), in all {len(found)} ways of drafting")
    with work("checking", len(texts) * (2 * len(found) + 1)) as progress:
        rows, differences = _compare(lm, texts, found, progress)
    _report(texts, rows, differences, {"part": part, "seconds": progress.seconds}, json)
    if differences:
        raise typer.Exit(1)


def _compare(
    lm: Any, texts: list[Asked], found: dict[str, dict[str, Any]], progress: Work
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(what each way brought, what differs from plain decoding)"""

    def decoded(asked: list[Asked], **more: Any) -> list[Any]:
        each = [one.options for one in asked]
        results = lm.generate_many([one.prompt for one in asked], each=each, **more)
        progress.advance(len(asked))
        return results

    plain = [decoded([one], speculate=False, logprobs=2)[0] for one in texts]
    err.print(f"checking {progress.total} texts: about {duration(progress.seconds * (1 + _WAY * len(found)))}")
    rows, differences = [], []
    for name, how in found.items():
        alone = [decoded([one], **how)[0] for one in texts]
        together = decoded(texts, **how)
        both = [("alone", alone), ("together", together)]
        wrong = [d for company, results in both for d in _differences(texts, plain, results, name, company)]
        differences += wrong
        rows.append(
            {
                "way": name,
                "different": len(wrong),
                "tokens": sum(len(r.tokens) for r in alone + together),
                "drafted": sum(sum(r.drafted) for r in alone + together),
            }
        )
    return rows, differences


def ways(lm: Any) -> dict[str, dict[str, Any]]:
    """Ways of drafting by name, as options of generate(): the default as it is, and all others in every round."""
    layers = lm.config["num_layers"]
    always: dict[str, dict[str, Any]] = {
        "default, always": {},
        **{f"{name} copy alone": {"skip": name} for name in lm.model.copies},
        **({"trimmed head alone": {"skip": DraftSpec(trimmed=True)}} if lm.model.draft_tokens else {}),
        **{f"{name} alone": {"drafter": name} for name, one in DRAFTERS.items() if not one.plan and name != "corpus"},
        **{f"{kind} alone": {"drafter": kind} for kind in lm.model.drafters},
        **{f"skips {name}": {"skip": skip} for name, skip in skip_sets(layers).items()},
        "skips every second layer, one threshold": {"skip": DraftSpec.uniform(layers), "gate": 0.0},
        "swift's search": {"optimizer": "swift"},
    }
    return {"default": {}, **{name: {**how, "speculate": "always"} for name, how in always.items()}}


def skip_sets(n_layers: int) -> dict[str, DraftSpec]:
    """Drafts from harmless to hopeless: correctness may depend on none of them."""
    shuffled = random.Random(n_layers)
    pick = [i for i in range(n_layers) if shuffled.random() < 0.6]
    other = [i for i in range(n_layers) if shuffled.random() < 0.6]
    return {
        "every second layer": DraftSpec.uniform(n_layers),
        "random sublayers": DraftSpec(attn=tuple(pick), mlp=tuple(other)),
        "all after half": DraftSpec.early_exit(max(1, n_layers // 2)),
        "everything": DraftSpec.layers(range(n_layers)),
        "nothing": DraftSpec(),
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


def _differences(texts: list[Asked], plain: list[Any], drafted: list[Any], way: str, company: str) -> list[Any]:
    found = []
    for asked, p, d in zip(texts, plain, drafted, strict=True):
        at = first_difference(p.tokens, d.tokens)
        if at is None:
            continue
        best = [logprob for _, logprob in p.logprobs[at].top] if at < len(p.logprobs) else []
        found.append(
            {
                "way": way,
                "company": company,
                "sampler": asked.sampler,
                "prompt": asked.prompt,
                "at": at,
                "plain": p.tokens[at] if at < len(p.tokens) else None,
                "drafted": d.tokens[at] if at < len(d.tokens) else None,
                "margin": best[0] - best[1] if len(best) > 1 else None,
            }
        )
    return found


def _report(
    texts: list[Asked],
    rows: list[dict[str, Any]],
    differences: list[dict[str, Any]],
    effort: dict[str, float],
    json: bool,
) -> None:
    """effort: the part of the whole check that this was, and its seconds."""
    tokens, drafted = (sum(row[name] for row in rows) for name in ("tokens", "drafted"))
    if json:
        facts = {"identical": not differences, "texts": len(texts), "tokens": tokens, "drafted": drafted, **effort}
        print_json({**facts, "ways": rows, "differences": differences})
        return
    table = make_table("what drafts", "tokens", "from drafts", "result")
    for row in rows:
        result = Text(f"{row['different']} differ", style="red") if row["different"] else "identical"
        table.add_row(row["way"], str(row["tokens"]), str(row["drafted"]), result)
    out.print(table)
    for d in differences[:8]:
        out.print(
            f"{d['way']}, {d['company']}, {d['sampler']}, prompt {d['prompt']!r}: token {d['at']} is {d['drafted']}, "
            f"plain decoding gives {d['plain']} (margin {d['margin']})"
        )
    verdict = (f"{len(differences)} texts differ", "red") if differences else "all identical to plain decoding"
    said = (
        f"{len(texts)} texts ({', '.join(_SAMPLERS)}) in {len(rows)} ways, each text alone and all together, in "
        f"{duration(effort['seconds'])}: {tokens} tokens, {drafted} of them from drafts: "
    )
    out.print(Text.assemble(said, verdict))
