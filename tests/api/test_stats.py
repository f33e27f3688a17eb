"""Figures of a generation: vLLM's names, SWIFT's M and alpha, counted by hand and on texts of a real model."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamed
import swiftk
from heads import make_block, make_eagle
from swiftk.draft.cost import equation_6
from swiftk.draft.draft_spec import DraftSpec
from swiftk.pages.page import render
from swiftk.running.result import Result, TokenLogprobs
from swiftk.running.stats import Recorder
from turns import turn


def recorded(rounds, decode=10.0, run=9.0, cut=False):
    """rounds: (draft steps, tokens accepted). cut: the last one is."""
    r = Recorder(prompt_tokens=5, cached=2, generated=1, prefill=0.5, first_token=0.5, decode=decode, run=run)
    for i, (steps, accepted) in enumerate(rounds):
        last = cut and i == len(rounds) - 1
        reported = turn(steps=steps, drafted=steps, nodes=steps + 3 if steps else 1)
        r.round(reported, ["plan"] * accepted, accepted + (not last), last)
    return r


def test_counts_follow_vllm():
    s = recorded([(4, 4), (4, 0), (2, 1), (0, 0)]).finish(1.0)
    assert (s.num_steps, s.num_spec_steps, s.num_draft_tokens, s.num_accepted_draft_tokens) == (4, 3, 10, 5)
    assert s.num_tree_tokens == 10 + 3 * 2
    assert s.mean_acceptance_length == pytest.approx(1 + 5 / 3)  # the bonus token counts
    assert s.mean_generated_length == pytest.approx(9 / 4)  # over the plain step, too
    assert s.draft_acceptance_rate == 0.5
    assert s.acceptance_histogram == (1, 1, 0, 0, 1)
    assert s.generated_tokens == 10
    assert s.tokens_per_second == pytest.approx(9 / 10)
    assert s.speedup_vs_plain == pytest.approx(0.9)
    assert s.draft_cost == pytest.approx(0.25)
    assert s.expected_speedup == pytest.approx(equation_6(9 / 4, 0.5, 0.25))
    assert s.forecast_speedup == pytest.approx(s.expected_speedup)
    assert (s.draft_seconds, s.verify_seconds, s.other_seconds) == pytest.approx((2.5, 4.0, 1.0))
    assert (s.speculation, s.time_to_first_token, s.cached_prompt_tokens) == ("mixed", 0.5, 2)
    assert (s.num_reused_rows, s.reused_step_share, s.saved_weight_bytes) == (12, 0.25, 3000)


def test_what_passes_read_from_disk_is_summed():
    """Of plain rounds, of others, and of the prompt's pass."""
    r = Recorder(generated=1)
    r.read(turn(disk=0.5, disk_bytes=100))
    r.round(turn(steps=0, nodes=1, disk=0.25, disk_bytes=10), [], 1, False)
    r.round(turn(disk=0.125, disk_bytes=1), ["plan"], 2, False)
    s = r.finish(1.0)
    assert (s.disk_seconds, s.disk_bytes) == (0.875, 111)


def test_a_last_block_that_was_cut_counts_in_sums_alone():
    whole = [(4, 4), (4, 0), (0, 0)]
    s, t = recorded([*whole, (4, 1)], cut=True).finish(1.0), recorded(whole).finish(1.0)
    assert (s.num_steps, s.num_spec_steps, s.num_draft_tokens, s.num_accepted_draft_tokens) == (4, 3, 12, 5)
    for name in ("mean_acceptance_length", "mean_generated_length", "draft_acceptance_rate", "acceptance_histogram"):
        assert getattr(s, name) == getattr(t, name)


def test_one_block_that_was_cut_says_nothing():
    s = recorded([(4, 2)], cut=True).finish(1.0)
    assert (s.mean_acceptance_length, s.mean_generated_length, s.draft_acceptance_rate) == (1.0, 1.0, 0.0)
    assert (s.expected_speedup, s.forecast_speedup, s.acceptance_histogram) == (None, None, ())
    assert (s.num_draft_tokens, s.num_accepted_draft_tokens, s.speculation) == (4, 2, "on")


def test_what_sources_propose_is_no_draft_token():
    r = Recorder(generated=1)
    r.round(turn(steps=0, drafted=0, draft_nodes=0, nodes=9), ["suffix"] * 6, 7, False)
    r.round(turn(draft_nodes=5, nodes=9), ["plan", "suffix", "plan"], 4, False)  # a step has read two nodes at once
    s = r.finish(1.0)
    assert (s.num_spec_steps, s.num_draft_steps, s.num_draft_tokens, s.num_accepted_draft_tokens) == (2, 4, 4, 2)
    assert (s.num_draft_nodes, s.draft_acceptance_rate) == (5, 2 / 4)
    assert s.mean_acceptance_length == s.mean_generated_length == 1 + 9 / 2
    assert s.acceptance_histogram == (0, 0, 0, 1, 0, 0, 1)
    assert s.accepted_by == {"plan": 2, "suffix": 7}
    assert s.proposed_by == {"plan": 12, "suffix": 4}
    assert s.expected_speedup == pytest.approx(equation_6(1 + 9 / 2, 2 / 4, s.draft_cost))
    assert s.forecast_speedup == pytest.approx((1 + 9 / 2) / (1 + s.draft_cost * 4 / 2))


