"""Whole texts on the grown model: the default, which has an int4 copy of the weights, and what drafts in every round,
beside plain decoding; outputs compared token by token."""

import pytest

from swiftk import DraftSpec

from .lanes import ABOUT_COLUMNS, COLUMNS, GREEDY, SAMPLED, Models, Way, fixed, measure, plain_summary, summary
from .texts import Text, prompts

SAMPLINGS = {"greedy": GREEDY, "T .6, top-p .95": SAMPLED}
TABLE = {"sampling": "part", "way": "way", **COLUMNS, "outside passes": "outside:.2%", "resting": "off"}
NOTE = (
    "prompts of arithmetic, code and prose; side by side, a few tokens each in turn; resting: why drafting did at last"
)


def ways(layers):
    return [
        Way("default"),
        Way("int4, always", {"skip": "int4", "speculate": "always"}),
        fixed("half skipped, always", DraftSpec.uniform(layers)),
        fixed("early exit at half, always", DraftSpec.early_exit(layers // 2)),
    ]


@pytest.fixture(scope="module")
def models(model_dir):
    return Models(model_dir)


@pytest.mark.benchmark(group="generate")
@pytest.mark.parametrize("mode", SAMPLINGS)
def test_generate(benchmark, results, models, model_dir, grow, mode):
    texts = [Text("prompts", (tuple(prompt),)) for prompt in prompts(model_dir, 3)]
    every, tokens, pairs = ways(models.plain.config["num_layers"]), 128 if grow > 1 else 24, []
    models.forget()

    def once():
        pairs.extend(pair for some in measure(models, texts, every, tokens, **SAMPLINGS[mode]) for pair in some)

    benchmark.pedantic(once, rounds=1)
    about = "Whole texts, plain and drafted, by the same build in one run."
    table = results("generate", about, TABLE, f"{model_dir.name}, {tokens} new tokens; {NOTE}", ABOUT_COLUMNS)
    table.rows.append({"part": mode, "way": "plain", **plain_summary([p for p in pairs if p.way == "default"])})
    for way in every:
        found = [pair for pair in pairs if pair.way == way.name]
        stats = [pair.result.stats for pair in found]
        outside = sum(s.other_seconds for s in stats) / sum(pair.seconds for pair in found)
        off = next((s.reason_off for s in reversed(stats) if s.reason_off), None)
        table.rows.append({"part": mode, "way": way.name, **summary(found), "outside": outside, "off": off})
    assert all(pair.same for pair in pairs)
