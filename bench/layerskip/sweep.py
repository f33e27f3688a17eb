"""LayerSkip's two numbers, exit layer and draft length, by speed and acceptance; and exits chosen while texts are
written.

Drafts are chains of a fixed length in every round, as in the paper; beside them length and tree by time. Chosen: by
time, from one pass for all exits (DEL), and by the search of the default without a copy; both begin with nothing
learned.
"""

from __future__ import annotations

from collections import Counter

from swiftk import DraftSpec

from ..harness import Study
from ..lanes import ABOUT_COLUMNS, AUTO, COLUMNS, Pair, Way, by_time, chain, fixed
from ..plots import heat

LENGTHS = (1, 2, 4, 8)
EXITS = (1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2)  # of the layers
NOTES = (
    "exits: of what was chosen, those that drafted longest, with their share of drafted rounds; 0: sets that also thin"
)


def exits(pairs: list[Pair]) -> str:
    sets = [turn.skip for pair in pairs for turn in pair.result.trace.rounds if turn.skip is not None]
    counts = Counter(0 if skip.attn or skip.mlp else skip.exit_layer or 0 for skip in sets)
    return ", ".join(f"{layer} {n / counts.total():.0%}" for layer, n in counts.most_common(3))


def main() -> None:
    study = Study("layerskip/sweep", __doc__, tokens=48, streams=("english", "gsm8k"))
    texts = [text for name in study.streams for text in study.texts(name)]
    lengths, shares = (LENGTHS[1::2], EXITS[2::2]) if study.quick else (LENGTHS, EXITS)
    layers = [max(1, round(share * study.layers)) for share in shares]
    for part, layer in study.parts({**{f"exit {layer}": layer for layer in layers}, "chosen": None}):
        skip = DraftSpec.early_exit(layer or 0)
        ways = [*(fixed(f"d = {n}", skip, chain(n)) for n in lengths), by_time("by time", skip)]
        pairs = study.measure(texts, ways if layer else [Way("exit by time", {"assistant_early_exit": "auto"}), AUTO])
        for way, row in study.add(part, pairs, layer=layer).items():
            row["exits"] = None if layer else exits([pair for pair in pairs if pair.way == way])
    columns = {"exit": "part", "draft": "way", **COLUMNS, "exits": "exits"}
    panels = [heat("speed-up over plain decoding", across="way", down="layer")]
    panels.append(heat("share of draft tokens accepted", "alpha", across="way", down="layer", between=None))
    study.finish(columns, ABOUT_COLUMNS, NOTES, panels=panels)


if __name__ == "__main__":
    main()
