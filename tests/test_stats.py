"""Figures of a generation: vLLM's names and counting."""

import json

import pytest

from swiftk.cost import equation_6
from swiftk.result import Result, TokenLogprobs
from swiftk.stats import Recorder

PHASES = {"prefill": 0.0, "draft": 0.625, "verify": 1.0, "commit": 0.01, "draft_steps": 4, "verify_rows": 9}
PHASES |= {"reused_rows": 4, "reused_share": 0.25, "saved_weight_bytes": 1000, "proposed": [1, 6, 2, 0, 0, 0, 0]}


def recorded(rounds, decode=10.0, run=9.0):
    r = Recorder(prompt_tokens=5, cached=2, generated=1, prefill=0.5, first_token=0.5, decode=decode, run=run)
    for spine, accepted, tokens in rounds:
        r.round(PHASES, spine, spine + 3 if spine else 1, ["plan"] * accepted, tokens)
    return r


def test_counts_follow_vllm():
    s = recorded([(4, 4, 5), (4, 0, 1), (2, 1, 2), (0, 0, 1)]).finish(1.0)
    assert (s.num_steps, s.num_spec_steps, s.num_draft_tokens, s.num_accepted_draft_tokens) == (4, 3, 10, 5)
    assert s.num_tree_tokens == 10 + 3 * 2
    assert s.mean_acceptance_length == pytest.approx(1 + 5 / 3)  # the bonus token counts
    assert s.draft_acceptance_rate == 0.5
    assert s.acceptance_histogram == (1, 1, 0, 0, 1)
    assert s.generated_tokens == 10
    assert s.tokens_per_second == pytest.approx(9 / 10)
    assert s.speedup_vs_plain == pytest.approx(0.9)
    assert s.draft_cost == pytest.approx(0.25)
    assert s.expected_speedup == pytest.approx(equation_6(1 + 5 / 3, 0.5, 0.25))
    assert (s.draft_seconds, s.verify_seconds, s.other_seconds) == pytest.approx((2.5, 4.0, 1.0))
    assert (s.speculation, s.time_to_first_token, s.cached_prompt_tokens) == ("mixed", 0.5, 2)
    assert (s.num_reused_rows, s.reused_step_share, s.saved_weight_bytes) == (12, 0.25, 3000)


def test_what_sources_guess_is_no_draft_token():
    r = Recorder(generated=1)
    r.round(PHASES, 0, 9, ["suffix"] * 6, 7)
    r.round(PHASES, 4, 9, ["plan", "suffix", "plan"], 4)
    s = r.finish(1.0)
    assert (s.num_spec_steps, s.num_draft_tokens, s.num_accepted_draft_tokens) == (2, 4, 9)
    assert s.draft_acceptance_rate == 0.5  # of draft steps
    assert s.mean_acceptance_length == 1 + 9 / 2
    assert s.acceptance_histogram == (0, 0, 0, 1, 0, 0, 1)
    assert s.accepted_by == {"plan": 2, "suffix": 7}
    assert s.proposed_by == {"plan": 12, "suffix": 4}
    assert s.expected_speedup == pytest.approx((1 + 9 / 2) / (1 + s.draft_cost * 4 / 2))


def test_rounds_without_a_step_are_expected_to_cost_a_pass():
    r = Recorder(generated=1)
    r.round(PHASES, 0, 9, ["suffix"] * 3, 4)
    assert r.finish(1.0).expected_speedup == 4


def test_without_drafts():
    s = recorded([(0, 0, 1)] * 3).finish(None, reason_off="because")
    assert (s.mean_acceptance_length, s.draft_acceptance_rate, s.acceptance_histogram) == (1.0, 0.0, ())
    assert (s.speedup_vs_plain, s.expected_speedup, s.speculation, s.reason_off) == (1.0, None, "off", "because")


def test_shares_of_rows_are_weighed_by_the_rows():
    r = Recorder(generated=1)
    r.round({**PHASES, "reused_share": 0.5}, 4, 8, ["plan"] * 2, 3)
    r.round({**PHASES, "reused_share": 0.1}, 4, 32, ["plan"] * 2, 3)
    assert r.finish(1.0).reused_step_share == pytest.approx((0.5 * 8 + 0.1 * 32) / 40)


def test_nothing_accepted_has_its_limit():
    s = recorded([(4, 0, 1)] * 2).finish(1.0)
    assert s.expected_speedup == pytest.approx(1 / (1 + 1.25 / 2))
    assert s.acceptance_histogram == (2, 0, 0, 0, 0)


def test_a_single_token():
    s = recorded([], decode=0.0, run=0.0).finish(1.0)
    assert (s.generated_tokens, s.tokens_per_second) == (1, 2.0)


def test_to_dict_is_json():
    s = recorded([(4, 4, 5)]).finish(1.0)
    result = Result("text", [1, 2], "stop", [TokenLogprobs(1, -0.5, ((1, -0.5),))], s, 7, [3], [False, True])
    back = json.loads(json.dumps(result.to_dict()))
    assert back["stats"]["acceptance_histogram"] == [0, 0, 0, 0, 1]
    assert back["logprobs"] == [{"token": 1, "logprob": -0.5, "top": [[1, -0.5]]}]
    assert str(result) == "text"
