"""Does it work at all: drafted text equals plain text, a row's bits do not depend on others, and the CPU agrees."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import ladder
import numpy as np
import record

import swiftk
from swiftk import _core
from swiftk.testing import make_tiny
from texts import long_prompt, prompts

_CLOSE, _TOLERANCE = 0.05, 0.25  # of the logits' standard deviation, root mean square: bf16 hand-offs against fp32
_SAMPLERS = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 0.9, "seed": 7},  # the device adds the noise
    "top-p": {"temperature": 0.9, "top_p": 0.95, "seed": 7},  # the host draws from the device's best
}
_LENGTHS = (3, 17, 40, 64, 65, 130, 200, 300)  # of prompts that share passes


class Smoke:
    """A model on the device, texts for it, and how many tokens to make of each."""

    def __init__(self, part: record.Part, folder: Path, short: bool) -> None:
        self.part, self.folder, self.count = part, folder, 8 if short else 48
        self.lm = swiftk.load(folder, device=part.given.device)
        vocab, demo = self.lm.config["vocab_size"], swiftk.demo_model()
        self.texts = [[token % vocab for token in text] for text in prompts(demo, 1 if short else 3)]
        self.long = [token % vocab for token in long_prompt(demo, 160)]

    def row(self, case: str, measure: str, same: bool) -> None:
        self.part.add(f"{self.folder.name}{case}", measure, same, must=True)


def drafted_is_plain(s: Smoke) -> None:
    for sampler, how in _SAMPLERS.items():
        same = True
        for text in s.texts:
            given = {"max_new_tokens": s.count, "ignore_eos": True, **how}
            plain = s.lm.generate(text, speculate=False, **given)
            drafted = s.lm.generate(text, speculate="always", **given)
            same = same and plain.tokens == drafted.tokens
        s.row(f", {sampler}", "drafted text equals plain text", same)


def bits(s: Smoke) -> None:
    session, rows = s.lm.session, {}
    session.reuse([s.long[0] ^ 1])
    session.prefill(s.long[:96])
    for n in (1, 7, 8, 9, 33, 64):
        session.set_tree(s.long[96 : 96 + n - 1], list(range(n - 1)))
        session.verify()
        rows[n] = np.array(session.logits)
    same = all(found.tobytes() == rows[64][:n].tobytes() for n, found in rows.items())
    s.row("", "rows equal among 1 to 64 at once", same)


def loops(s: Smoke) -> None:
    """Which way drafts go: where the driver takes no loops, the rungs with them say nothing about loops."""
    session = s.lm.session
    session.set_sampling()
    session.reuse([s.long[0] ^ 1])
    session.prefill(s.long[:96])
    session.draft(_core.TreeRule(confidence=0.0, max_draft=4))
    s.part.add(s.folder.name, ladder.BY_DEVICE, bool(session.last["at_once"]))


def agrees_with_cpu(s: Smoke) -> None:
    other = swiftk.load(s.folder, device="cpu")
    errors = []
    for text in s.texts:
        logits = []
        for one in (s.lm, other):
            one.session.reuse([text[-1] ^ 1])
            one.session.prefill(text)
            logits.append(np.array(one.session.logits[0]))
        errors.append(float(np.sqrt(np.mean((logits[0] - logits[1]) ** 2)) / logits[1].std()))
    s.part.add(s.folder.name, "error of logits against the CPU", max(errors), "standard deviations", at_most=_CLOSE)
    s.row("", "the CPU agrees", max(errors) < _TOLERANCE)


def many(s: Smoke) -> None:
    """Texts side by side, in so little memory that some wait or are preempted, have the tokens that they have alone."""
    lm = swiftk.load(s.folder, device=s.part.given.device, context=512, kv_memory="24MB")
    texts = [(2 * s.long)[:n] for n in _LENGTHS]
    for sampler, how in _SAMPLERS.items():
        given = {"max_new_tokens": s.count, "ignore_eos": True, **how}
        alone = [lm.generate(text, speculate=False, **given).tokens for text in texts]
        for way in ("plain", "drafted"):
            speculate = False if way == "plain" else "always"
            together = lm.generate_many(texts, speculate=speculate, **given)
            s.row(f", {sampler}", f"{len(texts)} texts together equal each alone, {way}",
                  [r.tokens for r in together] == alone)


def heads(s: Smoke) -> None:
    """The bundled head, in the model's dtype, alone and as a guide of a few-bit copy."""
    lm = swiftk.load(s.folder, device=s.part.given.device, draft_weights="int4", drafter=swiftk.demo_drafter())
    for sampler, how in _SAMPLERS.items():
        given = {"max_new_tokens": s.count, "ignore_eos": True, **how}
        plain = [lm.generate(text, speculate=False, **given).tokens for text in s.texts]
        for name, way in (("head", {"drafter": "eagle"}), ("auto", {})):
            drafted = [lm.generate(text, speculate="always", **given, **way) for text in s.texts]
            s.row(f", {sampler}", f"text drafted by {name} equals plain text", [r.tokens for r in drafted] == plain)
            accepted = sum(r.stats.num_accepted_draft_tokens for r in drafted)
            s.part.add(f"{s.folder.name}, {sampler}", f"accepted of {name}'s, a text", accepted / len(s.texts))


def main() -> None:
    parser = record.options(argparse.ArgumentParser(description=__doc__))
    parser.add_argument("--texts", choices=("one", "many", "heads"), default="one", help="at a time, or with heads")
    parser.add_argument("--short", action="store_true", help="one text and few tokens")
    given = parser.parse_args()
    os.environ["SWIFTK_LEARNED"] = "0"  # a rung is not to go by what another has learned
    with record.Part(given.part, given) as part, TemporaryDirectory() as folder:
        model = make_tiny(Path(folder, "tiny"), layers=4) if given.tiny else swiftk.demo_model()
        s = Smoke(part, model, given.tiny or given.short)
        cases = {"one": [bits, drafted_is_plain, agrees_with_cpu, *([loops] if given.device != "cpu" else [])],
                 "many": [many],
                 "heads": [] if given.tiny else [heads]}  # the bundled head is the demo model's
        for one in cases[given.texts]:
            part.attempt(one.__name__.replace("_", " "), one, s)


if __name__ == "__main__":
    main()
