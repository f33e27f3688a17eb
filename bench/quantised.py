"""The same GGUF files in swiftk and in llama.cpp: SmolLM2 as it is published, and the toy as llama.cpp quantises it.

SmolLM2 answers chats of the 13 categories of Spec-Bench by its own template; the toy solves word problems.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from swiftk.text.tokenizer import Tokenizer

from .harness import Study
from .plots import bars
from .process import PYTHON_LLAMA, Missing, Peer, equal, quantised, side_by_side, summed
from .published import MODELS
from .texts import Text, turns

NOTES = (
    "tokens/s: after the first token of each text, greedy. of reads: bytes of the weights times tokens/s, as a share "
    "of the memory's rate, the mean of two probes around the texts. equal texts: to swiftk's plain decoding of the "
    "same file; llama.cpp rounds activations as swiftk does, but sums in another order. Each engine runs in a process "
    "of its own, and they take turns text by text."
)
KINDS = ("q8_0", "q6_k", "q4_k_m", "q4_0")
# Spec-Bench's 13 categories: eight are mt-bench's.
CHATS = {"mt-bench": 8, "translation": 1, "summarization": 1, "qa": 1, "math_reasoning": 1, "rag": 1}


def chats(path: Path, count: int) -> list[Text]:
    """First turns of every category, `count` of each, by the model's template."""
    tokenizer, found = Tokenizer(path), []
    for name, categories in CHATS.items():
        for (question, *_), _ in zip(turns(name), range(count * categories)):
            words = question.removeprefix("Question: ").removesuffix("\nAnswer:")
            found.append(Text(name, (tuple(tokenizer.encode_chat([{"role": "user", "content": words}])),)))
    return found


def files(study: Study) -> dict[str, tuple[str, list[Text]]]:
    """By name: a file, and the texts that its model continues."""
    problems = study.texts("gsm8k")
    found = {f"toy, {kind}": (quantised(study, kind), problems) for kind in KINDS[: 1 if study.quick else None]}
    published = MODELS["smollm2"].path
    if published.is_file():
        found["SmolLM2, Q4_1"] = (str(published), chats(published, 2)[: 2 if study.quick else None])
    else:
        fetch = "`python -m bench.published` fetches it"
        study.results.notes.append(f"left out: SmolLM2 ({published} is missing; {fetch})")
    return found


def main() -> None:
    study = Study("quantised", __doc__, instances=8, tokens=128, options=PYTHON_LLAMA)
    try:
        chosen = files(study)
    except Missing as error:
        raise SystemExit(f"[quantised] needs llama.cpp, whose quantiser makes the files: {error}") from None
    for name, (path, texts) in chosen.items():
        peers = {
            "swiftk, default": partial(Peer, "swiftk", model=path),
            "swiftk, plain": partial(
                Peer, "swiftk", model=path, loading={"draft_weights": "own"}, options={"speculate": False}
            ),
            "llama.cpp": partial(Peer, "llama_cpp", study.given.python_llama, path=path, context=2048),
        }
        reads: list[dict[str, float]] = []
        with peers["swiftk, plain"](threads=study.threads) as peer:
            reads.append(peer.ask("sizes"))
        found, notes = side_by_side(study, peers, texts, name)
        with peers["swiftk, plain"](threads=study.threads) as peer:
            reads.append(peer.ask("sizes"))
        plain, theirs = found["swiftk, plain"], summed(found["llama.cpp"])["rate"] if "llama.cpp" in found else None
        for way, answers in found.items():
            row = {"part": name, "way": way, **summed(answers), "equal": equal(answers, plain)}
            row |= {"over": row["rate"] / theirs if theirs else None, "bytes": reads[0]["bytes"]}
            if way != "swiftk, default":
                row["share"] = row["rate"] * row["bytes"] * len(reads) / sum(one["reads"] for one in reads)
            study.rows.append(row)
    study.results.notes += notes[-1:]
    columns = {"file": "part", "": "way", "tokens/s": "rate:.1f", "over llama.cpp": "over:.2f", "of reads": "share:.2f"}
    columns |= {"tokens a pass": "M:.2f", "peak memory, GB": "memory_GB:.2f", "equal texts": "equal"}
    panels = [bars(name, "rate", part=name) for name in chosen]
    study.finish(columns, NOTES, panels=panels, height=2.2)


if __name__ == "__main__":
    main()
