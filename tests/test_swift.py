"""SWIFT's optimizer on scripted scores: what it proposes, what it keeps, when it ends; and its Bayesian helper."""

import logging
import os
import time
from types import SimpleNamespace

import numpy as np
import pytest

import swiftk
from swiftk.cost import CostModel
from swiftk.errors import InvalidArgument
from swiftk.gate import DraftRule, FixedGate
from swiftk.optimizers import base, bayes
from swiftk.optimizers.base import _TRACED, Candidate, Progress, Score
from swiftk.optimizers.proposals import sublayers
from swiftk.optimizers.swift import Swift, SwiftSettings
from swiftk.skip import SkipSet
from swiftk.way import Way

LAYERS = 16
INNER = set(range(2, 2 * LAYERS - 2))


def scored(matchness, rows=32):
    rank = np.where(np.arange(rows) < round(matchness * rows), 0, -1).astype(np.int32)
    return Score(np.full(rows, 0.5, np.float32), rank, 1e-3)


def swift(**settings):
    settings.setdefault("bayes", False)
    return Swift(LAYERS, lambda skip: Way(skip, CostModel(), FixedGate(DraftRule())), SwiftSettings(**settings))


def run(optimizer, truth, steps, window=32, per_round=1):
    """`steps` rounds of a text; truth(skip) is a set's matchness. Returns the sets that were scored."""
    asked = []

    def score(skip, rows, end=None):
        asked.append(skip)
        assert rows == optimizer.settings.window
        return scored(truth(skip))

    optimizer.start([1, 2, 3])
    for i in range(steps):
        generated = window + 1 + i * per_round
        optimizer.step(score, Progress(3, generated, 0.05 * generated, 0.04))
    return asked


def overlap(skip):
    """Best where low sublayers are kept."""
    return np.mean([s >= 14 for s in sublayers(skip, LAYERS)])


def test_starts_uniform_and_scores_that_first():
    optimizer = swift(max_score=1.0)
    assert optimizer.current.skip == SkipSet.uniform(LAYERS)
    asked = run(optimizer, overlap, 20)
    assert asked[0] == SkipSet.uniform(LAYERS)
    assert optimizer.trace[0].kind == "uniform"


def test_waits_for_its_context():
    optimizer = swift(window=50)
    optimizer.start([1])
    optimizer.step(lambda *_: pytest.fail("scored without context"), Progress(1, 50, 1.0, 0.04))
    assert not optimizer.trace


@pytest.mark.parametrize("ratio", [0.2, 0.45, 0.5, 0.9])
def test_candidates_skip_the_asked_share_of_inner_sublayers(ratio):
    optimizer = swift(skip_ratio=ratio, max_score=1.0)
    asked = run(optimizer, overlap, 60)
    for one in asked:
        if one != SkipSet.uniform(LAYERS):
            skipped = sublayers(one, LAYERS)
            assert skipped <= INNER
            assert len(skipped) == int(2 * (LAYERS - 2) * ratio)


def test_keeps_the_best_set_of_a_context():
    optimizer = swift(max_score=1.0)
    run(optimizer, overlap, 200, per_round=0)
    assert overlap(optimizer.current.skip) == max(overlap(c.skip) for c in optimizer.trace)
    assert overlap(optimizer.current.skip) > overlap(SkipSet.uniform(LAYERS))


def test_a_new_context_scores_the_set_that_drafts_again():
    optimizer = swift(max_score=1.0)
    run(optimizer, overlap, 100)
    again = [c for c in optimizer.trace if c.kind == "again"]
    assert len(again) == 3  # 100 tokens, a context of 32
    assert not any(c.kept for c in again)


def test_a_lucky_context_does_not_freeze_the_search():
    optimizer, luck = swift(max_score=1.0), iter([0.9])
    run(optimizer, lambda skip: next(luck, overlap(skip) * 0.5), 150)
    assert optimizer.current.skip != SkipSet.uniform(LAYERS)


@pytest.mark.parametrize(
    ("settings", "truth", "why"),
    [
        ({"max_steps": 7, "max_score": 1.0}, overlap, "7 steps"),
        ({"tolerance": 5, "max_score": 1.0}, lambda _: 0.5, "without gain"),
        ({"max_score": 0.6}, lambda _: 0.75, "matchness 0.750"),
    ],
)
def test_ends(settings, truth, why):
    optimizer = swift(**settings)
    run(optimizer, truth, 100, per_round=0)
    assert why in optimizer.stopped
    before = len(optimizer.trace)
    run(optimizer, truth, 20)
    assert len(optimizer.trace) == before, "a search that ended goes on"


