"""swiftk demo: the bundled model, drafted tokens in colour, and a table against plain decoding of the same text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from .. import demo_drafter, demo_model
from ..files.grow import grown
from .common import (
    PROMPTS,
    Loading,
    first_difference,
    loads,
    make_table,
    open_model,
    out,
    why_off,
    work,
)
from .terminal import Screen


@loads(without=("drafter", "drafter_pack"))
def command(
    grow: Annotated[
        int,
        typer.Option(
            "--grow",
            min=1,
            metavar="K",
            help="Repeat the toy's weights until it is K times as wide: the same text at a real model's cost.",
        ),
    ] = 1,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", "-n", min=2, help="Tokens to generate for each prompt.")
    ] = 96,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Same seed, same text.")] = 0,
    *,
    loading: Loading,
) -> None:
    """Watch speculative decoding at work on the bundled toy model."""
    model, drafter = (str(f if grow == 1 else grown(f, grow, _growing)) for f in (demo_model(), demo_drafter()))
    lm = open_model(model, {**loading, "drafter": [drafter]})
    out.print(
        f"Three texts with drafting, then without: the same tokens in less time. "
        f"{lm.model.config['num_layers']} layers, {lm.model.weight_bytes / 1e6:.0f} MB of {lm.model.dtype} weights, "
        f"{lm.model.isa} kernels, {lm.model.threads} threads. This is a toy model: its text makes little sense."
    )
    plan = "".join(f"an {name} copy of the weights" for name in lm.model.copies) or "the model with sublayers skipped"
    plan += f", a head of {lm.model.drafter_bytes / 1e6:.0f} MB that was trained for it"
    rest = f" tokens were drafted by {plan}, or by repetitions in the text, and verified by the model.\n"
    out.print(Text.assemble(("Green", "green"), rest))
    options = {"max_new_tokens": max_new_tokens, "temperature": temperature, "seed": seed, "ignore_eos": True}
    table = make_table("prompt", "plain tok/s", "swiftk tok/s", "ratio", "tok/step", "accepted", "output")
    different = []
    for name, prompt in PROMPTS.items():
        drafted = _show(lm, name, prompt, options)
        plain = lm.generate(prompt, speculate=False, **options)
        at = first_difference(plain.tokens, drafted.tokens)
        different += [] if at is None else [f"{name} differs at token {at}"]
        s, p = drafted.stats, plain.stats
        table.add_row(
            name,
            f"{p.tokens_per_second:.1f}",
            f"{s.tokens_per_second:.1f}",
            f"{s.tokens_per_second / p.tokens_per_second:.2f}x",
            f"{s.mean_acceptance_length:.2f}",
            f"{s.draft_acceptance_rate:.0%}",
            "identical" if at is None else "different",
        )
        if s.reason_off:
            out.print(f"{why_off(s.speculation, s.reason_off)}\n", style="dim")
    out.print(table)
    if different:
        out.print(f"{', '.join(different)}: please report this.", style="red")
        raise typer.Exit(1)
    out.print(f"All {len(PROMPTS)} texts are identical, token for token, with and without drafts.")


def _show(lm: Any, name: str, prompt: str, options: dict[str, Any]) -> Any:
    out.print(name, style="bold")
    screen = Screen()
    screen.write(prompt, "dim")
    with lm.generate(prompt, stream=True, **options) as stream:
        for event in stream:
            screen.write(event.text, "green" if event.drafted else "")
        screen.write("\n\n")
        return stream.result


@contextmanager
def _growing(folder: Path) -> Iterator[Callable[[int, int], None]]:
    with work(f"growing to {folder}", unit_bytes=True) as report:
        yield report
