"""swiftk tune: searches the sublayers to skip over given prompts, and writes them to a card that skip= takes."""

from __future__ import annotations

import gzip
import json as jsonlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from ..api import LM
from ..draft.draft_spec import DraftSpec
from ..errors import InvalidArgument
from ..papers import self_sd
from .common import (
    JsonOption,
    Loading,
    ModelArgument,
    loads,
    make_table,
    open_model,
    out,
    print_json,
    work,
)

_FIELDS = ("prompt", "question", "text", "turns")
_IDLE = 4  # after so many turns over all texts without a score, a search has ended by itself
_OPTIMIZERS = ("auto", "swift", "self-sd")
_MEASURED = 4  # texts that the card is measured on
_WAYS = {"plain": "plain", "before": "uniform set", "after": "found set", "default": "default"}


@dataclass(slots=True)
class Found:
    """The best set so far; matchness is the share of its drafted tokens that were right."""

    skip: DraftSpec
    matchness: float = 0.0
    steps: int = 0
    seconds: float = 0.0
    notes: dict[str, Any] = field(default_factory=dict)


@loads(without=("draft_weights", "draft_memory", "draft_vocab", "drafter", "drafter_pack"))
def command(
    model: ModelArgument,
    data: Annotated[Path, typer.Option(help="Prompts: one per line, as text or JSON; may be .gz.")],
    card: Annotated[Path, typer.Option("--out", "-o", help="File to write (a card), for --skip.")],
    optimizer: Annotated[str, typer.Option(help="Search method: auto, swift or self-sd.")] = "auto",
    steps: Annotated[int, typer.Option(min=1, help="Maximum number of skip sets to try.")] = 200,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of prompts to use.")] = 16,
    new_tokens: Annotated[int, typer.Option("--new-tokens", min=8, help="Tokens to generate for each prompt.")] = 128,
    json: JsonOption = False,
    *,
    loading: Loading,
) -> None:
    """Search offline which layers drafts should skip. Ctrl-C keeps the best set so far."""
    if optimizer not in _OPTIMIZERS:
        raise InvalidArgument(f"[tune] --optimizer {optimizer}, want one of {', '.join(_OPTIMIZERS)}")
    if not card.parent.is_dir():
        raise InvalidArgument(f"[tune] --out {card}: {card.parent} is not a folder")
    texts = read_prompts(data)[:limit]
    with open_model(model, {**loading, "draft_weights": "own", "draft_vocab": "all"}) as lm:
        found = _search(lm, texts, optimizer, steps, new_tokens)
        name, layers = lm.folder.name, lm.config["num_layers"]
    with open_model(model, loading) as lm:  # as users load it, with what the default drafts
        rates = _rates(lm, texts[:_MEASURED], new_tokens, layers, found.skip)
        notes = {
            "model": name,
            "dtype": lm.model.dtype,
            "device": lm.model.device,
            "optimizer": optimizer,
            "steps": found.steps,
            "seconds": round(found.seconds, 1),
            "matchness": round(found.matchness, 4),
            **{f"tokens_per_second_{way}": round(rate, 2) for way, rate in rates.items()},
        }
    found.skip.save(card, **notes)
    if json:
        print_json({"card": str(card), "skip": found.skip.to_dict(), **notes, "verdict": verdict(rates)})
        return
    table = make_table("", "tokens/s", "of plain")
    for way, rate in rates.items():
        table.add_row(_WAYS[way], f"{rate:.1f}", f"{rate / rates['plain']:.2f}")
    out.print(table)
    out.print(f"{found.steps} steps, {found.seconds:.0f} s; skips {found.skip}\nwritten to {card}: skip={str(card)!r}")
    out.print(verdict(rates))


def verdict(rates: dict[str, float]) -> str:
    """Whether the card is worth using, and what to do where it is not."""
    card, plain, default = (rates[way] for way in ("after", "plain", "default"))
    best = "the default is faster" if default > plain else "plain decoding is"
    by = f"{card / plain:.2f}x plain decoding, {card / default:.2f}x the default"
    if card >= max(plain, default):
        return f"the card wins: {by}"
    if card < plain:
        return f"the card loses: {by}. Do not use it: {best} here. Models of more layers have more to skip."
    return f"the card loses against the default: {by}. Leave --skip out, unless there is no memory for a few-bit copy."


