"""Does it work at all: drafted text equals plain text, a row's bits do not depend on others, and the CPU agrees."""

from __future__ import annotations

import argparse

import numpy as np
import record

import swiftk
from demo import long_prompt, prompts

_TOLERANCE = 0.05  # of the logits' standard deviation, root mean square: bf16 hand-offs on one side, fp32 on the other
_SAMPLERS = {"greedy": {"temperature": 0.0}, "sampled": {"temperature": 0.9, "top_p": 0.95, "seed": 7}}


def drafted_is_plain(part: record.Part, lm: swiftk.LM, texts: list[list[int]]) -> None:
    for sampler, how in _SAMPLERS.items():
        same = True
        for text in texts:
            given = {"max_new_tokens": 48, "ignore_eos": True, **how}
            plain = lm.generate(text, speculate=False, **given)
            drafted = lm.generate(text, speculate="always", **given)
            same = same and plain.tokens == drafted.tokens
        part.add(f"demo model, {sampler}", "drafted text equals plain text", same, must=True)


def bits(part: record.Part, lm: swiftk.LM, text: list[int]) -> None:
    session, rows = lm.session, {}
    session.reuse([text[0] ^ 1])
    session.prefill(text[:96])
    for n in (1, 7, 8, 9, 33, 64):
        session.set_tree(text[96 : 96 + n - 1], list(range(n - 1)))
        session.verify()
        rows[n] = np.array(session.logits)
    same = all(found.tobytes() == rows[64][:n].tobytes() for n, found in rows.items())
    part.add("demo model", "rows equal among 1 to 64 at once", same, must=True)


def agrees_with_cpu(part: record.Part, lm: swiftk.LM, texts: list[list[int]]) -> None:
    other = swiftk.load(swiftk.demo_model(), device="cpu")
    errors, same = [], []
    for text in texts:
        logits = []
        for one in (lm, other):
            one.session.reuse([text[-1] ^ 1])
            one.session.prefill(text)
            logits.append(np.array(one.session.logits[0]))
        errors.append(float(np.sqrt(np.mean((logits[0] - logits[1]) ** 2)) / logits[1].std()))
        tokens = [one.generate(text, max_new_tokens=32, temperature=0.0, ignore_eos=True, speculate=False).tokens
                  for one in (lm, other)]
        same.append(sum(a == b for a, b in zip(*tokens)) / 32)
    part.add("demo model", "error of logits against the CPU", max(errors), "standard deviations", at_most=_TOLERANCE)
    part.add("demo model", "tokens equal to the CPU's", sum(same) / len(same))


def main() -> None:
    given = record.options(argparse.ArgumentParser(description=__doc__)).parse_args()
    with record.Part("smoke", given) as part:
        folder = swiftk.demo_model()
        lm = swiftk.load(folder, device=given.device)
        texts = prompts(folder, 3)
        part.attempt("drafted is plain", drafted_is_plain, part, lm, texts)
        part.attempt("bits", bits, part, lm, long_prompt(folder, 160))
        part.attempt("the CPU agrees", agrees_with_cpu, part, lm, texts)


if __name__ == "__main__":
    main()