def test_rounds_without_a_step_are_forecast_to_cost_a_pass():
    r = Recorder(generated=1)
    r.round(turn(steps=0, drafted=0, nodes=9), ["suffix"] * 3, 4, False)
    s = r.finish(1.0)
    assert (s.forecast_speedup, s.expected_speedup) == (4, None)


def test_without_drafts():
    s = recorded([(0, 0)] * 3).finish(None, reason_off="because")
    assert (s.mean_acceptance_length, s.draft_acceptance_rate, s.acceptance_histogram) == (1.0, 0.0, ())
    assert (s.speedup_vs_plain, s.expected_speedup, s.forecast_speedup) == (1.0, None, None)
    assert (s.speculation, s.reason_off) == ("off", "because")


def test_shares_of_rows_are_weighed_by_the_rows():
    r = Recorder(generated=1)
    r.round(turn(reused_share=0.5, nodes=8), ["plan"] * 2, 3, False)
    r.round(turn(reused_share=0.1, nodes=32), ["plan"] * 2, 3, False)
    assert r.finish(1.0).reused_step_share == pytest.approx((0.5 * 8 + 0.1 * 32) / 40)


def test_nothing_accepted_has_a_forecast():
    s = recorded([(4, 0)] * 2).finish(1.0)
    assert s.forecast_speedup == pytest.approx(1 / (1 + 1.25 / 2))
    assert (s.expected_speedup, s.acceptance_histogram) == (None, (2, 0, 0, 0, 0))


def test_a_single_token():
    s = recorded([], decode=0.0, run=0.0).finish(1.0)
    assert (s.generated_tokens, s.tokens_per_second) == (1, 2.0)


def test_to_dict_is_json():
    s = recorded([(4, 4)]).finish(1.0)
    result = Result("text", [1, 2], "stop", [TokenLogprobs(1, -0.5, ((1, -0.5),))], s, 7, [3], [False, True])
    back = json.loads(json.dumps(result.to_dict()))
    assert back["stats"]["acceptance_histogram"] == [0, 0, 0, 0, 1]
    assert back["logprobs"] == [{"token": 1, "logprob": -0.5, "top": [[1, -0.5]]}]
    assert str(result) == "text"


@pytest.fixture(scope="module")
def demo():
    return swiftk.load(swiftk.demo_model(), device="cpu", draft_weights=["int4"])


@given(
    st.sampled_from(["auto", "plan", "suffix", "recycle", "lookup", "lookahead", "parallel"]),
    st.sampled_from([True, "always"]),
    st.sampled_from([{}, {"temperature": 0.8}, {"temperature": 1.0, "acceptance": "rejection"}]),
    st.integers(1, 60),
    st.sampled_from([[5, 6, 7] * 12, [11, 400, 23, 90, 1200]]),
    st.integers(0, 5),
)
def test_figures_of_any_text_add_up(demo, drafter, speculate, sampling, tokens, prompt, seed):
    asked = {"drafter": drafter, "speculate": speculate, **sampling}
    result = demo.generate(prompt, max_new_tokens=tokens, ignore_eos=True, seed=seed, **asked)
    s = result.stats
    assert 0 <= s.num_accepted_draft_tokens <= s.num_draft_tokens
    assert s.num_draft_steps == s.num_draft_tokens <= s.num_draft_nodes
    assert s.num_accepted_draft_tokens == s.accepted_by.get("plan", 0)
    assert sum(s.accepted_by.values()) == sum(result.drafted)
    assert all(s.accepted_by[name] <= s.proposed_by[name] for name in s.accepted_by)
    assert 0 <= s.draft_acceptance_rate <= 1
    assert 1 <= s.mean_generated_length <= s.mean_acceptance_length or s.num_spec_steps <= 1
    by_hand(result)


