"""swiftk beside llama.cpp and transformers: the same weights and held-out word problems, threads and number of tokens,
greedy. A peer that is not installed is named and left out.
"""

from __future__ import annotations

from functools import partial

from .decoded import folder_of
from .harness import Study
from .plots import bars
from .process import LOOKED_UP, PYTHON_LLAMA, Peer, equal, llama, ours, over, side_by_side, summed

NOTES = (
    "tokens/s: after the first token of each text. equal texts: equal to swiftk's plain decoding in bf16, token by "
    "token. lookup: it drafts two tokens by the prompt lookup of its Python package. peak memory: of the whole "
    "process, with weights, copies and libraries. Each engine runs in a process of its own, and they take turns text "
    "by text."
)


def main() -> None:
    study = Study("compare", __doc__, texts=12, tokens=128, streams=("gsm8k",), options=PYTHON_LLAMA)
    peers = {
        "swiftk, default": ours(study),
        "swiftk, plain": ours(study, {"draft_weights": "own"}, options={"speculate": False}),
        **{f"llama.cpp, {dtype}": partial(llama, study, dtype) for dtype in ("f16", "q8_0", "q4_0")},
        "llama.cpp, f16, lookup": partial(llama, study, "f16", lookup=LOOKED_UP),
        "transformers, bf16": partial(Peer, "transformers", model=str(folder_of(study.folder))),
    }
    found, notes = side_by_side(study, peers)
    reference = found["swiftk, plain"]
    for name, texts in found.items():
        study.rows.append({"way": name, **summed(texts), "equal": equal(texts, reference)})
        study.rows[-1] |= over(texts, reference)
    columns = {
        "": "way",
        "tokens/s": "rate:.1f",
        "over swiftk, plain": "over:.2f",
        "±": "error:.2f",
        "tokens a pass": "M:.2f",
    }
    columns |= {"peak memory, GB": "memory_GB:.2f", "equal texts": "equal"}
    panels = [bars("tokens/s", "rate"), bars("peak memory, GB", "memory_GB")]
    study.finish(columns, NOTES, *notes, panels=panels, height=2.6, sharey=True)


if __name__ == "__main__":
    main()
