"""LayerSkip's KVQ cache on against off: what verification saves by not running again what drafts ran exactly.

Both ways write the same text in the same rounds, side by side. Rows that no draft ran (the last token, siblings)
still read the first layers' weights, so where memory is the limit there is little to save.
"""

from __future__ import annotations

from swiftk import DraftSpec, TreeRule

from ..harness import Study
from ..lanes import ABOUT_COLUMNS, COLUMNS, chain, fixed
from ..plots import bars

SHAPES = {
    "chain of 4": chain(4),
    "chain of 12": chain(12),
    "tree of 16": TreeRule(confidence=0.0, max_draft=5, width=(3, 3, 3, 3)),
}
NOTES = (
    "rows x steps: share of a text's verification that did not run again; saved: what a target pass took less with the "
    "cache than without it, in plain steps; gain: tokens/s, on over off"
)


def main() -> None:
    study = Study("layerskip/kvq", __doc__, texts=2, tokens=48, streams=("english", "gsm8k"))
    texts = [text for name in study.streams for text in study.texts(name)]
    exits = [study.layers // 4, study.layers // 2]
    works = {f"exit {layer}, {name}": (layer, rule) for layer in exits for name, rule in SHAPES.items()}
    for part, (layer, rule) in study.parts(works):
        ways = [fixed(way, DraftSpec.early_exit(layer), rule, kvq=way == "on") for way in ("off", "on")]
        pairs = study.measure(texts, ways)
        off, on = study.add(part, pairs).values()
        for way, row in (("off", off), ("on", on)):
            stats = [pair.result.stats for pair in pairs if pair.way == way]
            rows = sum(s.num_tree_tokens + s.num_spec_steps for s in stats)
            row["reused"] = sum(s.num_reused_rows for s in stats)
            row["rows"] = rows
            row["row_shares"] = sum(s.reused_step_share * (s.num_tree_tokens + s.num_spec_steps) for s in stats) / rows
        on |= {"saved": off["v"] - on["v"], "gain": on["rate"] / off["rate"]}
    columns = {"drafts": "part", "KVQ": "way", **COLUMNS, "rows": "rows", "reused": "reused"}
    columns |= {"rows x steps": "row_shares:.0%", "saved": "saved:.3f", "gain": "gain:.3f"}
    panels = [bars("saved a round, in plain steps", "saved", "part"), bars("tokens/s, on over off", "gain", "part")]
    study.finish(columns, ABOUT_COLUMNS, NOTES, panels=panels, sharey=True)


if __name__ == "__main__":
    main()
