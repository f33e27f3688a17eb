"""swiftk on the shapes of known models: tokens/s of one row, the price of n rows, prefill, drafts, overhead."""

from __future__ import annotations

import argparse
from statistics import median
from time import perf_counter

import ladder
import models
import record
from subject import CONTEXT, Subject, both_ways, chain, draft_seconds, each, free_bytes, kinds, ratio, stepwise

from swiftk import DraftSpec

_OF_READS = {"7b": 0.83, "1b": 0.75, "13b": 0.84, "8b": 0.83}  # a plain step's weights over time, of the best reads
_VERIFY = {8: 1.03, 16: 1.05, 32: 1.10, 64: 1.20}
_OVERHEAD_US = 30
_COPIES = ("int8", "int4", "int3")


def plain(s: Subject) -> None:
    """Whole texts, as a user decodes them."""
    count = 8 if s.tiny else 128
    runs = [s.generate(s.text[:CONTEXT], count, speculate=False) for _ in range(4)][1:]
    rate = median(r.stats.tokens_per_second for r in runs)
    s.row("one row", rate, "tokens/s", of_reads=s.share(1 / rate), at_least=_OF_READS[s.name] * s.reads / s.bytes)
    outside = median(r.stats.other_seconds / r.stats.num_steps for r in runs)
    s.row("outside passes, a step", outside * 1e6, "us", at_most=_OVERHEAD_US)
    s.part.keep(f"{s.name}_tokens_per_second_{s.kind}", rate)
    s.row("decoding repeats itself", all(r.tokens == runs[0].tokens for r in runs), must=True)


def rows(s: Subject) -> None:
    """Passes of n rows in turn, after the same text; ratios round by round."""
    taken = {n: found for (_, n), found in s.seconds(CONTEXT, [chain]).items()}
    s.part.keep(f"{s.label}: step seconds", {n: median(found) for n, found in taken.items()})
    s.row("step of one row", median(taken[1]) * 1e3, "ms", of_reads=s.share(median(taken[1])))
    for n in taken.keys() - {1}:
        s.row(f"verify {n} rows over one", ratio(taken[n], taken[1]), at_most=_VERIFY.get(n))


def overlap(s: Subject) -> None:
    """Steps of one row with launches that overlap and with launches in turn, by two sessions in turn; their bits."""
    sessions, taken, same = both_ways(s, 2 * CONTEXT), ([], []), True
    for session in sessions:
        session.prefill(s.text[:CONTEXT])
    for _ in range(3 if s.tiny else 40):
        found = []
        for session, times in zip(sessions, taken):
            found.append(s.verify(session, CONTEXT, []).tobytes())
            times.append(session.last["verify"])
        same = same and found[0] == found[1]
    overlapped, in_turn = (times[2:] for times in taken)
    s.row("step of one row, launches overlap", median(overlapped) * 1e3, "ms", of_reads=s.share(median(overlapped)))
    s.row("step of one row, launches in turn", median(in_turn) * 1e3, "ms", of_reads=s.share(median(in_turn)))
    s.row("in turn over overlapped", ratio(in_turn, overlapped))
    s.row("rows equal, overlapped and in turn", same, must=True)


def half_draft(s: Subject) -> None:
    """A draft step with every other sublayer left out."""
    half = DraftSpec.uniform(s.config["num_hidden_layers"])
    found, _ = draft_seconds(s.lm, s.text[:CONTEXT], (2, 6), 5 if s.tiny else 15, half)
    session, one = s.lm.session, []
    for _ in range(5):
        s.verify(session, CONTEXT, [])
        one.append(session.last["verify"])
    s.row("draft step, half skipped, over one row", (found[6] - found[2]) / 4 / median(one))