def by_hand(result):
    """The same figures from the rounds that a report draws."""
    s, rounds = result.stats, [t.round for t in result.trace.rounds]
    taken = [r.tokens - r.accepted for r in rounds]  # the model's own tokens of each round: one, unless it was cut
    assert all(own in (0, 1) for own in taken) and all(taken[:-1])
    whole = [r for r, own in zip(rounds, taken, strict=True) if own]
    spec = [r for r in whole if r.speculative]
    assert s.num_steps == len(rounds)
    assert s.num_draft_steps == sum(r.draft_steps for r in rounds)
    if whole:
        assert s.mean_generated_length == pytest.approx(sum(r.tokens for r in whole) / len(whole))
    if spec:
        assert s.mean_acceptance_length == pytest.approx(sum(r.tokens for r in spec) / len(spec))
        assert sum(s.acceptance_histogram) == len(spec)
        assert [s.acceptance_histogram[r.accepted] > 0 for r in spec] == [True] * len(spec)
    if spec and s.draft_cost is not None and s.num_draft_steps:
        drafts = s.draft_cost * sum(r.draft_steps for r in whole)
        assert s.forecast_speedup == pytest.approx(sum(r.tokens for r in whole) / (len(whole) + drafts))


def test_a_report_recomputed_by_hand(demo, tmp_path):
    """SWIFT's definitions (appendix B.3) on one text of the plan alone, from its rounds."""
    asked = {"max_new_tokens": 100, "ignore_eos": True, "temperature": 0}
    demo.generate("Question: How many", speculate=False, **asked)  # so that the price of a plain step is known
    result = demo.generate("Question: How many", drafter="plan", speculate="always", **asked)
    by_hand(result)
    s, rounds = result.stats, [t.round for t in result.trace.rounds]
    whole = [r for r in rounds if r.tokens > r.accepted]
    drafted, accepted = sum(r.draft_steps for r in whole), sum(r.accepted for r in whole)
    assert drafted > 20
    m, alpha = sum(r.tokens for r in whole) / len(whole), accepted / drafted
    assert s.draft_acceptance_rate == pytest.approx(alpha)
    assert s.expected_speedup == pytest.approx(m * alpha / ((m - 1) * s.draft_cost + alpha))
    assert s.forecast_speedup == pytest.approx(s.expected_speedup), "one formula, where the plan alone drafts"
    page = swiftk.report(result, tmp_path / "page.html").read_text(encoding="utf-8")
    for figure in (f"{m:.2f}", f"{alpha:.0%}", f"{s.forecast_speedup:.2f}x"):
        assert figure in page


@pytest.mark.parametrize("number", [1, 2])
def test_a_head_that_drafted_is_named(tiny_dir, tmp_path, number):
    """By its place, its kind and its folder, in figures and on the page."""
    folder = Path(tiny_dir("llama3", layers=6))
    heads = [make_eagle(tmp_path / "first-head", folder), make_block(tmp_path / "second-head", folder)]
    name, kind = ("drafter", "eagle") if number == 1 else ("drafter-2", "block")
    with swiftk.load(folder, device="cpu", threads=1, drafter=heads) as lm:
        r = lm.generate("Question: how", skip=name, speculate="always", max_new_tokens=12, temperature=0.0)
        both = lm.generate(
            "Question: how", skip=DraftSpec(weights=("int4", "drafter")), speculate="always", max_new_tokens=12
        )
    words = f"{name} ({kind}, {heads[number - 1].name})"
    assert list(r.stats.plans) == [words]
    plan = r.stats.plans[words]
    assert plan.drafted == r.stats.num_draft_tokens > 0 and plan.accepted == r.stats.num_accepted_draft_tokens
    assert (plan.steps, plan.rounds) == (r.stats.num_draft_steps, r.stats.num_spec_steps)
    assert r.to_dict()["stats"]["plans"][words]["drafted"] == plan.drafted
    assert words in render(r)
    assert list(both.stats.plans) == ["int4 copy, guided by drafter (eagle, first-head)"]


def test_passes_over_weights_on_disk_are_counted(tmp_path):
    with streamed.load(streamed.make(tmp_path), context=400) as lm:
        size = lm.model.memory["streamed"]
        prompt = [i % 50 for i in range(300)]  # of three passes
        result = lm.generate(prompt, max_new_tokens=20, ignore_eos=True, skip="int4", speculate="always")
    s, rounds = result.stats, [one.round for one in result.trace.rounds]
    assert all(size <= one.disk_bytes < 1.5 * size for one in rounds)  # whole pages
    assert s.disk_bytes == rounds[0].disk_bytes * (s.num_steps + 3)
    assert s.disk_seconds > sum(one.disk_seconds for one in rounds) > 0


def test_plans_are_reported_apart(tiny_dir):
    with swiftk.load(tiny_dir("llama3", layers=4), device="cpu", threads=1) as lm:
        asked = {"speculate": "always", "max_new_tokens": 10, "temperature": 0.0}
        named = {
            "int4": "int4 copy",
            DraftSpec(attn=(1, 2), mlp=(2,)): "own weights, 3 of 8 sublayers skipped",
            DraftSpec(exit_layer=1, weights="int4"): "int4 copy, 6 of 8 sublayers skipped",
        }
        for skip, words in named.items():
            assert list(lm.generate("Question: how", skip=skip, **asked).stats.plans) == [words]
        assert lm.generate("Question: how", drafter="suffix", **asked).stats.plans == {}
