"""Phases of a session on the grown model: prefill, the plain step, a draft step, verification by rows, commit."""

from statistics import median

import pytest

from demo import long_prompt
from machine import Machine
from swiftk import SkipSet, _core

ROWS = [2, 4, 8, 12, 16, 32, 64]
COLUMNS = ["phase", "ms", "of a plain step", "tokens/s", "weights GB/s", "% of reads", "GFLOP/s", "% of peak"]
CONTEXT = 128  # tokens of text before each step


def layer_flops(config):
    """Multiply-adds of one row through all layers, 2 operations each; attention itself and the head left out."""
    d, heads, kv = config["hidden_size"], config["num_heads"], config["num_kv_heads"]
    return 2 * config["num_layers"] * d * ((2 * heads + 2 * kv) * config["head_dim"] + 3 * config["ffn"])


@pytest.fixture(scope="module")
def table(report, model, model_dir):
    found = report("phases", COLUMNS)
    found.notes = [f"{model_dir.name}: {model.weight_bytes / 1e9:.2f} GB of packed weights, {model.dtype}",
                   f"steps of one run in turn, behind {CONTEXT} tokens; medians of seconds, and of ratios by round: "
                   "bandwidth is probed in every round, since that of a shared machine changes",
                   "verification includes logits and the walk for every row"]
    return found


@pytest.mark.benchmark(group="prefill")
@pytest.mark.parametrize("tokens", [16, 128, 512])
def test_prefill(benchmark, table, model, model_dir, machine, rounds, tokens):
    session, prompt = _core.Session(model), long_prompt(model_dir, tokens)

    def run():
        session.reuse([prompt[-1] ^ 1])
        session.prefill(prompt)

    benchmark.pedantic(run, rounds=max(2, rounds // 3), warmup_rounds=1)
    now = Machine.measure(model.threads, model.isa, (model.dtype,))
    seconds = benchmark.stats.stats.median
    flops = tokens * layer_flops(model.config) / seconds
    peak = max(machine.flops[model.dtype], now.flops[model.dtype])
    figures = {"phase": f"prefill of {tokens}", "seconds": seconds, "tokens_per_second": tokens / seconds,
               "GFLOP_per_s": flops / 1e9, "of_peak": flops / peak}
    benchmark.extra_info.update(figures)
    table.add([figures["phase"], f"{seconds * 1e3:.1f}", "", f"{tokens / seconds:.0f}", "", "", f"{flops / 1e9:.0f}",
               f"{flops / peak:.0%}"], figures)


class Steps:
    """Every kind of step once, in turn, so that all see the same machine; figures are kept by name."""

    def __init__(self, model, model_dir):
        self.session = _core.Session(model)
        self.prompt = long_prompt(model_dir, CONTEXT + max(ROWS))
        half = SkipSet.uniform(model.config["num_layers"])
        self.session.set_skip(list(half.attn), list(half.mlp))
        self.model = model
        self.seconds, self.reads = {}, []

    def restart(self):
        self.session.reuse([self.prompt[0] ^ 1])
        self.session.prefill(self.prompt[:CONTEXT])

    def round(self):
        session = self.session
        self.reads.append(_core.probe(self.model.dtype, self.model.isa, self.model.threads)[0])
        self._plain(session)
        session.draft(confidence=0.0, max_draft=4, max_nodes=5)
        self._keep("draft step, half skipped", session.last["draft"] / session.last["draft_steps"])
        for n in ROWS:
            session.set_tree(self.prompt[CONTEXT:CONTEXT + n - 1], list(range(n - 1)))
            session.verify()
            self._keep(f"verify {n} rows", session.last["verify"])
        session.commit(1)
        self._keep("commit", session.last["commit"])

    def _plain(self, session):
        session.draft(max_draft=0)
        session.verify()
        self._keep("plain step", session.last["verify"])

    def _keep(self, name, seconds):
        self.seconds.setdefault(name, []).append(seconds)


@pytest.mark.benchmark(group="steps")
def test_steps(benchmark, table, model, model_dir, rounds):
    steps = Steps(model, model_dir)
    steps.restart()
    benchmark.pedantic(steps.round, rounds=rounds, warmup_rounds=1)
    for name, found in steps.seconds.items():
        seconds = median(found[1:])
        ratio = median(a / b for a, b in zip(found[1:], steps.seconds["plain step"][1:]))
        figures = {"phase": name, "seconds": seconds, "of_plain": ratio}
        cells = [name, f"{seconds * 1e3:.2f}", f"{ratio:.3f}", "", "", "", "", ""]
        if name == "plain step":
            rates = [model.weight_bytes / s for s in found[1:]]
            share = median(rate / reads for rate, reads in zip(rates, steps.reads[1:]))
            figures.update(weights_GB_per_s=median(rates) / 1e9, of_reads=share,
                           reads_GB_per_s=median(steps.reads[1:]) / 1e9)
            cells[3:6] = f"{1 / seconds:.1f}", f"{median(rates) / 1e9:.1f}", f"{share:.0%}"
        benchmark.extra_info[name] = figures
        table.add(cells, figures)
