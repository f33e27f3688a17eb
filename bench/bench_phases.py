"""Phases of a session on the grown model: prefill, the plain step, a draft step, verification by rows, commit."""

from statistics import median

import pytest

from swiftk import DraftSpec, _core

from .machine import probe
from .texts import long_prompt

ROWS = [2, 4, 8, 12, 16, 32, 64]
COLUMNS = {"phase": "phase", "ms": "ms:.2f", "of a plain step": "of_plain:.3f", "tokens/s": "rate:.1f"}
COLUMNS |= {"weights GB/s": "GB_per_s:.1f", "% of reads": "of_reads:.0%"}
COLUMNS |= {"GFLOP/s": "GFLOP_per_s:.0f", "% of peak": "of_peak:.0%"}
CONTEXT = 128  # tokens of text before each step


def layer_flops(config):
    """Multiply-adds of one row through all layers, 2 operations each; attention itself and the head left out."""
    d, heads, kv = config["hidden_size"], config["num_heads"], config["num_kv_heads"]
    return 2 * config["num_layers"] * d * ((2 * heads + 2 * kv) * config["head_dim"] + 3 * config["ffn"])


@pytest.fixture(scope="module")
def table(results, model, model_dir):
    return results(
        "phases",
        "What the phases of a round cost.",
        COLUMNS,
        f"{model_dir.name}: {model.weight_bytes / 1e9:.2f} GB of packed weights, {model.dtype}",
        f"All steps take turns in one run, after {CONTEXT} tokens. Times and ratios are medians over rounds: "
        "bandwidth is probed in every round, because that of a shared machine changes.",
        "Verification includes logits and the walk for every row.",
    )


@pytest.mark.benchmark(group="prefill")
@pytest.mark.parametrize("tokens", [16, 128, 512])
def test_prefill(benchmark, table, model, model_dir, machine, rounds, tokens):
    session, prompt = _core.Session(model), long_prompt(model_dir, tokens)

    def run():
        session.reuse([prompt[-1] ^ 1])
        session.prefill(prompt)

    benchmark.pedantic(run, rounds=max(2, rounds // 3), warmup_rounds=1)
    seconds, probes = benchmark.stats.stats.median, (machine, probe((model.dtype,), model.threads, model.isa))
    flops, peak = (
        tokens * layer_flops(model.config) / seconds / 1e9,
        max(p["peak_GFLOP_per_s"][model.dtype] for p in probes),
    )
    row = {"phase": f"prefill of {tokens}", "ms": seconds * 1e3, "rate": tokens / seconds}
    table.rows.append({**row, "GFLOP_per_s": flops, "of_peak": flops / peak})


class Steps:
    """Every kind of step once, in turn, so that all see the same machine; seconds are kept by name."""

    def __init__(self, model, model_dir):
        self.session = _core.Session(model)
        self.prompt = long_prompt(model_dir, CONTEXT + max(ROWS))
        half = DraftSpec.uniform(model.config["num_layers"])
        self.session.set_skip(_core.DraftSpec(list(half.attn), list(half.mlp)))
        self.session.reuse([self.prompt[0] ^ 1])
        self.session.prefill(self.prompt[:CONTEXT])
        self.model = model
        self.seconds, self.reads = {}, []

    def round(self):
        session = self.session
        self.reads.append(_core.probe(self.model.dtype, self.model.isa, self.model.threads)[0])
        session.draft(_core.TreeRule(max_draft=0))
        session.verify()
        self._keep("plain step", session.last["verify"])
        session.draft(_core.TreeRule(confidence=0.0, max_draft=4, max_nodes=5))
        self._keep("draft step, half skipped", session.last["draft"] / session.last["draft_steps"])
        for n in ROWS:
            session.set_tree(self.prompt[CONTEXT : CONTEXT + n - 1], list(range(n - 1)))
            session.verify()
            self._keep(f"verify {n} rows", session.last["verify"])
        session.commit(1)
        self._keep("commit", session.last["commit"])

    def _keep(self, name, seconds):
        self.seconds.setdefault(name, []).append(seconds)


@pytest.mark.benchmark(group="steps")
def test_steps(benchmark, table, model, model_dir, rounds):
    steps = Steps(model, model_dir)
    benchmark.pedantic(steps.round, rounds=rounds, warmup_rounds=1)
    plain = steps.seconds["plain step"][1:]
    for name, found in steps.seconds.items():
        ratio = median(a / b for a, b in zip(found[1:], plain))
        table.rows.append({"phase": name, "ms": 1e3 * median(found[1:]), "of_plain": ratio})
        if name == "plain step":
            rates = [model.weight_bytes / s for s in plain]
            share = median(rate / reads for rate, reads in zip(rates, steps.reads[1:]))
            table.rows[-1] |= {"rate": 1 / median(plain), "GB_per_s": median(rates) / 1e9, "of_reads": share}
