"""What each exit of a model is worth, without a clock: its loss on text that it has not seen, how often it gets the
model's own next token, and the share of its drafts that are accepted. Nothing here depends on the machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from swiftk import LM, DraftSpec, _core

from ..harness import Study
from ..lanes import GREEDY, chain, fixed
from ..plots import lines
from ..texts import Prompts
from . import SEVERAL

STREAMS = ("gsm8k", "humaneval", "summarization")  # test problems, code, news: none of it is trained on here
ROWS = 63  # of a score
TEXT, PROMPT = 512, 256  # tokens at most: of a text that is given, and of a turn
DRAFT = 4  # of a chain
COLUMNS = {
    "layers run": "layer",
    "held-out loss": "loss:.3f",
    "agrees": "agrees:.0%",
    "drafts accepted": "accepted:.0%",
}
COLUMNS |= {"tokens per pass": "M:.2f"}
NOTES = (
    "loss in nats a token, of text that is given; agrees: all tokens before being the model's own, its next one is "
    f"proposed; drafts are greedy chains of {DRAFT}"
)


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
                session.score(_core.DraftSpec([], [], layer), window=ROWS, end=end)
                sums[layer - 1] += cross_entropy(session.logits, targets)
    return sums / tokens


def cross_entropy(logits: np.ndarray, targets: list[int]) -> float:
    """Summed over rows, in float64."""
    x = logits.astype(np.float64)
    top = x.max(1)
    return float((np.log(np.exp(x - top[:, None]).sum(1)) + top - x[np.arange(len(x)), targets]).sum())


def measure(lm: LM, texts: list[list[int]], prompts: list[list[int]], tokens: int) -> list[dict[str, Any]]:
    """A row of each exit: its loss on the texts; `tokens` are generated after each prompt."""
    layers, options = lm.config["num_layers"], {"max_new_tokens": tokens, "ignore_eos": True, **GREEDY}
    loss, agrees = losses(lm, texts), np.zeros(layers)
    for prompt in prompts:
        text = lm.generate(prompt, speculate=False, **options).tokens
        lm.session.prefill(np.int32([*prompt, *text[:-1]]))
        agrees += (lm.session.score_exits(list(range(1, layers + 1)), tokens - 1)[1] == 0).mean(1)
    rows = []
    for layer in range(1, layers + 1):
        row = {
            "model": lm.folder.name,
            "layer": layer,
            "loss": loss[layer - 1],
            "agrees": agrees[layer - 1] / len(prompts),
        }
        if layer < layers:
            way = fixed("", DraftSpec.early_exit(layer), chain(DRAFT)).options
            stats = [lm.generate(prompt, **options, **way).stats for prompt in prompts]
            row["accepted"] = sum(s.num_accepted_draft_tokens for s in stats) / sum(s.num_draft_tokens for s in stats)
            row["M"] = sum(s.generated_tokens - 1 for s in stats) / sum(s.num_steps for s in stats)
        rows.append({key: float(v) if isinstance(v, np.floating) else v for key, v in row.items()})
    return rows


def main() -> None:
    study = Study("layerskip/exits", __doc__, texts=4, tokens=64, streams=STREAMS, options=SEVERAL)
    models = [study.open(folder).plain for folder in study.given_models] or [study.small]
    for lm in models:
        texts, prompts = (
            [one.prompt for name in study.streams for one in some.stream(name, study.count, most)]
            for some, most in ((Prompts(lm.folder, chat=False), TEXT), (study.prompts_of(lm.folder), PROMPT))
        )
        study.rows.extend(measure(lm, texts, prompts, study.tokens))
    told = {"loss": "held-out loss, nats a token", "agrees": "the model's own tokens that the exit proposes"}
    panels = [lines(title, key, "layer", "model", None, "layers run") for key, title in told.items()]
    study.finish({"model": "model", **COLUMNS}, NOTES, panels=panels, width=10)


if __name__ == "__main__":
    main()
