"""Gate policies on scripted confidences and acceptances."""

import random

import pytest

from swiftk.gate import AutoGate, DraftRule, FixedGate, make_gate


def test_fixed_gates_are_what_the_option_says():
    swift = make_gate("swift", None)
    assert isinstance(swift, FixedGate)
    assert swift.rule == DraftRule(0.8, 25, 64, (0.5, 0.8, 0.95), (10, 5, 3, 1))
    assert make_gate(0.3, 7).rule == DraftRule(confidence=0.3, max_draft=7)
    assert make_gate(DraftRule(max_draft=9), 4).rule.max_draft == 4
    assert make_gate(DraftRule(max_draft=3), 4).rule.max_draft == 3
    rule = swift.choose(0.5, 0.01)
    swift.observe([0.9], 0, False)
    assert swift.choose(9.0, 9.0) == rule


def test_clipping_keeps_the_rest():
    assert DraftRule(confidence=0.5).clipped(3) == DraftRule(confidence=0.5, max_draft=3)
    assert DraftRule(max_draft=2).clipped(3).max_draft == 2
    assert DraftRule().clipped(-1).max_draft == 0


def simulate(c, calibrated, rounds=600, seed=0, limit=None):
    """Runs AutoGate on a text whose draft tokens have random confidences and are accepted with calibrated(confidence).
    Returns (tokens per plain step of the last third, last ordinary rule)."""
    rng, gate = random.Random(seed), AutoGate(limit)
    tokens = cost = 0.0
    for i in range(rounds):
        rule = gate.choose(c, 0.01)
        confidence, accepted, alive = [], 0, True
        while len(confidence) < rule.max_draft:
            confidence.append(rng.betavariate(2, 0.7))
            alive = alive and rng.random() < calibrated(confidence[-1])
            accepted += alive
            if confidence[-1] < rule.confidence:
                break
        gate.observe(confidence, accepted, False)
        if i >= rounds * 2 // 3:
            tokens += accepted + 1
            cost += 1 + (c + 0.01) * len(confidence)
    return tokens / cost, gate


def best_fixed(c, calibrated):
    rates = []
    for epsilon in (0.0, 0.4, 0.7, 0.9):
        for length in (1, 2, 4, 8, 16):
            rng = random.Random(7)
            tokens = cost = 0.0
            for _ in range(3000):
                n = accepted = 0
                alive = True
                while n < length:
                    n += 1
                    confidence = rng.betavariate(2, 0.7)
                    alive = alive and rng.random() < calibrated(confidence)
                    accepted += alive
                    if confidence < epsilon:
                        break
                tokens += accepted + 1
                cost += 1 + (c + 0.01) * n
            rates.append(tokens / cost)
    return max(rates)


@pytest.mark.parametrize("c", [0.1, 0.3, 0.55])
@pytest.mark.parametrize(
    "calibrated", [lambda p: p, lambda p: p**3, lambda p: 0.97], ids=["honest", "overconfident", "sure"]
)
def test_auto_comes_close_to_the_best_fixed_rule(c, calibrated):
    rate = sum(simulate(c, calibrated, seed=s)[0] for s in range(3)) / 3
    assert rate >= 0.9 * best_fixed(c, calibrated)


def test_auto_drafts_short_when_drafts_are_dear_and_wrong():
    _, gate = simulate(0.9, lambda p: 0.2)
    assert gate.choose(0.9, 0.01).max_draft <= 3


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_auto_obeys_the_limit(limit):
    gate = AutoGate(limit)
    for _ in range(100):
        assert gate.choose(0.1, 0.0).max_draft <= limit
        gate.observe([0.99] * limit, limit, False)


def test_dear_rows_make_narrow_trees():
    assert AutoGate().choose(0.5, 0.2).width == (1, 1, 1, 1)
    assert AutoGate().choose(0.5, 0.05).width == (3, 3, 3, 1)
    assert AutoGate().choose(0.5, 0.002).max_nodes > AutoGate().choose(0.5, 0.5).max_nodes
    assert 2 <= AutoGate(1).choose(0.5, 5.0).max_nodes <= 64
