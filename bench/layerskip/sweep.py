"""LayerSkip's two numbers, exit layer and draft length, by speed and acceptance; and exits chosen while texts are
written.

Drafts are chains of a fixed length in every round, as in the paper; beside them length and tree by time. Chosen: by
time, from one pass for all exits (DEL), and by the search of the default without a copy; both begin with nothing
learned.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from swiftk import DraftSpec
from swiftk.files.model_files import open_model_files

from ..harness import Study
from ..lanes import ABOUT_COLUMNS, AUTO, COLUMNS, Pair, Way, by_time, chain, fixed
from ..plots import heat
from . import SEVERAL

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
    study = Study("layerskip/sweep", __doc__, texts=2, tokens=48, streams=("english", "gsm8k"), options=SEVERAL)
    lengths, shares = (LENGTHS[1::2], EXITS[2::2]) if study.quick else (LENGTHS, EXITS)
    folders = {folder.name: folder for folder in study.given_models or [study.folder]}
    works: dict[str, tuple[str, int | None]] = {}
    for model, folder in folders.items():
        depth = open_model_files(folder).config["num_hidden_layers"]
        layers = [max(1, round(share * depth)) for share in shares]
        works |= {f"{model}, exit {layer}": (model, layer) for layer in layers} | {f"{model}, chosen": (model, None)}
    for model, parts in groupby(study.parts(works), key=lambda part: part[1][0]):
        models, prompts = study.open(folders[model]), study.prompts_of(folders[model])
        texts = [text for name in study.streams for text in prompts.stream(name, study.count)]
        for part, (_, layer) in parts:
            models.forget()
            skip = DraftSpec.early_exit(layer or 0)
            given = [*(fixed(f"d = {n}", skip, chain(n)) for n in lengths), by_time("by time", skip)]
            ways = given if layer else [Way("exit by time", {"assistant_early_exit": "auto"}), AUTO]
            pairs = study.measure(texts, ways, models)
            for way, row in study.add(part, pairs, layer=layer, model=model).items():
                row["exits"] = None if layer else exits([pair for pair in pairs if pair.way == way])
        models.close()
    columns = {"model, exit": "part", "draft": "way", **COLUMNS, "exits": "exits"}
    panels = [heat(f"{model}: speed-up over plain", across="way", down="layer", model=model) for model in folders]
    panels += [
        heat(f"{model}: share of draft tokens accepted", "alpha", across="way", down="layer", between=None, model=model)
        for model in folders
    ]
    study.finish(columns, ABOUT_COLUMNS, NOTES, panels=panels, width=4.5 * len(panels))


if __name__ == "__main__":
    main()