def _search(lm: LM, texts: list[str], optimizer: str, steps: int, new_tokens: int) -> Found:
    found = Found(DraftSpec.uniform(lm.config["num_layers"]))
    searching = _offline if optimizer == "self-sd" else _online
    with work(f"searching ({optimizer})", steps) as progress:
        try:
            for _ in searching(lm, texts, optimizer, steps, new_tokens, found):
                progress(found.steps, steps)
        except KeyboardInterrupt:
            out.print("interrupted: writing the best set so far", style="yellow")
    found.seconds = progress.seconds
    return found


def _rates(lm: LM, texts: list[str], tokens: int, layers: int, skip: DraftSpec) -> dict[str, float]:
    """Tokens per second after the first one of each text, by how it is decoded. The ways take turns, text by text, so
    that all see the same machine; the first text's first turn warms up."""
    ways: dict[str, dict[str, Any]] = {
        "plain": {"speculate": False},
        "before": {"skip": DraftSpec.uniform(layers), "speculate": "always"},
        "after": {"skip": skip, "speculate": "always"},
        "default": {},
    }
    generated, seconds = dict.fromkeys(ways, 0), dict.fromkeys(ways, 0.0)
    with work("measuring", len(ways) * (len(texts) + 1)) as progress:
        for turn, text in enumerate([texts[0], *texts]):
            for way, how in ways.items():
                asked = {"max_new_tokens": tokens, "temperature": 0.0, "ignore_eos": True, "recall": False, **how}
                s = lm.generate(text, **asked).stats
                generated[way] += (s.generated_tokens - 1) * (turn > 0)
                seconds[way] += (s.total_seconds - s.time_to_first_token) * (turn > 0)
                progress.advance()
    return {way: generated[way] / max(seconds[way], 1e-9) for way in ways}


def read_prompts(path: Path) -> list[str]:
    """Prompts: the lines of a text file, or of JSON lines their field prompt, question, text or turns (its first)."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            lines = [line.strip() for line in file if line.strip()]
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"[tune] --data {path}: {getattr(error, 'strerror', None) or error}") from None
    if not lines:
        raise InvalidArgument(f"[tune] --data {path} has no prompt")
    if ".jsonl" not in path.suffixes and not lines[0].startswith("{"):
        return lines
    return [_prompt(path, number, line) for number, line in enumerate(lines, 1)]


def _prompt(path: Path, number: int, line: str) -> str:
    try:
        value = jsonlib.loads(line)
    except ValueError as error:
        raise InvalidArgument(f"[tune] {path} line {number} is not JSON: {error}") from None
    for name in _FIELDS:
        text = value.get(name) if isinstance(value, dict) else None
        text = text[0] if isinstance(text, list) and text else text
        if isinstance(text, str) and text:
            return text
    raise InvalidArgument(f"[tune] {path} line {number} has none of the fields {', '.join(_FIELDS)}")


def _offline(lm: LM, texts: list[str], optimizer: str, steps: int, tokens: int, found: Found) -> Iterator[None]:
    for candidate in self_sd.search(lm, texts, steps, min(tokens, 32)):
        found.steps += 1
        if candidate.kept:
            found.skip, found.matchness = candidate.skip, candidate.matchness
        yield


def _online(lm: LM, texts: list[str], optimizer: str, steps: int, tokens: int, found: Found) -> Iterator[None]:
    """The optimizer as it runs in generate(), text after text, until it has scored enough; SWIFT by its own schedule,
    since here the time is for searching."""
    lm.forget()
    asked = {"optimizer": optimizer, "drafter": "plan", "temperature": 0.0, "ignore_eos": True}
    if optimizer == "swift":
        asked |= {"swift": {"opt_interval": 1, "max_steps": steps}, "speculate": "always"}
    idle = 0  # turns in which nothing was scored: time for a score may have to be earned over several
    while idle < _IDLE:
        before = found.steps
        for text in texts:
            trace = lm.generate(text, max_new_tokens=tokens, **asked).trace
            found.steps = sum(not candidate.kept or optimizer == "swift" for candidate in trace.candidates)
            for candidate in trace.candidates:
                if candidate.kept:
                    found.skip, found.matchness = candidate.skip, candidate.matchness
            yield
            if found.steps >= steps:
                return
        idle = idle + 1 if found.steps == before else 0