@pytest.mark.parametrize(
    "settings",
    [{"max_steps": -1}, {"window": 0}, {"window": True}, {"tolerance": 0}, {"max_score": 0}, {"skip_ratio": 1.5}],
)
def test_bad_settings_are_named(settings):
    with pytest.raises(InvalidArgument, match=next(iter(settings))):
        SwiftSettings(**settings)


def test_unknown_settings_are_named():
    with pytest.raises(InvalidArgument, match=r"'gamma'.*window"):
        SwiftSettings.parse({"gamma": 3})


def test_larger_models_skip_half():
    assert SwiftSettings().skipped(80) == 78
    assert SwiftSettings().skipped(40) == 34


def told(dimensions=6, points=12, seed=0):
    rng = np.random.default_rng(seed)
    suggestions = bayes.Suggestions(dimensions, seed)
    for _ in range(points):
        point = (rng.random(dimensions) < 0.5).astype(float)
        suggestions.tell(point.tolist(), float(point[:2].sum() - point[2:].sum()))
    return suggestions


def wait(condition, seconds=60):
    """What condition() returns once it is true, or in the end."""
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def test_suggestions_come_later_and_point_uphill():
    suggestions = told()
    suggestions.ask()
    point = wait(suggestions.answer)
    assert len(point) == 6
    assert np.mean(point[:2]) > np.mean(point[2:])
    suggestions.close()


def test_a_process_that_dies_ends_suggestions_with_a_warning(caplog):
    suggestions = told()
    suggestions.ask()
    process = suggestions._process
    process.kill()
    process.wait()
    with caplog.at_level(logging.WARNING, "swiftk"):
        assert wait(lambda: suggestions.answer() is None and suggestions._closed)
    assert "goes on at random" in caplog.text
    suggestions.ask()
    assert suggestions.answer() is None


def test_without_the_package_there_is_one_warning(monkeypatch, caplog):
    monkeypatch.setattr(bayes, "find_spec", lambda name: None)
    suggestions = told()
    with caplog.at_level(logging.WARNING, "swiftk"):
        suggestions.ask()
        suggestions.ask()
    assert caplog.text.count("bayesian-optimization") == 1
    assert suggestions.answer() is None


def test_closing_leaves_no_process():
    suggestions = told()
    suggestions.ask()
    pid = suggestions._process.pid
    suggestions.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_bayesian_steps_score_vertices(monkeypatch):
    asked = []
    answers = SimpleNamespace(
        tell=lambda point, score: asked.append(point),
        ask=lambda: None,
        answer=lambda: np.linspace(0, 1, 2 * LAYERS - 4).tolist(),
        close=lambda: None,
    )
    optimizer = swift(bayes=True, max_score=1.0)
    monkeypatch.setattr(optimizer, "_suggestions", answers)
    run(optimizer, overlap, 3, per_round=0)
    best = [c for c in optimizer.trace if c.kind == "bayes"]
    assert sublayers(best[0].skip, LAYERS) == frozenset(sorted(INNER)[-SwiftSettings().skipped(LAYERS) :])
    assert all(set(point) <= {0.0, 1.0} for point in asked)


def test_a_long_life_keeps_the_latest_of_its_trace():
    optimizer = swift()
    optimizer.trace += [
        Candidate(i, "random", SkipSet(), 0.5, None, kept=False, seconds=0.1) for i in range(2 * _TRACED)
    ]
    assert optimizer.trim() == _TRACED == len(optimizer.trace)
    assert [one.tokens for one in optimizer.trace] == list(range(_TRACED, 2 * _TRACED))
    assert optimizer.trim() == _TRACED


def test_reports_tell_new_candidates_from_those_that_are_left(monkeypatch, tmp_path):
    monkeypatch.setattr(base, "_TRACED", 2)
    lm = swiftk.load(swiftk.demo_model(), device="cpu")
    options = {"max_new_tokens": 80, "ignore_eos": True, "optimizer": "swift", "swift": {"window": 8}}
    results = [lm.generate("The river", speculate="always", **options) for _ in range(3)]
    traces = [result.trace for result in results]
    assert [trace.earlier for trace in traces] == [0, 2, 2]
    assert len(traces[0].candidates) > 2
    assert traces[1].candidates[:2] == traces[0].candidates[-2:]
    assert all(result.report(tmp_path / "page.html").stat().st_size > 0 for result in results)
