"""The same GGUF files in swiftk and in llama.cpp: SmolLM2 as it is published, and the toy as llama.cpp quantises it.

SmolLM2 answers chats of the 13 categories of Spec-Bench by its own template, Gemma 3 270M, which was not trained to
chat, goes on with the same questions. The toy solves word problems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from swiftk.text.tokenizer import Tokenizer

from .as_gguf import Missing, quantised
from .harness import Study
from .plots import bars
from .process import LOOKED_UP, PYTHON_LLAMA, Peer, equal, over, side_by_side_on, summed
from .published import MODELS
from .texts import CATEGORIES, Prompts, Text, lines

NOTES = (
    "Decoding is greedy, and tokens/s leaves out the first token of each text. The share of reads is tokens/s "
    "times the bytes of the weights, over the memory's read rate, which is probed before and after the texts. "
    "Texts are compared with swiftk's plain decoding of the same file. llama.cpp rounds activations as swiftk "
    "does, but sums in another order. The speed of a prompt is its number of tokens over the time to the first "
    "token, the best of three. The long prompt has 2,000 tokens, of the published models 4,096. Each engine runs in a "
    "process of its own, and they take turns text by text. The trimmed head, which drafts may read beside the whole "
    "one, has the tokens of other questions of the same kinds, and of how the model goes on with them. lookup: "
    "llama.cpp drafts two tokens by the prompt lookup of its Python package."
)
KINDS = ("q8_0", "q6_k", "q4_k_m", "q4_0")
LENGTHS, LONGER = (512, 2000), (512, 4096)  # of prompts; the toy has 2,048 positions
TRIES = 3
TRIMMED, LOOKUP = "swiftk, trimmed head", "llama.cpp, lookup"
DRAFTED = ("swiftk, default", TRIMMED, LOOKUP)


def questions(path: Path, count: int, skip: int = 0) -> list[Text]:
    """First turns of `count` texts of every category after the first `skip`: as the model is used."""
    prompts = Prompts(path)
    every = [text for name in CATEGORIES for text in prompts.stream(name, skip + count)[skip:]]
    return [Text(text.stream, text.turns[:1]) for text in every]


def files(study: Study) -> dict[str, tuple[str, list[Text], tuple[int, ...], list[Text]]]:
    """By name: a file, the texts that its model continues, the lengths of prompts, and other texts, whose tokens a
    trimmed head has."""
    problems = study.texts("gsm8k")
    kinds, some = KINDS[: 1 if study.quick else None], 1 if study.quick else None
    own, found, python = "toy" if study.grow else study.folder.stem, {}, study.given.python_llama
    for label, name, chats in (("SmolLM2, Q4_1", "smollm2", True), ("Gemma 3 270M, Q4_K_M", "gemma3", False)):
        published = MODELS[name].path
        if published.is_file():
            few = 2 if study.quick else None
            asked, others = questions(published, 2 if chats else 1), [] if chats else questions(published, 2, 1)
            found[label] = (str(published), asked[:few], LONGER[:some], others[:few])
        else:
            fetch = "`python -m bench.published` fetches it"
            study.results.notes.append(f"left out: {label} ({published} is missing; {fetch})")
    made = {kind: quantised(study.folder, kind, python) for kind in kinds}
    return found | {f"{own}, {kind}": (path, problems, LENGTHS[:some], []) for kind, path in made.items()}


def prompts(study: Study, peers: Mapping[str, Any], path: str, lengths: Sequence[int]) -> dict[str, list[float]]:
    """Tokens of each prompt over the time until its first token, by peer."""
    tokenizer = Tokenizer(path)
    ids = [token for line in lines("summarization") for one in line["turns"] for token in tokenizer.encode(one)]
    best: dict[str, list[float]] = {name: [float("inf")] * len(lengths) for name in peers}
    with ExitStack() as stack:
        lanes = {name: stack.enter_context(make(threads=study.threads)) for name, make in peers.items()}
        for begin in range(TRIES):  # no two begin alike, so that none is found in a cache
            for at, length in enumerate(lengths):
                for name, lane in lanes.items():
                    took = lane.ask("generate", prompt=ids[begin : begin + length], count=2)["first"]
                    best[name][at] = min(best[name][at], took)
    return {name: [length / took for length, took in zip(lengths, times)] for name, times in best.items()}


def used(study: Study, make: Any, texts: Sequence[Text]) -> list[int]:
    """Tokens of these, and of how the model goes on with them."""
    with make(threads=study.threads) as peer:
        answers = [peer.ask("generate", prompt=text.prompt, count=study.tokens)["tokens"] for text in texts]
    return sorted({token for text, answer in zip(texts, answers) for token in (*text.prompt, *answer)})


def main() -> None:
    study = Study("quantised", __doc__, texts=8, tokens=128, options=PYTHON_LLAMA)
    try:
        chosen = files(study)
    except Missing as error:
        raise SystemExit(f"[quantised] needs llama.cpp, whose quantiser makes the files: {error}") from None
    for name, (path, texts, lengths, others) in study.parts(chosen):
        context = max(2048, lengths[-1] + 8)
        theirs = partial(Peer, "llama_cpp", study.given.python_llama, path=path, context=context)
        peers = {
            "swiftk, default": partial(Peer, "swiftk", model=path),
            "swiftk, plain": partial(
                Peer, "swiftk", model=path, loading={"draft_weights": "own"}, options={"speculate": False}
            ),
            "llama.cpp": theirs,
            LOOKUP: partial(theirs, lookup=LOOKED_UP),
        }
        if others:
            peers[TRIMMED] = partial(
                Peer, "swiftk", model=path, loading={"draft_vocab": used(study, peers["swiftk, default"], others)}
            )
        reads: list[dict[str, float]] = []
        with peers["swiftk, plain"](threads=study.threads) as peer:
            reads.append(peer.ask("sizes"))
        found, notes = side_by_side_on(study, peers, texts)
        with peers["swiftk, plain"](threads=study.threads) as peer:
            reads.append(peer.ask("sizes"))
        speeds = prompts(study, {way: peers[way] for way in found if way not in DRAFTED}, path, lengths)
        plain = found["swiftk, plain"]
        for way, answers in found.items():
            row = {"part": name, "way": way, **summed(answers), "equal": equal(answers, plain)}
            row |= {"bytes": reads[0]["bytes"], **(over(answers, found["llama.cpp"]) if "llama.cpp" in found else {})}
            if way not in DRAFTED:
                row["share"] = row["rate"] * row["bytes"] * len(reads) / sum(one["reads"] for one in reads)
                row |= dict(zip(("prompt", "long_prompt"), speeds[way]))
            study.rows.append(row)
    study.results.notes += notes[-1:]
    columns = {
        "file": "part",
        "": "way",
        "tokens/s": "rate:.1f",
        "over llama.cpp": "over:.2f",
        "±": "error:.2f",
        "of reads": "share:.2f",
    }
    columns |= {"tokens a pass": "M:.2f", "peak memory, GB": "memory_GB:.2f", "equal texts": "equal"}
    columns |= {"prompt of 512, tokens/s": "prompt:.0f", "long prompt, tokens/s": "long_prompt:.0f"}
    panels = [bars(name, "rate", part=name) for name in chosen]
    study.finish(columns, NOTES, panels=panels, height=2.2, sharey=True)


if __name__ == "__main__":
    main()
