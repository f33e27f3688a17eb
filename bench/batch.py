"""Many texts at a time: total tokens per second of an engine with B of them, plain and by default, beside one text, and
of llama.cpp where it is installed.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from .as_gguf import Missing
from .harness import Study
from .lanes import GREEDY, SAMPLED, in_turn
from .many import CONTEXT, Lane, Llama, Many
from .plots import lines
from .process import PYTHON_LLAMA, Ended, llama
from .texts import STREAMS

SIZES = (1, 2, 4, 8, 16)
SAMPLINGS = {"greedy": GREEDY, "T .6": SAMPLED}
PROMPT = 200  # tokens of a prompt, at most
COLUMNS = {"texts": "part", "way": "way", "tokens/s": "rate:.1f", "over one": "over_one:.2f", "over plain": "over:.3f"}
COLUMNS |= {"M": "M:.2f", "equal texts": "equal"}
NOTES = (
    "B texts begin together and do not end; their prompts come from all streams in turn. Time counts from the last "
    "one's first token. one: a single text, plain. M: tokens per text and round. Each way has an engine of its own "
    "(llama.cpp a process, greedy), and they take turns every few rounds. equal texts: equal to swiftk's plain ones."
)


def rows(study: Study, prompts: list[list[int]], sampling: dict[str, Any], peers: list[str]) -> list[dict[str, Any]]:
    """One for each lane, over the same texts."""
    model, most = study.lm.model, study.tokens
    with ExitStack() as stack:
        lanes: dict[str, Lane] = {
            "one": Many(model, "off", prompts[:1], most, **sampling),
            "plain": Many(model, "off", prompts, most, **sampling),
            "default": Many(model, "planned", prompts, most, **sampling),
        }
        for dtype in peers:
            peer = stack.enter_context(llama(study, dtype, threads=study.threads, context=CONTEXT, texts=len(prompts)))
            lanes[f"llama.cpp, {dtype}"] = Llama(peer, prompts, most)
        in_turn(lanes.values())
    plain, made = lanes["plain"], []
    for name, lane in lanes.items():
        same = sum(a[: len(b)] == b[: len(a)] for a, b in zip(lane.texts, plain.texts))
        row = {"way": name, "rate": lane.rate, "over_one": lane.rate / lanes["one"].rate, "M": lane.length}
        made.append({**row, "over": lane.rate / plain.rate, "equal": f"{same} of {len(lane.texts)}"})
    return made


def main() -> None:
    study = Study("batch", __doc__, texts=2, tokens=64, streams=STREAMS, loading={}, options=PYTHON_LLAMA)
    texts = [text for some in zip(*(study.texts(name, most=PROMPT) for name in study.streams)) for text in some]
    prompts, peers, notes = [text.prompt for text in texts], ["f16", "q8_0", "q4_0"], [NOTES]
    sizes = [size for size in SIZES if size <= len(prompts)]
    for part, (size, mode) in study.parts({f"{n}, {mode}": (n, mode) for mode in SAMPLINGS for n in sizes}):
        asked = study, prompts[:size], SAMPLINGS[mode]
        try:
            found = rows(*asked, peers if mode == "greedy" else [])
        except (Missing, Ended) as error:
            notes.append(f"left out: llama.cpp ({error})")
            peers, found = [], rows(*asked, [])
        of = {"part": part, "size": size, "mode": mode}
        study.rows.extend({**of, "told": f"{row['way']}, {mode}", **row} for row in found)
    at = {"over": "size", "label": "texts at a time"}
    panels = [lines("greedy: tokens/s over one text, plain", "over_one", by="way", **at, plain=True, mode="greedy")]
    panels.append(lines("default over plain", "over", by="told", **at, even=1.0, way="default"))
    study.finish(COLUMNS, *notes, panels=panels)


if __name__ == "__main__":
    main()
