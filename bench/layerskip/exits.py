"""What each exit of a model is worth, without a clock: its loss on text that it has not seen, how often it guesses the
model's own next token, and the share of its drafts that are accepted. Nothing here depends on the machine.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import harness
import swiftk
from demo import demo_model
from plots import available, picture
from streams import stream
from swiftk import LM
from tables import Table

STREAMS = ("gsm8k", "humaneval", "summarization")  # test problems, code, news: none of it is trained on here
ROWS = 63  # of a score
TEXT, PROMPT = 512, 256  # tokens at most
DRAFT = 4  # of a chain


@dataclass(frozen=True, slots=True)
class Exit:
    """The head behind the first `layer` layers."""

    layer: int
    loss: float  # nats a token, of text that is given
    agreement: float  # share of the model's own greedy tokens that it guesses, given all before
    accepted: float | None  # share of drafted tokens, in chains of DRAFT; None: of the whole model
    length: float | None  # tokens per target pass of such drafts

    @classmethod
    def row(cls) -> list[str]:
        return ["layers run", "held-out loss", "agrees", "drafts accepted", "tokens per pass"]

    def cells(self) -> list[str]:
        of_drafts = ["", ""] if self.accepted is None else [f"{self.accepted:.0%}", f"{self.length:.2f}"]
        return [str(self.layer), f"{self.loss:.3f}", f"{self.agreement:.0%}", *of_drafts]


def losses(lm: LM, texts: list[list[int]]) -> np.ndarray:
    """[L] of every exit, by its logits on the texts, ROWS tokens at a time."""
    session, layers = lm.session, lm.config["num_layers"]
    session.set_sampling()
    sums, tokens = np.zeros(layers), 0
    for text in texts:
        session.prefill(text)
        for end in range(ROWS, len(text), ROWS):
            targets = text[end - ROWS + 1 : end + 1]
            tokens += ROWS
            for layer in range(1, layers + 1):
                session.score([], [], layer, window=ROWS, end=end)
                sums[layer - 1] += cross_entropy(session.logits, targets)
    return sums / tokens


def cross_entropy(logits: np.ndarray, targets: list[int]) -> float:
    """Summed over rows, in float64."""
    x = logits.astype(np.float64)
    top = x.max(1)
    return float((np.log(np.exp(x - top[:, None]).sum(1)) + top - x[np.arange(len(x)), targets]).sum())


def agreement(lm: LM, prompts: list[list[int]], tokens: int) -> np.ndarray:
    """[L]"""
    exits = list(range(1, lm.config["num_layers"] + 1))
    right = np.zeros(len(exits))
    for prompt in prompts:
        text = lm.generate(prompt, max_new_tokens=tokens, ignore_eos=True, temperature=0, speculate=False).tokens
        lm.session.prefill(np.int32([*prompt, *text[:-1]]))
        right += (lm.session.score_exits(exits, tokens - 1)[1] == 0).mean(1)
    return right / len(prompts)


def drafts(lm: LM, prompts: list[list[int]], tokens: int, layer: int) -> tuple[float, float]:
    """(share of drafted tokens accepted, tokens per target pass)"""
    way = harness.early_exit("", layer, harness.rule(DRAFT)).options
    stats = [lm.generate(p, max_new_tokens=tokens, ignore_eos=True, temperature=0, **way).stats for p in prompts]
    drafted, accepted = (sum(getattr(s, n) for s in stats) for n in ("num_draft_tokens", "num_accepted_draft_tokens"))
    return accepted / max(1, drafted), sum(s.generated_tokens - 1 for s in stats) / sum(s.num_steps for s in stats)


def measure(lm: LM, count: int, tokens: int) -> list[Exit]:
    """On the first `count` texts of each stream; `tokens` are generated behind each."""
    texts = [[*one.turns[0][:TEXT]] for name in STREAMS for one in stream(name, lm.folder, count)]
    prompts = [text[:PROMPT] for text in texts]
    loss, agrees = losses(lm, texts), agreement(lm, prompts, tokens)
    layers = lm.config["num_layers"]
    found = []
    for layer in range(1, layers + 1):
        accepted, length = drafts(lm, prompts, tokens, layer) if layer < layers else (None, None)
        found.append(Exit(layer, float(loss[layer - 1]), float(agrees[layer - 1]), accepted, length))
    return found


def table(exits: list[Exit]) -> Table:
    found = Table(Exit.row())
    for one in exits:
        found.add(*one.cells())
    return found


def paint(models: dict[str, list[Exit]], path: Path) -> None:
    with picture(path, panels=2, width=10) as (left, right):
        for name, exits in models.items():
            layers = [one.layer for one in exits]
            left.plot(layers, [one.loss for one in exits], marker="o", markersize=3, label=name)
            right.plot(layers, [one.agreement for one in exits], marker="o", markersize=3, label=name)
        left.set_title("held-out loss by exit, nats a token")
        right.set_title("share of the model's own tokens that the exit guesses")
        for axis in (left, right):
            axis.set_xlabel("layers run")
            axis.legend()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, nargs="+", default=[demo_model()], help="default: the bundled model")
    parser.add_argument("--instances", type=int, default=4, help="texts of each stream; default 4")
    parser.add_argument("--tokens", type=int, default=64, help="generated behind each; default 64")
    parser.add_argument("--out", type=Path, default=harness.BENCH / "results" / harness.FOLDER, help="of the results")
    given = parser.parse_args()
    models = {m.resolve().name: measure(swiftk.load(m), given.instances, given.tokens) for m in given.model}
    note = (
        f"- {given.instances} texts each of {', '.join(STREAMS)}; greedy, {given.tokens} new tokens a text; drafts are "
        f"chains of {DRAFT}; agrees: all tokens before being the model's own"
    )
    text = "\n\n".join([*(f"{name}\n\n{table(exits).markdown()}" for name, exits in models.items()), note]) + "\n"
    print(text, end="")
    given.out.mkdir(parents=True, exist_ok=True)
    name = "-".join(["exits", *models])
    (given.out / f"{name}.md").write_text(text, encoding="utf-8")
    facts = {"note": note, "models": {name: [asdict(one) for one in exits] for name, exits in models.items()}}
    (given.out / f"{name}.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    if available():
        paint(models, given.out / f"{name}.png")


if __name__ == "__main__":
    main()