def drafts(s: Subject) -> None:
    """What a draft takes beside its steps, which cost what one more costs where the device takes them by itself."""
    text, lengths, rounds = s.text[:CONTEXT], (4, 12), 5 if s.tiny else 23
    half = DraftSpec.uniform(s.lm.config["num_layers"])
    graph, drafted = draft_seconds(s.lm, text, lengths, rounds, half)
    if not s.lm.session.last["at_once"]:
        s.part.note(f"{s.label}: drafts go step by step here, so what one graph saves was not measured")
        return
    with stepwise():
        other = s.load(context=s.lm.session.context)
    steps, same = draft_seconds(other, text, lengths, rounds, half)
    short, long = lengths
    step = (graph[long] - graph[short]) / (long - short)
    s.row("draft step in one graph", step * 1e6, "us")
    s.row(f"draft of {long} in one graph, beside its steps", (graph[long] - long * step) * 1e6, "us",
          at_most=_OVERHEAD_US)
    s.row(f"draft of {long} step by step, beside its steps", (steps[long] - long * step) * 1e6, "us")
    s.row("drafts of both ways are equal", drafted == same, must=True)


def copies(s: Subject) -> None:
    """A draft's step that reads a copy of the weights in few bits, by the copy's bytes; what loading them takes."""
    began = perf_counter()
    lm = s.load(draft_weights=_COPIES, context=2 * CONTEXT)
    s.part.note(f"{s.label}: loaded with copies in {', '.join(_COPIES)} in {perf_counter() - began:.1f} s")
    (short, long), rounds = (2, 8), 5 if s.tiny else 13
    for form in ("own", *_COPIES):
        found, _ = draft_seconds(lm, s.text[:CONTEXT], (short, long), rounds, DraftSpec(weights=form))
        step = (found[long] - found[short]) / (long - short)
        size = lm.model.copies.get(form, s.bytes)
        s.row(f"draft step, {form} weights", step * 1e6, "us", of_reads=size / step / s.reads)


def prefill(s: Subject) -> None:
    for count in (512,) if s.tiny else (512, 2048):
        session, taken = s.lm.session, []
        for _ in range(4):
            session.reuse([s.text[0] ^ 1])  # which keeps no row of the last one
            session.prefill(s.text[:count])
            taken.append(session.last["prefill"])
        seconds = median(taken[1:])
        flops = count * models.layer_flops(s.config) / seconds
        s.row(f"prefill of {count}", count / seconds, "tokens/s")
        s.row(f"arithmetic of a prefill of {count}", flops / 1e12, "TFLOP/s")


def worst_case(s: Subject) -> None:
    """Text that no draft predicts: noise goes on differently with every sublayer left out."""
    ratios, same = [], True
    for _ in range(2):
        ways: tuple[dict, ...] = ({}, {"speculate": False})
        drafted, base = (s.generate(s.text[:CONTEXT], 8 if s.tiny else 256, **how) for how in ways)
        ratios.append(drafted.stats.tokens_per_second / base.stats.tokens_per_second)
        same = same and drafted.tokens == base.tokens
    s.row("default options over plain, worst case", min(ratios), at_least=0.98)
    s.row("default options give the plain text", same, must=True)


def memory(s: Subject) -> None:
    session = s.lm.session
    weights = s.lm.model.weight_bytes + sum(s.lm.model.copies.values())
    needed = weights + session.cache_bytes + session.workspace_bytes
    if s.free:
        used = s.free - free_bytes(s.device)
        s.row("memory beside weights, cache, workspace", (used - needed) / 1e9, "GB")
    s.row("workspace", session.workspace_bytes / 1e6, "MB")


def measure(s: Subject) -> None:
    todo = [plain, rows, overlap, prefill]
    if s.kind == kinds(s.device)[0]:  # of the other kind enough is measured to choose
        todo += [half_draft, worst_case, memory]
        todo += [copies] if s.name in ("1b", "8b") else []
        todo += [drafts] if s.name == "1b" else []  # whose steps are short, and of which a second copy is soon loaded
    for one in todo:
        s.part.attempt(f"{s.label}, {one.__name__}", one, s)


def main() -> None:
    given = models.options(argparse.ArgumentParser(description=__doc__)).parse_args()
    with record.Part("decode", given) as part:
        part.note("The weights are random, in the shapes of these models, in bf16. One text is decoded. Figures are "
                  f"medians. Steps of n rows take turns after {CONTEXT} tokens. % of reads is the bytes of the weights "
                  "and of a long context over time, as a share of the best read stream.")
        each(part, ladder.PARTS["decode"].chosen(given.only), kinds(given.device), 4096, measure)


if __name__ == "__main__":
    main()
