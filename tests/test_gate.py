"""Gate policies on simulated drafts: fixed ones are what was asked for, the timed one comes close to the best."""

import random

import numpy as np
import pytest

from simulated_text import play
from swiftk.calibration import BUCKETS, RANKS
from swiftk.cost import CostModel, Round
from swiftk.gate import DraftRule, FixedGate, TimedGate, make_gate

ROW = 0.01  # what a simulated row costs beyond the first, in plain steps


def test_fixed_gates_are_what_the_option_says():
    swift = make_gate("swift", None)
    assert isinstance(swift, FixedGate)
    assert swift.rule == DraftRule(0.8, 25, 64, (0.5, 0.8, 0.95), (10, 5, 3, 1))
    assert make_gate(0.3, 7).rule == DraftRule(confidence=0.3, max_draft=7)
    assert make_gate(DraftRule(max_draft=9), 4).rule.max_draft == 4
    assert make_gate(DraftRule(max_draft=3), 4).rule.max_draft == 3
    rule = swift.choose(CostModel())
    swift.observe([(0.9, 0), (0.9, -1)], 3)
    assert swift.choose(CostModel(prior=9.0)) == rule
    assert swift.calibration.matchness == 0.5  # for optimizers to read


def test_a_fixed_gate_may_be_wider_than_the_calibration():
    gate = FixedGate(DraftRule(width=(64, 64, 64, 64)))
    gate.observe([(0.2, RANKS + 20), (0.2, RANKS - 1)], 2)
    assert gate.calibration.outcomes == 2
    assert gate.calibration.counts[:, -1].sum() == 1


def test_clipping_keeps_the_rest():
    assert DraftRule(confidence=0.5).clipped(3) == DraftRule(confidence=0.5, max_draft=3, max_depth=3)
    assert DraftRule(max_draft=2).clipped(3).max_draft == 2
    assert DraftRule().clipped(-1).max_draft == 0


def costs(c, row=ROW):
    """A cost model that has measured."""
    model = CostModel()
    for _ in range(5):
        model.add(Round(1.0, verify_seconds=1.0))
        for rows in (2, 8, 14):
            model.add(Round(c + 1, c, 1, 1 + row * (rows - 1), rows))
    return model


class Text:
    """Draft tokens of random confidence; the best is right with calibrated(confidence), else the runner-up half the
    time."""

    def __init__(self, calibrated, seed):
        self.calibrated, self.rng = calibrated, random.Random(seed)

    def outcome(self, _=0):
        confidence = self.rng.betavariate(2, 0.7)
        if self.rng.random() < self.calibrated(confidence):
            return confidence, 0
        return confidence, 1 if self.rng.random() < 0.5 else -1


def simulate(gate, c, calibrated, rounds=400, seed=0):
    """Tokens per plain step of the last two thirds."""
    text, model, tokens, spent = Text(calibrated, seed), costs(c), 0, 0.0
    for i in range(rounds):
        n, steps, rows, heard = play(gate.choose(model), text.outcome)
        gate.observe(heard, steps)
        if i >= rounds // 3:
            tokens += n
            spent += 1 + c * steps + ROW * (rows - 1)
    return tokens / spent


def best_fixed(c, calibrated):
    """Of thresholds and lengths without siblings."""
    rates = []
    for epsilon in (0.0, 0.4, 0.7, 0.9):
        for length in (1, 2, 4, 8, 16):
            text, tokens, spent = Text(calibrated, 7), 0, 0.0
            for _ in range(1500):
                n, alive = 0, True
                while n < length:
                    confidence, rank = text.outcome()
                    n += 1
                    alive = alive and rank == 0
                    tokens += alive
                    if confidence < epsilon:
                        break
                tokens += 1
                spent += 1 + (c + ROW) * n
            rates.append(tokens / spent)
    return max(rates)


@pytest.mark.parametrize("c", [0.1, 0.3, 0.55])
@pytest.mark.parametrize(
    "calibrated", [lambda p: p, lambda p: p**3, lambda p: 0.97], ids=["honest", "overconfident", "sure"]
)
def test_timed_is_as_fast_as_the_best_fixed_rule(c, calibrated):
    rate = sum(simulate(TimedGate(), c, calibrated, seed=s) for s in range(2)) / 2
    assert rate >= 0.97 * best_fixed(c, calibrated)


def test_timed_drafts_little_when_drafts_are_dear_and_wrong():
    gate, model, text = TimedGate(), costs(0.9), Text(lambda p: 0.1, 0)
    for _ in range(200):
        _, steps, _, heard = play(gate.choose(model), text.outcome)
        gate.observe(heard, steps)
    assert steps == 1
    assert gate.choose(model).timed.min_step_gain > 0.5


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_timed_obeys_the_limit(limit):
    gate = TimedGate(limit)
    for _ in range(60):
        assert gate.choose(costs(0.1)).max_draft <= limit
        gate.observe([(0.99, 0)] * limit, limit)


def test_dear_rows_and_dear_steps_raise_the_bar():
    def rule(c, row):
        return TimedGate().choose(costs(c, row)).timed

    assert rule(0.5, 0.2).row_price[7] > 5 * rule(0.5, 0.02).row_price[7]
    assert rule(0.5, 0.01).min_step_gain > rule(0.05, 0.01).min_step_gain
    assert rule(0.5, 5.0).min_step_gain <= 1  # whoever asks wants one step at least


def test_one_round_of_eight_is_eager():
    gate, model = TimedGate(), costs(0.4)
    rules = []
    for _ in range(32):
        rules.append(gate.choose(model))
        gate.observe([(0.8, 0), (0.6, -1)], 2)
    cheap = [i for i in range(1, 32) if rules[i].timed.row_price[5] < 0.9 * rules[i - 1].timed.row_price[5]]
    assert cheap == [7, 15, 23, 31]
    assert all(rules[i].timed.min_step_gain < rules[i - 1].timed.min_step_gain for i in cheap)


def test_short_rounds_are_looked_at_seldom():
    """A look takes half a millisecond: where a plain step takes less, rounds pass before the next one."""

    def looks(plain):
        gate, model, rules = TimedGate(), CostModel(), []
        for _ in range(4):
            model.add(Round(plain, verify_seconds=plain))
        for _ in range(128):
            rules.append(gate.choose(model).timed)
            gate.observe([(0.8, 0)], 1)
        return len({rule.p_top1 for rule in rules})

    assert looks(1e-3) < looks(1.0) == 16


def test_what_it_hands_to_a_session_is_complete():
    rule = TimedGate(9).choose(costs(0.3))
    given = rule.arguments()
    assert (given["max_draft"], given["max_nodes"]) == (9, 64)
    assert len(given["edges"]) == BUCKETS - 1
    assert np.shape(given["p_top1"]) == (BUCKETS,)
    assert np.shape(given["p_rank"]) == (BUCKETS, RANKS - 1)
    assert len(given["row_price"]) == 64 and given["row_price"][0] == 0
    assert "row_price" not in DraftRule().arguments()
