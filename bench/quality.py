"""Are answers as good with drafts as without: HumanEval's tests, GSM8K's answers, summaries of news.

Texts are equal token by token, so the scores are; what is shown is that, and how good the model is. HumanEval's
programs run in a process without network, with little time and memory.
"""

from __future__ import annotations

import ctypes
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import comb
from tempfile import TemporaryDirectory
from typing import Any

from .harness import Study
from .lanes import DEFAULT, GREEDY, PLAIN, SAMPLED, write
from .texts import lines

SAMPLES = 10  # of a problem of HumanEval, at T .6 and top-p .95
CODE = "humaneval"
SECONDS, MEMORY = 5, 1 << 30  # of a program
_LIBC = ctypes.CDLL(None, use_errno=True)
_NEWUSER, _NEWNET = 0x10000000, 0x40000000  # of unshare(2)
_TOP_LEVEL = re.compile(r"\n(?=[^\s#)\]}])")  # where a function that was completed ends
NOTES = (
    f"pass@1 and pass@10 are estimated without bias from {SAMPLES} samples a problem, at T .6 and top-p .95. Greedy "
    "passes are of one text each. Exact match compares the last number of an answer. ROUGE-L is the F-measure of the "
    "longest common subsequence of words with the first three sentences of the text, because Spec-Bench has no "
    "references. Equal texts are those that equal plain decoding's, token by token.",
    "papers: pass@1 and pass@10 of CodeLLaMA (SWIFT, Table 3); accuracy and ROUGE (Mixture of Attentions, Table 8)",
)


def program(prompt: str, answer: str, test: str, name: str) -> str:
    """Of an answer, which is a function's rest, or a text with the function in a block of code. Then the tests."""
    block = re.search(r"```(?:python)?\n(.*?)(?:```|$)", answer, re.S)
    code = block[1] if block else answer
    if f"def {name}(" not in code:
        code = prompt + _TOP_LEVEL.split(code, 1)[0]
    elif helpers := prompt.partition("def ")[0].strip():
        code = f"{helpers}\n{code}"
    return f"{code}\n\n{test}\ncheck({name})\n"


def passes(code: str, seconds: float = SECONDS, memory: int = MEMORY) -> bool:
    """Whether a program ends well: alone in an empty folder, without network, files, or more time and memory than this.
    subprocess.SubprocessError: the system cannot take the network away."""
    with TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", code],
            cwd=folder,
            env={},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: _confine(seconds, memory),
        )
        try:
            return process.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # whatever it started, too
            process.wait()


def _confine(seconds: float, memory: int) -> None:
    if _LIBC.unshare(_NEWUSER | _NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    limits = {resource.RLIMIT_CPU: int(seconds) + 1, resource.RLIMIT_AS: memory, resource.RLIMIT_FSIZE: 0}
    for what, most in limits.items():
        resource.setrlimit(what, (most, most))


def pass_at(k: int, counts: Sequence[tuple[int, int]]) -> float:
    """Chance that one of k samples is right, by (samples, right ones) of each problem, as HumanEval's paper has it."""
    return sum(1 - comb(n - right, k) / comb(n, k) for n, right in counts) / len(counts)


def last_number(text: str) -> str | None:
    """ "1,234.50" is 1234.5."""
    found = re.findall(r"-?\d[\d,]*(?:\.\d+)?", text)
    return f"{float(found[-1].replace(',', '')):g}" if found else None


def rouge_l(text: str, reference: str) -> float:
    """F-measure of the longest common subsequence of words."""
    a, b = (re.findall(r"[a-z0-9]+", some.lower()) for some in (text, reference))
    row = [0] * (len(b) + 1)
    for word in a:
        before = 0
        for at, other in enumerate(b, 1):
            before, row[at] = row[at], before + 1 if word == other else max(row[at], row[at - 1])
    return 2 * row[-1] / (len(a) + len(b)) if row[-1] else 0.0


def opening(article: str, sentences: int = 3) -> str:
    """Its first sentences, behind "Summarize:"."""
    return " ".join(re.split(r"(?<=[.!?])\s+", article.removeprefix("Summarize:").strip())[:sentences])


Judge = Callable[[str, Mapping[str, Any]], float]
TASKS: dict[str, tuple[str, Judge]] = {
    CODE: (
        "pass, greedy",
        lambda text, line: passes(program(line["turns"][0], text, line["test"], line["entry_point"])),
    ),
    "gsm8k": ("exact match", lambda text, line: last_number(text) == last_number(line["answer"])),
    "summarization": ("ROUGE-L", lambda text, line: rouge_l(text, opening(line["turns"][0]))),
}


def judged(study: Study, name: str, samples: int, **sampling: Any) -> tuple[dict[str, list[list[float]]], str]:
    """By way, the scores of each text's samples; and of how many texts both ways are equal."""
    ways, judge = [PLAIN, DEFAULT], TASKS[name][1]
    lms, asked = list(map(study.models.of, ways)), {"ignore_eos": not study.eos, **sampling}
    scores: dict[str, list[list[float]]] = {way.name: [] for way in ways}
    same = 0
    for text, line in study.each(list(zip(study.texts(name), lines(name)))):
        found = [write(lms, text.prompt, ways, study.tokens, **{"seed": seed, **asked}) for seed in range(samples)]
        same += sum(plain.tokens == drafted.tokens for plain, drafted in found)
        for of_way, written in zip(scores.values(), zip(*found)):
            of_way.append([float(judge(one.text, line)) for one in written])
    return scores, f"{same} of {samples * len(scores[PLAIN.name])}"


def main() -> None:
    study = Study("quality", __doc__, texts=10, tokens=256, streams=tuple(TASKS), loading={})
    works = {f"{name}, {TASKS[name][0]}": (name, 1, GREEDY) for name in study.streams}
    works |= {
        f"{name}, sampled": (name, 2 if study.quick else SAMPLES, SAMPLED) for name in study.streams if name == CODE
    }
    for part, (name, samples, sampling) in study.parts(works):
        scores, equal = judged(study, name, samples, **sampling)
        for way, of_texts in scores.items():
            counts = [(samples, round(sum(some))) for some in of_texts]
            told = {part: sum(map(sum, of_texts)) / len(of_texts)}
            if samples > 1:
                told = {f"{name}, pass@{k}": pass_at(k, counts) for k in (1, samples)}
            study.rows.extend({"part": task, "way": way, "score": x, "equal": equal} for task, x in told.items())
    study.finish({"task": "part", "way": "way", "score": "score:.3f", "equal texts": "equal"}, *NOTES)


if __name__ == "__main__":
    main()
