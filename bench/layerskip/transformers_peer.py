"""Early exits beside transformers' `assistant_early_exit`: the same weights, exit layer and draft length, greedy."""

from __future__ import annotations

from functools import partial

from ..decoded import folder_of
from ..harness import Study
from ..plots import bars
from ..process import Peer, equal, ours, over, side_by_side, summed

CHAIN = 4  # tokens that each round drafts
NOTES = (
    f"tokens/s: after the first block of each text. Drafts are chains of {CHAIN} from an exit at 3/16 of the layers. "
    "by time: swiftk's own choice of length and tree for the same exit. own plain text, swiftk's: number of texts that "
    "equal these, token by token."
)


def main() -> None:
    study = Study("layerskip/transformers_peer", __doc__, texts=4, tokens=64, streams=("gsm8k",))
    layer = max(1, round(3 / 16 * study.layers))
    mine, early = ours(study, {"draft_weights": "own"}), {"assistant_early_exit": layer}
    theirs = partial(Peer, "transformers", model=str(folder_of(study.folder)))
    peers = {
        "swiftk, plain": partial(mine, options={"speculate": False}),
        "swiftk, early exit": partial(mine, options={**early, "speculate": "always"}, chain=CHAIN),
        "swiftk, early exit, by time": partial(mine, options=early),
        "transformers, plain": theirs,
        "transformers, early exit": partial(theirs, exit_layer=layer, chain=CHAIN),
    }
    found, notes = side_by_side(study, peers)
    for name, texts in found.items():
        own = found[f"{name.partition(',')[0]}, plain"]
        row = {"way": name, **summed(texts), "own": equal(texts, own), "equal": equal(texts, found["swiftk, plain"])}
        study.rows.append({**row, **over(texts, own)})
    columns = {
        "": "way",
        "tokens/s": "rate:.1f",
        "over own plain": "over:.2f",
        "±": "error:.2f",
        "M": "M:.2f",
        "alpha": "alpha:.0%",
    }
    columns |= {"peak memory, GB": "memory_GB:.2f", "own plain text": "own", "swiftk's": "equal"}
    panels = [bars("tokens/s", "rate"), bars("peak memory, GB", "memory_GB")]
    study.finish(columns, NOTES, *notes, panels=panels, height=2.6, sharey=True)


if __name__ == "__main__":
    main()
